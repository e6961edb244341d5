"""Keys in the admin: shown once, never their digest, one button to stop them."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from orazaka.models import ApiKey, digest_of
from tests.factories import UserFactory, issue

pytestmark = [
    pytest.mark.django_db,
    # unfold 0.110 overrides it as Django before 6.1 wanted; works until Django 2028.
    pytest.mark.filterwarnings("ignore:Overriding get_action_choices"),
]
LIST = "/admin/orazaka/apikey/"


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_a_key_is_made_for_a_user_and_shown_once(admin: Client) -> None:
    user = UserFactory.create()
    form = {"user": user.pk, "name": "laptop", "scopes": '["gateway"]', "allowed_models": ""}
    page = admin.post(f"{LIST}add/", form, follow=True)
    key = ApiKey.objects.get()
    [plain] = re.findall(r"ozk_[A-Za-z0-9_-]{43}", page.content.decode())
    assert (key.user, key.name, key.scopes, key.allowed_models) == (
        user,
        "laptop",
        ["gateway"],
        None,
    )
    assert key.digest == digest_of(plain)
    for address in (LIST, f"{LIST}{key.pk}/change/", f"{LIST}{key.pk}/history/"):
        text = admin.get(address).content.decode()
        assert plain not in text
        assert key.digest not in text
    assert plain not in str(LogEntry.objects.values())


def test_changing_a_key_keeps_it(admin: Client) -> None:
    key, plain = issue()
    form = {"user": key.user_id, "name": "new", "scopes": '["rest"]', "allowed_models": ""}
    page = admin.post(f"{LIST}{key.pk}/change/", form, follow=True)
    assert page.status_code == 200
    key.refresh_from_db()
    assert (key.name, key.scopes, key.digest) == ("new", ["rest"], digest_of(plain))
    assert "shown only now" not in page.content.decode()


def test_a_form_that_makes_no_sense_makes_no_key(admin: Client) -> None:
    form = {"user": UserFactory.create().pk, "scopes": '["root"]', "allowed_models": "{"}
    page = admin.post(f"{LIST}add/", form)
    assert page.status_code == 200
    assert "must be a list out of gateway, rest" in page.content.decode()
    assert not ApiKey.objects.exists()


def test_one_button_revokes_the_chosen_keys(admin: Client) -> None:
    chosen, other = issue()[0], issue()[0]
    form = {"action": "revoke", "_selected_action": [chosen.pk]}
    page = admin.post(LIST, form, follow=True)
    assert "Revoked: 1" in page.content.decode()
    states = {key.pk: bool(key.revoked_at) for key in ApiKey.objects.all()}
    assert states == {chosen.pk: True, other.pk: False}


@pytest.mark.parametrize("query", ["", "?q=laptop", "?q=" + "0" * 64, "?o=6"])
def test_the_list_says_who_uses_what_and_since_when(query: str, admin: Client) -> None:
    issue(name="laptop")
    page = admin.get(LIST + query)
    assert page.status_code == 200
    assert ("laptop" in page.content.decode()) is ("000" not in query)


@pytest.mark.parametrize("address", ["auth/user/", "auth/user/add/", "auth/group/"])
def test_users_and_groups_have_their_pages(address: str, admin: Client) -> None:
    assert admin.get(f"/admin/{address}").status_code == 200


def test_the_page_of_a_new_key_is_kept_nowhere_and_says_how_to_try_it(admin: Client) -> None:
    form = {"user": UserFactory.create().pk, "scopes": '["gateway"]', "allowed_models": "m:one"}
    page = admin.post(f"{LIST}add/", form)
    [plain] = re.findall(r"ozk_[A-Za-z0-9_-]{43}", page.content.decode())
    assert "no-store" in page["Cache-Control"]
    assert "/v1/chat/completions" in page.content.decode()
    assert "&quot;m:one&quot;" in page.content.decode()
    assert plain not in admin.get(LIST).content.decode()
    assert plain not in str(dict(admin.session))
    assert not [cookie for cookie in admin.cookies.values() if plain in cookie.value]


def test_a_keys_page_has_a_button_that_revokes_it(admin: Client) -> None:
    key, _ = issue()
    address = f"{LIST}{key.pk}/revoke"
    assert f'action="{address}"' in admin.get(f"{LIST}{key.pk}/change/").content.decode()
    assert admin.get(address).status_code == 405
    page = admin.post(address, follow=True).content.decode()
    assert "Revoked: 1" in page
    assert f'action="{address}"' not in page
    key.refresh_from_db()
    assert key.revoked_at


def test_a_key_stays_its_users(admin: Client) -> None:
    key, _ = issue()
    form = {"user": UserFactory.create().pk, "scopes": '["rest"]', "allowed_models": ""}
    admin.post(f"{LIST}{key.pk}/change/", form)
    user = key.user
    key.refresh_from_db()
    assert key.user == user


def test_nobody_makes_a_key_for_who_may_more(client: Client) -> None:
    codenames = ("add_apikey", "view_apikey", "view_user")
    maker, peer = UserFactory.create(is_staff=True), UserFactory.create()
    maker.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    root = User.objects.create_superuser("root")
    client.force_login(maker)
    for user, made in ((root, False), (peer, True), (maker, True)):
        form = {"user": user.pk, "scopes": '["gateway"]', "allowed_models": ""}
        page = client.post(f"{LIST}add/", form).content.decode()
        assert ("may more than you" in page) is not made
        assert ApiKey.objects.filter(user=user).exists() is made


def test_who_only_looks_at_keys_revokes_none(client: Client) -> None:
    key, _ = issue()
    looking = UserFactory.create(is_staff=True)
    looking.user_permissions.add(Permission.objects.get(codename="view_apikey"))
    client.force_login(looking)
    assert client.post(f"{LIST}{key.pk}/revoke").status_code == 403
    assert f"{key.pk}/revoke" not in client.get(f"{LIST}{key.pk}/change/").content.decode()


def test_staff_without_permission_sees_no_keys(client: Client) -> None:
    client.force_login(UserFactory.create(is_staff=True))
    assert client.get(LIST).status_code == 403
    assert "API keys" not in client.get("/admin/").content.decode()
