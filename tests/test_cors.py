"""Pages of other origins: which may call `/v1` and `/api`, and what they may read."""

from typing import Any

import pytest
from django.test import Client

from orazaka.cors import origins_are_sound
from orazaka.runtime import RunSync
from tests.gateway.serving import gateway
from tests.rest import Rest, by_key, staff

pytestmark = pytest.mark.django_db
PAGE = "https://app.example.com"
ASKS = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, x-stainless-lang",
}


@pytest.fixture(autouse=True)
def allowed(settings) -> None:
    settings.ORAZAKA_CORS_ORIGINS = [PAGE, "http://localhost:3000"]


def cors_of(response: Any) -> dict[str, str]:
    names = [name for name in response.headers if name.lower().startswith("access-control-")]
    return {name.lower().removeprefix("access-control-"): response.headers[name] for name in names}


def is_preflight(response: Any) -> None:
    """Whether the browser may send what it asked about."""
    assert response.status_code == 204
    found = cors_of(response)
    assert found["allow-origin"] == PAGE
    assert {"GET", "POST", "DELETE"} <= set(found["allow-methods"].split(", "))
    assert found["allow-headers"] == ASKS["Access-Control-Request-Headers"]
    assert found["max-age"] == "600"
    assert "allow-credentials" not in found
    assert "Origin" in response.headers["Vary"]


# --- /v1 ------------------------------------------------------------------------------------------
async def test_v1_answers_a_preflight_without_a_key(run_sync: RunSync) -> None:
    async with gateway(run_sync) as gate:
        del gate.client.headers["Authorization"]
        response = await gate.client.options("/v1/chat/completions", headers=ASKS)
    is_preflight(response)
    assert response.content == b""
    assert response.headers["X-Request-ID"]


async def test_v1_shows_answers_and_our_headers_to_the_page(run_sync: RunSync) -> None:
    body = {"model": "demo:demo", "messages": [{"role": "user", "content": "hi"}]}
    async with gateway(run_sync) as gate:
        for stream in (False, True):
            response = await gate.client.post(
                "/v1/chat/completions", json={**body, "stream": stream}, headers={"Origin": PAGE}
            )
            assert response.status_code == 200
            found = cors_of(response)
            assert found["allow-origin"] == PAGE
            shown = set(found["expose-headers"].split(", "))
            assert {"X-Request-ID", "X-Orazaka-Turn"} <= shown
            assert ("X-Orazaka-Rounds" in shown) is not stream


async def test_v1_shows_errors_too(run_sync: RunSync) -> None:
    async with gateway(run_sync) as gate:
        for path, status in (("/v1/models/none", 404), ("/v1/nothing", 404), ("/v1/models", 401)):
            headers = {"Origin": PAGE} | (
                {"x-api-key": "", "Otari-Key": "x"} if status == 401 else {}
            )
            response = await gate.client.get(path, headers=headers)
            assert response.status_code == status
            assert cors_of(response)["allow-origin"] == PAGE


async def test_v1_allows_nothing_to_other_origins(run_sync: RunSync) -> None:
    async with gateway(run_sync) as gate:
        for origin in ("https://evil.example", "null", PAGE + ".evil.example", PAGE.upper(), ""):
            headers = {**ASKS, "Origin": origin}
            assert cors_of(await gate.client.options("/v1/models", headers=headers)) == {}
            response = await gate.client.get("/v1/models", headers=headers)
            assert response.status_code == 200
            assert cors_of(response) == {}
            assert response.headers["Vary"] == "Origin"


async def test_without_origins_nothing_is_different(run_sync: RunSync, settings) -> None:
    settings.ORAZAKA_CORS_ORIGINS = []
    async with gateway(run_sync) as gate:
        preflight = await gate.client.options("/v1/models", headers=ASKS)
        response = await gate.client.get("/v1/models", headers={"Origin": PAGE})
    assert preflight.status_code == 405
    assert cors_of(preflight) == cors_of(response) == {}
    assert "Vary" not in response.headers


# --- /api -----------------------------------------------------------------------------------------
def test_rest_answers_a_preflight_without_a_key() -> None:
    is_preflight(Client().options("/api/v1/keys", headers=ASKS))


def test_rest_shows_answers_and_errors_to_the_page() -> None:
    for caller, status in ((by_key(), 200), (Rest(), 401)):
        response = caller.client.get("/api/v1/keys", headers={"Origin": PAGE})
        assert response.status_code == status
        assert cors_of(response) == {"allow-origin": PAGE, "expose-headers": "X-Request-ID"}


def test_rest_allows_nothing_to_other_origins() -> None:
    headers = {**ASKS, "Origin": "https://evil.example"}
    for client in (Client(), by_key().client):
        assert cors_of(client.options("/api/v1/keys", headers=headers)) == {}


def test_an_options_request_that_is_no_preflight_is_an_ordinary_one() -> None:
    assert Client().options("/api/v1/keys", headers={"Origin": PAGE}).status_code == 401


def test_a_star_is_any_page(settings) -> None:
    settings.ORAZAKA_CORS_ORIGINS = ["*"]
    response = by_key().client.get("/api/v1/keys", headers={"Origin": "https://any.example"})
    assert cors_of(response)["allow-origin"] == "https://any.example"


def test_the_admin_is_for_no_page() -> None:
    client = Client()
    client.force_login(staff())
    for response in (
        client.get("/admin/", headers={"Origin": PAGE}),
        client.options("/admin/login/", headers=ASKS),
    ):
        assert cors_of(response) == {}


@pytest.mark.parametrize("names", ["", "a\tb", "x" * 3000, "é", "a;b"])
def test_odd_names_of_headers_are_not_repeated(names: str) -> None:
    headers = {**ASKS, "Access-Control-Request-Headers": names}
    response = Client().options("/api/v1/keys", headers=headers)
    assert response.status_code == 204
    assert "allow-headers" not in cors_of(response)


# --- Settings -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://app.example.com",
        "https://app.example.com:8443",
        "http://localhost:3000",
        "http://127.0.0.1",
        "http://[::1]:3000",
        "https://xn--bcher-kva.example",
    ],
)
def test_an_origin_as_browsers_send_it_is_sound(origin: str, settings) -> None:
    settings.ORAZAKA_CORS_ORIGINS = [origin]
    assert list(origins_are_sound()) == []


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "app.example.com",
        "https://app.example.com/",
        "https://app.example.com/path",
        "https://app.example.com?x",
        "https://app.example.com:443",
        "http://app.example.com:80",
        "https://APP.example.com",
        "HTTPS://app.example.com",
        "https://user@app.example.com",
        "https://*.example.com",
        "https://bücher.example",
        "https://app.example.com:99999",
        "https://[broken",
        "https://",
        "ftp://app.example.com",
        "null",
        "https://a b.example",
    ],
)
def test_an_origin_that_no_browser_sends_is_an_error(origin: str, settings) -> None:
    settings.ORAZAKA_CORS_ORIGINS = [PAGE, origin]
    (error,) = origins_are_sound()
    assert error.id == "orazaka.E010"
    assert error.hint
