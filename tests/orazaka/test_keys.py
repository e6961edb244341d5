"""API keys: rows, verbs, commands."""

import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection
from django.utils import timezone

from orazaka.keys import load_keys, permissions_of
from orazaka.models import ApiKey, ApiKeyUse, digest_of
from tests.factories import GroupFactory, UserFactory, issue

pytestmark = pytest.mark.django_db
NOW = timezone.now()
LATER, EARLIER = NOW + timedelta(days=1), NOW - timedelta(days=1)


def run(*args: str, **options: Any) -> str:
    out = StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue().strip()


# --- Rows -----------------------------------------------------------------------------------------
def test_a_key_is_stored_as_its_digest_and_a_hint() -> None:
    key, plain = issue()
    key.refresh_from_db()
    assert re.fullmatch(r"ozk_[A-Za-z0-9_-]{43}", plain)
    assert key.digest == digest_of(plain)
    assert key.hint == plain[:10]
    assert plain not in str(ApiKey.objects.values())


def test_no_two_keys_are_alike() -> None:
    assert len({issue()[1] for _ in range(20)}) == 20


def test_neither_key_nor_digest_shows_in_text() -> None:
    key, plain = issue(name="laptop")
    for text in (repr(key), str(key)):
        assert plain not in text
        assert key.digest not in text
        assert key.hint not in text


@pytest.mark.parametrize(
    "fields",
    [
        {"scopes": ["admin"]},
        {"scopes": []},
        {"scopes": "gateway"},
        {"allowed_models": [1]},
        {"requests_per_minute": 0},
        {"requests_per_minute": -1},
        {"name": "x" * 101},
    ],
)
def test_a_key_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        issue(**fields)
    assert not ApiKey.objects.exists()


def test_the_database_refuses_what_is_no_digest() -> None:
    with pytest.raises(IntegrityError):
        ApiKey.objects.create(user=UserFactory.create(), digest="short", hint="ozk_")


def test_the_database_refuses_a_limit_of_nothing() -> None:
    key, _ = issue()
    with pytest.raises(IntegrityError):
        ApiKey.objects.filter(pk=key.pk).update(requests_per_minute=0)


@pytest.mark.parametrize(
    ("fields", "active", "usable", "state"),
    [
        ({}, True, True, "active"),
        ({"expires_at": LATER}, True, True, "active"),
        ({"expires_at": NOW}, True, False, "expired"),
        ({"expires_at": EARLIER}, True, False, "expired"),
        ({"revoked_at": EARLIER}, True, False, "revoked"),
        ({}, False, False, "inactive"),
    ],
)
def test_a_key_is_usable_until_it_expires_is_revoked_or_its_user_goes(
    fields: dict[str, datetime], active: bool, usable: bool, state: str
) -> None:
    key, _ = issue(UserFactory.create(is_active=active))
    ApiKey.objects.filter(pk=key.pk).update(**fields)
    key.refresh_from_db()
    assert ApiKey.objects.usable(NOW).filter(pk=key.pk).exists() is usable
    assert key.state(NOW) == state


def test_revoking_twice_keeps_the_first_time() -> None:
    key, _ = issue()
    assert ApiKey.objects.filter(pk=key.pk).revoke() == 1
    key.refresh_from_db()
    first = key.revoked_at
    assert ApiKey.objects.filter(pk=key.pk).revoke() == 0
    key.refresh_from_db()
    assert key.revoked_at == first


def test_the_last_use_is_made_and_then_changed() -> None:
    key, _ = issue()
    for at in (EARLIER, NOW):
        ApiKeyUse.objects.touch(key.pk, at=at)
        assert list(ApiKeyUse.objects.values_list("key", "last_used_at")) == [(key.pk, at)]


def test_the_use_of_a_key_that_is_gone_is_no_error() -> None:
    ApiKeyUse.objects.touch(4711, at=NOW)
    assert not ApiKeyUse.objects.exists()


def test_a_use_that_is_written_while_its_key_goes_does_not_get_in_the_way() -> None:
    ApiKeyUse.objects.create(key_id=4711, last_used_at=NOW)
    connection.check_constraints()


# --- What a key is worth --------------------------------------------------------------------------
def test_permissions_are_those_that_django_gives() -> None:
    some = list(Permission.objects.order_by("pk")[:4])
    group = GroupFactory.create()
    group.permissions.set(some[:2])
    plain, both = UserFactory.create(), UserFactory.create()
    grouped, root = UserFactory.create(), UserFactory.create(is_superuser=True)
    grouped.groups.set([group])
    both.groups.set([group])
    both.user_permissions.set(some[1:])
    users = [plain, grouped, both, root]
    found = permissions_of(users)
    assert found == {user.pk: frozenset(user.get_all_permissions()) for user in users}
    assert len(found[both.pk]) == 4
    assert not found[plain.pk]


def test_loading_keys_takes_the_same_queries_for_many_as_for_one(
    django_assert_num_queries: pytest.FixtureRequest,
) -> None:
    for _ in range(5):
        issue()
    with django_assert_num_queries(5):  # type: ignore[operator]
        assert len(load_keys()) == 5


def test_a_key_makes_a_caller_with_its_limits() -> None:
    user = UserFactory.create(is_staff=True)
    key, plain = issue(
        user, scopes=["rest"], allowed_models=["demo:*"], requests_per_minute=7, expires_at=LATER
    )
    loaded = load_keys()[digest_of(plain)]
    caller = loaded.caller
    assert loaded.expires == LATER.timestamp()
    assert caller.principal == f"user:{user.pk}"
    assert (caller.user_id, caller.username, caller.is_staff) == (user.pk, user.username, True)
    assert (caller.key_id, caller.rate) == (key.pk, 7)
    assert caller.scopes == {"rest"}
    assert caller.models == frozenset({"demo:*"})


# --- Commands -------------------------------------------------------------------------------------
def test_createkey_prints_the_key_once_as_json() -> None:
    user = UserFactory.create(username="ada")
    answer = json.loads(run("createkey", "ada", json=True))
    key = ApiKey.objects.get(pk=answer["id"])
    assert key.digest == digest_of(answer["key"])
    assert (key.user, key.user.is_staff) == (user, False)


def test_createkey_without_json_prints_the_key_alone() -> None:
    UserFactory.create(username="ada")
    plain = run("createkey", "ada", name="laptop")
    assert ApiKey.objects.get(digest=digest_of(plain)).name == "laptop"


def test_createkey_makes_a_user_who_has_no_password_and_no_rights() -> None:
    run("createkey", "new", create=True)
    user = User.objects.get(username="new")
    assert not user.has_usable_password()
    assert not user.is_staff
    assert not user.get_all_permissions()


def test_createkey_with_staff_makes_an_administrator_with_every_permission() -> None:
    run("createkey", "boss", create=True, staff=True)
    boss = User.objects.get(username="boss")
    assert boss.is_staff
    assert not boss.is_superuser
    assert len(boss.get_all_permissions()) == Permission.objects.count()


def test_createkey_takes_an_expiry_with_a_zone() -> None:
    run("createkey", "ada", "--create", "--expires", "2099-01-01T00:00:00+02:00")
    assert ApiKey.objects.get().expires_at == datetime(2098, 12, 31, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["nobody"], "there is no user 'nobody'"),
        (["no spaces please", "--create"], "Enter a valid username"),
        (["x" * 200, "--create"], "150"),
        (["idle"], "inactive"),
        (["ada", "--expires", "2099-01-01T00:00:00"], "time zone"),
        (["ada", "--expires", "2099-01-01"], "time zone"),
        (["ada", "--expires", "2001-01-01T00:00:00Z"], "past"),
        (["ada", "--expires", "tomorrow"], "ISO 8601"),
        (["ada", "--name", "x" * 101], "100"),
    ],
)
def test_createkey_says_what_is_wrong_and_makes_nothing(args: list[str], complaint: str) -> None:
    UserFactory.create(username="ada")
    UserFactory.create(username="idle", is_active=False)
    with pytest.raises(CommandError, match=complaint):
        run("createkey", *args)
    assert not ApiKey.objects.exists()
    assert User.objects.count() == 2


def test_createkey_needs_the_group_of_administrators_for_staff() -> None:
    UserFactory.create(username="ada").groups.model.objects.all().delete()
    with pytest.raises(CommandError, match=r"manage\.py migrate"):
        run("createkey", "ada", staff=True)
    assert not User.objects.get(username="ada").is_staff


@pytest.mark.parametrize("length", [None, 5, 10, 47])
def test_revokekey_takes_an_id_a_beginning_or_the_whole_key(length: int | None) -> None:
    key, plain = issue()
    output = run("revokekey", plain[:length] if length else str(key.pk))
    key.refresh_from_db()
    assert key.revoked_at
    assert plain not in output


def test_revokekey_says_that_a_key_was_revoked_before() -> None:
    key, _ = issue()
    run("revokekey", str(key.pk))
    assert "was revoked before" in run("revokekey", str(key.pk))


@pytest.mark.parametrize("name", ["0", "9" * 30, "ozk_", "ozk_unknown", "", "sk-other", "%", "²"])
def test_revokekey_finds_nothing_by_something_else_and_does_not_repeat_it(name: str) -> None:
    issue()
    with pytest.raises(CommandError) as raised:
        run("revokekey", name)
    assert str(raised.value) == "there is no such key; give its id or how it begins (ozk_…)"
    assert not ApiKey.objects.exclude(revoked_at=None).exists()


def test_revokekey_asks_when_several_keys_begin_alike() -> None:
    ids = [issue()[0].pk for _ in range(2)]
    ApiKey.objects.update(hint="ozk_same00")
    with pytest.raises(CommandError, match=rf"ids {ids[0]}, {ids[1]}"):
        run("revokekey", "ozk_same")
    assert not ApiKey.objects.exclude(revoked_at=None).exists()
