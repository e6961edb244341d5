"""A key's requests a minute: on every face together, refused in its own words, changed at once."""

import uuid

import pytest
from asgiref.sync import sync_to_async

from orazaka import minutes
from orazaka.minutes import Away, Minutes
from orazaka.models import ApiKey
from orazaka.runtime import RunSync
from tests.factories import UserFactory, issue
from tests.gateway.serving import Gateway, gateway
from tests.rest import Rest, by_key, problem

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was counted, and no Redis failed."""
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}
    monkeypatch.setattr(minutes, "OWN", Minutes())
    monkeypatch.setattr(minutes, "AWAY", Away())


# --- REST -----------------------------------------------------------------------------------------
def test_rest_refuses_what_is_over_the_limit_and_says_when_to_come_back() -> None:
    caller = by_key(requests_per_minute=3)
    for _ in range(3):
        assert caller.get("keys").status_code == 200
    for _ in range(2):
        response = caller.get("turns")
        body = problem(response, 429)
        assert body["code"] == "rate_limit_exceeded"
        assert "3 requests a minute" in body["detail"]
        assert 50 <= int(response["Retry-After"]) <= 60


def test_what_is_refused_makes_nothing() -> None:
    caller = by_key(requests_per_minute=1)
    caller.get("keys")
    problem(caller.post("keys", {}), 429)
    assert ApiKey.objects.count() == 1


def test_rest_counts_each_key_for_itself() -> None:
    user = UserFactory.create()
    first, second = (by_key(user, requests_per_minute=1) for _ in range(2))
    assert first.get("keys").status_code == 200
    assert second.get("keys").status_code == 200
    problem(first.get("keys"), 429)


def test_keys_without_a_limit_and_people_are_not_counted() -> None:
    for caller in (by_key(), Rest(user=UserFactory.create())):
        assert {caller.get("keys").status_code for _ in range(10)} == {200}
    assert not minutes.OWN._used


# --- /v1 ------------------------------------------------------------------------------------------
async def ask(gate: Gateway, key: str) -> int:
    response = await gate.client.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
    return response.status_code


async def test_v1_refuses_in_openais_envelope(run_sync: RunSync) -> None:
    _, key = await run_sync(lambda: issue(requests_per_minute=2))
    async with gateway(run_sync) as gate:
        assert [await ask(gate, key) for _ in range(2)] == [200, 200]
        response = await gate.client.post(
            "/v1/chat/completions",
            json={"model": "demo:demo", "messages": []},
            headers={"Authorization": f"Bearer {key}"},
        )
    assert response.status_code == 429
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert 50 <= int(response.headers["Retry-After"]) <= 60


async def test_v1_and_rest_count_together(run_sync: RunSync) -> None:
    _, key = await run_sync(lambda: issue(requests_per_minute=2))
    rest = sync_to_async(Rest(key=key).get)
    async with gateway(run_sync) as gate:
        assert await ask(gate, key) == 200
        assert (await rest("keys")).status_code == 200
        assert await ask(gate, key) == 429
        assert (await rest("keys")).status_code == 429


@pytest.mark.parametrize(("rate", "status"), [(7, 200), (None, 200), (2, 429)])
async def test_a_changed_limit_acts_at_once(
    rate: int | None, status: int, run_sync: RunSync
) -> None:
    key, plain = await run_sync(lambda: issue(requests_per_minute=4))
    async with gateway(run_sync) as gate:
        assert [await ask(gate, plain) for _ in range(6)] == [200] * 4 + [429] * 2
        await ApiKey.objects.filter(pk=key.pk).aupdate(requests_per_minute=rate)
        assert [await ask(gate, plain) for _ in range(3)] == [status] * 3
