"""Providers and turns in the admin: set up, tested, looked at, and no secret on any page."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from gateway.models import Provider, ProviderTest, Turn, TurnStep

pytestmark = [
    pytest.mark.django_db,
    # unfold 0.110 overrides it as Django before 6.1 wanted; works until Django 2028.
    pytest.mark.filterwarnings("ignore:Overriding get_action_choices"),
]
LIST = "/admin/gateway/provider/"
TURNS = "/admin/gateway/turn/"
KEY = "sk-SECRET-0123456789"
NOWHERE = "http://127.0.0.1:1/v1"


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def staff(client: Client, *permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return client


def provider(**fields) -> Provider:
    return Provider.objects.create(
        **{"name": "acme", "chat_url": NOWHERE, "api_key": KEY, **fields}
    )


def form(**fields) -> dict[str, object]:
    limits = {"connect_seconds": 5, "first_byte_seconds": 9, "silence_seconds": 9}
    urls = {"chat_url": NOWHERE, "messages_url": "", "responses_url": ""}
    rest = {"turn_seconds": 60, "default_headers": "{}", "model_names": "", "api_key": ""}
    return {"name": "acme", "enabled": "on", **limits, **urls, **rest, **fields}


def text(page) -> str:
    assert page.status_code == 200
    return page.content.decode()


# --- providers ---


def test_a_preset_fills_the_form_and_a_link_never_fills_the_key(admin):
    page = text(admin.get(f"{LIST}add/?preset=mistral&api_key=planted"))
    assert 'value="https://api.mistral.ai/v1"' in page
    assert "console.mistral.ai/api-keys" in page
    assert "planted" not in page


def test_an_unknown_preset_is_an_empty_form(admin):
    assert 'aria-current="true"' not in text(admin.get(f"{LIST}add/?preset=nobody"))


def test_a_provider_is_made_with_names_one_a_line(admin):
    admin.post(f"{LIST}add/", form(api_key=KEY, model_names="m-1\n\n m-2 \nm-1"))
    row = Provider.objects.get()
    assert (row.api_key, row.model_names) == (KEY, ["m-1", "m-2"])
    assert "m-1\nm-2" in text(admin.get(f"{LIST}{row.pk}/change/"))


@pytest.mark.parametrize("nothing", ["", "{}", "[]", "null", '""'])
def test_no_headers_in_whatever_form_are_none(nothing, admin):
    admin.post(f"{LIST}add/", form(default_headers=nothing))
    assert Provider.objects.get().default_headers == {}


def test_no_names_means_every_model(admin):
    admin.post(f"{LIST}add/", form())
    assert Provider.objects.get().model_names is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"chat_url": "ftp://x/"}, "begins with http"),
        ({"chat_url": "http://[/"}, "must be a URL"),
        ({"chat_url": "http://a:b@x/v1"}, "no user name"),
        ({"chat_url": "http://x/v1?key=1"}, "no user name, query"),
        ({"default_headers": "[1]"}, "an object of texts"),
        ({"default_headers": '{"a": 1}'}, "an object of texts"),
        ({"default_headers": '{"a b": "c"}'}, "letters, digits and hyphens"),
        ({"default_headers": '{"a": "b\\nc"}'}, "printable ASCII"),
        ({"turn_seconds": 0}, "greater than or equal to 0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, words, admin):
    assert words in text(admin.post(f"{LIST}add/", form(**fields)))
    assert not Provider.objects.exists()


def test_a_host_of_ones_own_needs_no_dot(admin):
    admin.post(f"{LIST}add/", form(chat_url="http://vllm:8000/v1"))
    assert Provider.objects.get().chat_url == "http://vllm:8000/v1"


def test_an_empty_key_keeps_the_stored_one_which_no_page_shows(admin):
    row = provider(default_headers={"x": "y"})
    admin.post(f"{LIST}{row.pk}/change/", form(name="renamed"))
    row.refresh_from_db()
    assert (row.name, row.api_key) == ("renamed", KEY)
    for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/history/"):
        assert KEY not in text(admin.get(address))


def test_a_stored_key_does_not_go_to_another_host(admin):
    row = provider()
    moved = form(chat_url="https://evil.example/v1")
    page = text(admin.post(f"{LIST}{row.pk}/change/", moved))
    assert "type its key again" in page
    row.refresh_from_db()
    assert row.chat_url == NOWHERE
    admin.post(f"{LIST}{row.pk}/change/", {**moved, "api_key": "sk-of-the-new-host"})
    row.refresh_from_db()
    assert (row.chat_url, row.api_key) == ("https://evil.example/v1", "sk-of-the-new-host")


def test_the_test_button_says_what_was_found_and_it_stays(admin):
    row = provider()
    page = text(admin.post(f"{LIST}{row.pk}/test", follow=True))
    assert page.count("It can&#x27;t be reached: Connection refused.") >= 2
    assert KEY not in page
    assert not ProviderTest.objects.get(provider=row).ok
    assert "fails" in text(admin.get(LIST))


def test_the_chosen_are_tested_and_switched_from_the_list(admin):
    row = provider()
    for action, words in (
        ("test_chosen", "can&#x27;t be reached"),
        ("disable", "Disabled: 1."),
        ("enable", "Enabled: 1."),
    ):
        chosen = {"action": action, "_selected_action": [row.pk]}
        assert words in text(admin.post(LIST, chosen, follow=True))
        row.refresh_from_db()
        assert row.enabled is (action != "disable")


def test_a_test_is_no_link(admin):
    assert admin.get(f"{LIST}{provider().pk}/test").status_code == 405


def test_who_only_looks_sees_no_secret_and_can_test_nothing(client):
    row = provider(default_headers={"x-token": "hush-hush"})
    looking = staff(client, "view_provider")
    page = text(looking.get(f"{LIST}{row.pk}/change/"))
    assert "acme" in page
    assert KEY not in page
    assert "hush-hush" not in page
    assert "Test now" not in page
    assert looking.post(f"{LIST}{row.pk}/test").status_code == 403
    assert not ProviderTest.objects.exists()


# --- turns ---


def turn(**fields) -> Turn:
    values = {
        "principal": "user:1", "wire": "chat", "model": "demo:demo", "streamed": True,
        "status": "ok", "started_at": timezone.now(), "duration_ms": 100.0, "prompt_tokens": 1200,
    }  # fmt: skip
    return Turn.objects.create(**{**values, **fields})


def step(of: Turn, position: int, kind: str, **fields) -> TurnStep:
    values = {"name": "add", "outcome": "ok", "started_ms": 25.0, "duration_ms": 50.0}
    return TurnStep.objects.create(turn=of, position=position, kind=kind, **{**values, **fields})


def test_a_turn_shows_its_steps_where_they_were_in_its_time(admin):
    one = turn(offered=[{"name": "add", "source": "inline:sums", "reason": "named in the request"}])
    step(one, 0, "server", name="sums", outcome="listed", started_ms=0, duration_ms=25)
    step(one, 1, "tool", server="sums", outcome="failed", detail={"arguments": ["a", "b"]})
    page = text(admin.get(f"{TURNS}{one.pk}/change/"))
    assert 'x="25.00%" width="50.00%"' in page
    assert 'class="tool bad"' in page
    assert "<dt>arguments</dt><dd>a, b</dd>" in page
    assert "inline:sums" in page
    assert "1,200" in page
    assert 'name="_save"' not in page


def test_what_others_said_is_text_on_the_page(admin):
    hostile = "<script>alert(1)</script>"
    one = turn(model=hostile, error=hostile, status="error", offered=[{"name": hostile}])
    step(one, 0, "tool", name=hostile, detail={"error": hostile, hostile: [hostile]})
    assert hostile not in text(admin.get(f"{TURNS}{one.pk}/change/"))
    assert hostile not in text(admin.get(TURNS))


def test_a_step_past_the_end_stays_on_the_scale(admin):
    one = turn(duration_ms=0)
    step(one, 0, "note", started_ms=-1, duration_ms=0)
    step(one, 1, "model", started_ms=5000, duration_ms=7000, detail={"usage": {"prompt": 4}})
    page = text(admin.get(f"{TURNS}{one.pk}/change/"))
    assert "12.0 s" in page
    assert "<dd>prompt 4</dd>" in page


@pytest.mark.parametrize("query", ["", "?status=ok", "?wire=chat&streamed__exact=1", "?q=demo"])
def test_turns_are_found_by_how_they_ended_and_what_they_asked(query, admin):
    turn()
    assert "demo:demo" in text(admin.get(TURNS + query))


def test_an_empty_list_says_what_to_do_next(admin):
    assert "manage.py ask" in text(admin.get(TURNS))
    assert "OPENAI_API_KEY" in text(admin.get(LIST))
    assert "Nothing fits" in text(admin.get(TURNS + "?q=nobody"))


def test_turns_are_not_made_or_changed_here(admin):
    assert admin.get(f"{TURNS}add/").status_code == 403
    one = turn()
    admin.post(f"{TURNS}{one.pk}/change/", {"status": "error"})
    one.refresh_from_db()
    assert one.status == "ok"


def test_a_turn_that_is_gone_is_no_error(admin):
    assert admin.get(f"{TURNS}{uuid.uuid4()}/change/").status_code == 302


# --- who sees what ---


@pytest.mark.parametrize("address", [LIST, f"{LIST}add/", TURNS])
def test_staff_without_permission_sees_nothing(address, client):
    visitor = staff(client)
    assert visitor.get(address).status_code == 403
    assert "Providers" not in text(visitor.get("/admin/"))


def test_the_sidebar_has_groups_of_what_one_may_see(client):
    page = text(staff(client, "view_turn", "view_apikey").get("/admin/"))
    assert page.index("Gateway") < page.index("Turns") < page.index("Access")
    assert "API keys" in page
    assert "/admin/gateway/provider/" not in page
