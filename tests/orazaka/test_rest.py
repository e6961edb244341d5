"""`/api/v1/keys`: one's own keys, shown once, and no key grants more than it has."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from orazaka.models import ApiKey, ApiKeyUse, digest_of
from tests.factories import UserFactory, issue
from tests.rest import Rest, by_key, problem, staff

pytestmark = pytest.mark.django_db
Json = Any
TOMORROW = timezone.now() + timedelta(days=1)
MEMBERS = {
    "id",
    "name",
    "hint",
    "scopes",
    "allowedModels",
    "requestsPerMinute",
    "expiresAt",
    "createdAt",
    "lastUsedAt",
    "revoked",
}


# --- Listing --------------------------------------------------------------------------------------
def test_the_owner_sees_all_keys_the_newest_first() -> None:
    user = UserFactory.create()
    old, _ = issue(user, name="old")
    ApiKey.objects.filter(pk=old.pk).revoke()
    new, plain = issue(user, name="new", allowed_models=["demo:*"], requests_per_minute=900)
    listed = Rest(key=plain).get("keys").json()
    assert [(key["id"], key["name"]) for key in listed] == [(new.pk, "new"), (old.pk, "old")]
    assert all(set(key) == MEMBERS for key in listed)
    first, second = listed
    assert first["hint"] == plain[:10]
    assert first["scopes"] == ["gateway", "rest"]
    assert (first["allowedModels"], first["requestsPerMinute"]) == (["demo:*"], 900)
    assert (first["expiresAt"], first["revoked"], second["revoked"]) == (None, False, True)
    assert first["lastUsedAt"] and second["lastUsedAt"] is None


def test_a_listing_holds_neither_keys_nor_digests() -> None:
    key, plain = issue()
    text = Rest(key=plain).get("keys").content.decode()
    assert plain not in text
    assert key.digest not in text


@pytest.mark.parametrize("permissions", [[], ["view_apikey", "change_apikey", "delete_apikey"]])
def test_nobody_sees_someone_elses_keys_not_even_staff(permissions: list[str]) -> None:
    issue(name="theirs")
    for caller in (by_key(staff(*permissions), name="mine"), Rest(user=staff(*permissions))):
        assert "theirs" not in str(caller.get("keys").json())


def test_a_listing_takes_the_same_queries_for_many_keys(django_assert_num_queries) -> None:
    user = UserFactory.create()
    for _ in range(5):
        issue(user)
    ApiKeyUse.objects.create(key=ApiKey.objects.filter(user=user)[0], last_used_at=timezone.now())
    caller = Rest(user=user)
    with django_assert_num_queries(3):  # session, user, keys
        assert len(caller.get("keys").json()) == 5


@pytest.mark.parametrize("ask", ["get", "post", "delete"])
def test_without_a_key_it_is_a_401_that_says_how_to_send_one(ask: str) -> None:
    nobody = Rest()
    response = {
        "get": lambda: nobody.get("keys"),
        "post": lambda: nobody.post("keys", {}),
        "delete": lambda: nobody.delete("keys/1"),
    }[ask]()
    problem(response, 401)
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_key_without_the_scope_is_a_403() -> None:
    problem(by_key(scopes=["gateway"]).get("keys"), 403)


# --- Making ---------------------------------------------------------------------------------------
def test_a_made_key_is_shown_once_and_works() -> None:
    user = UserFactory.create()
    wish = {
        "name": "laptop",
        "scopes": ["rest", "rest"],
        "allowedModels": ["openai:gpt-5"],
        "requestsPerMinute": 60,
        "expiresAt": TOMORROW.isoformat(),
    }
    response = Rest(user=user).post("keys", wish)
    assert response.status_code == 201
    made = response.json()
    assert set(made) == MEMBERS | {"key"}
    row = ApiKey.objects.get(pk=made["id"])
    assert (row.user, row.digest) == (user, digest_of(made["key"]))
    assert (made["name"], made["scopes"], made["allowedModels"]) == (
        "laptop",
        ["rest"],
        ["openai:gpt-5"],
    )
    assert (row.requests_per_minute, row.expires_at) == (60, TOMORROW)
    listed = Rest(key=made["key"]).get("keys").json()
    assert "key" not in listed[0]


def test_a_person_who_says_nothing_gets_a_key_without_limits() -> None:
    made = Rest(user=UserFactory.create()).post("keys", {}).json()
    assert made["scopes"] == ["gateway", "rest"]
    assert made["allowedModels"] is made["requestsPerMinute"] is made["expiresAt"] is None


def test_a_session_without_its_csrf_token_makes_no_key() -> None:
    body = problem(Rest(user=UserFactory.create(), csrf=True).post("keys", {}), 403)
    assert "CSRF" in body["detail"]
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        ({"name": "x" * 101}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": None}, "name"),
        ({"name": {}}, "name"),
        ({"name": 5}, "name"),
        ({"allowedModels": [5]}, "allowedModels[0]"),
        ({"requestsPerMinute": "60"}, "requestsPerMinute"),
        ({"requestsPerMinute": [60]}, "requestsPerMinute"),
        ({"scopes": []}, "scopes"),
        ({"scopes": "rest"}, "scopes"),
        ({"scopes": None}, "scopes"),
        ({"scopes": ["admin"]}, "scopes[0]"),
        ({"scopes": ["rest", {}]}, "scopes[1]"),
        ({"allowedModels": "demo:*"}, "allowedModels"),
        ({"allowedModels": ["demo:*", ""]}, "allowedModels[1]"),
        ({"allowedModels": ["x" * 256]}, "allowedModels[0]"),
        ({"allowedModels": ["\0"]}, "allowedModels[0]"),
        ({"allowedModels": ["m"] * 1001}, "allowedModels"),
        ({"requestsPerMinute": 0}, "requestsPerMinute"),
        ({"requestsPerMinute": -1}, "requestsPerMinute"),
        ({"requestsPerMinute": 1.5}, "requestsPerMinute"),
        ({"requestsPerMinute": 2**31}, "requestsPerMinute"),
        ({"requestsPerMinute": 10**30}, "requestsPerMinute"),
        ({"requestsPerMinute": True}, "requestsPerMinute"),
        ({"expiresAt": "tomorrow"}, "expiresAt"),
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "0001-01-01T00:00:00+14:00"}, "expiresAt"),
        ({"expiresAt": "9999-12-31T23:59:59-14:00"}, "expiresAt"),
        ({"expiresAt": 5}, "expiresAt"),
    ],
)
def test_a_wish_that_makes_no_sense_is_a_400_that_names_the_member(wish: Json, path: str) -> None:
    body = problem(Rest(user=UserFactory.create()).post("keys", wish), 400)
    assert [error["path"] for error in body["errors"]] == [path]
    assert not ApiKey.objects.exists()


# --- A key that makes keys ------------------------------------------------------------------------
LIMITS: Json = {
    "scopes": ["rest"],
    "allowed_models": ["demo:*", "openai:gpt-5"],
    "requests_per_minute": 100,
    "expires_at": TOMORROW,
}


def test_what_a_wish_leaves_out_is_as_in_the_key_that_makes_it() -> None:
    made = by_key(**LIMITS).post("keys", {}).json()
    row = ApiKey.objects.get(pk=made["id"])
    assert {name: getattr(row, name) for name in LIMITS} == LIMITS


@pytest.mark.parametrize(
    "wish",
    [
        {"scopes": ["rest"]},
        {"allowedModels": []},
        {"allowedModels": ["openai:gpt-5", "demo:demo", "demo:*"]},
        {"requestsPerMinute": 100},
        {"requestsPerMinute": 1},
        {"expiresAt": TOMORROW.isoformat()},
        {"expiresAt": (TOMORROW - timedelta(hours=1)).isoformat()},
        {"name": "anything"},
    ],
)
def test_a_key_may_grant_what_it_has_or_less(wish: Json) -> None:
    assert by_key(**LIMITS).post("keys", wish).status_code == 201


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        ({"scopes": ["gateway"]}, "scopes"),
        ({"scopes": ["rest", "gateway"]}, "scopes"),
        ({"allowedModels": None}, "allowedModels"),
        ({"allowedModels": ["openai:gpt-4"]}, "allowedModels"),
        ({"allowedModels": ["openai:*"]}, "allowedModels"),
        ({"allowedModels": ["demo:demo", "other:demo"]}, "allowedModels"),
        ({"requestsPerMinute": None}, "requestsPerMinute"),
        ({"requestsPerMinute": 101}, "requestsPerMinute"),
        ({"expiresAt": None}, "expiresAt"),
        ({"expiresAt": (TOMORROW + timedelta(seconds=1)).isoformat()}, "expiresAt"),
    ],
)
def test_a_key_cant_grant_more_than_it_has(wish: Json, path: str) -> None:
    caller = by_key(**LIMITS)
    body = problem(caller.post("keys", wish), 403)
    assert body["code"] == "exceeds_key"
    assert [error["path"] for error in body["errors"]] == [path]
    assert ApiKey.objects.count() == 1


# --- Revoking -------------------------------------------------------------------------------------
def test_the_owner_revokes_a_key_for_good() -> None:
    user = UserFactory.create()
    key, plain = issue(user)
    caller = by_key(user)
    for _ in range(2):
        response = caller.delete(f"keys/{key.pk}")
        assert (response.status_code, response.content) == (204, b"")
    problem(Rest(key=plain).get("keys"), 401)


def test_a_key_may_revoke_itself() -> None:
    key, plain = issue()
    assert Rest(key=plain).delete(f"keys/{key.pk}").status_code == 204
    problem(Rest(key=plain).get("keys"), 401)


@pytest.mark.parametrize("permissions", [[], ["view_apikey", "change_apikey", "delete_apikey"]])
def test_someone_elses_key_is_a_404_and_stays(permissions: list[str]) -> None:
    key, _ = issue()
    for caller in (by_key(staff(*permissions)), Rest(user=staff(*permissions))):
        problem(caller.delete(f"keys/{key.pk}"), 404)
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None


@pytest.mark.parametrize(
    "id", ["0", "4711", "9" * 18, "9" * 19, "9" * 5000, "-1", "x", "1.0", "%00"]
)
def test_a_key_that_is_not_there_is_a_404(id: str) -> None:
    problem(by_key().delete(f"keys/{id}"), 404)
