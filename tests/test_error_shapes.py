"""Errors of every face in its own form: `/v1` in OpenAI's envelope, `/api` as problem details, the
admin as pages."""

from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.test import Client, RequestFactory

from orazaka.faces import forbidden, not_found
from orazaka.models import ApiKey
from orazaka.runtime import RunSync
from tests.factories import issue
from tests.gateway.serving import Gateway, gateway
from tests.rest import Rest, by_key, problem, staff

pytestmark = pytest.mark.django_db
Json = Any
LIMIT = 1000
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def small_bodies(settings) -> None:
    """So that too large is quickly there."""
    settings.ORAZAKA_MAX_BODY_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE = LIMIT


# --- /v1 ------------------------------------------------------------------------------------------
def envelope(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Request-ID"]
    (member,) = response.json()
    error = response.json()["error"]
    assert member == "error"
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["message"] and error["type"] and error["code"]
    return error


async def post(gate: Gateway, content: bytes, **headers: str) -> httpx.Response:
    return await gate.client.post("/v1/chat/completions", content=content, headers=headers)


async def test_errors_of_v1_are_in_openais_envelope(run_sync: RunSync) -> None:
    _, rest_only = await run_sync(lambda: issue(scopes=["rest"]))
    async with gateway(run_sync) as gate:
        envelope(await post(gate, b"no JSON"), 400)
        envelope(await post(gate, b'{"model": "\0"}'), 400)
        envelope(await post(gate, b"[" * 900), 400)
        envelope(await post(gate, b"{}"), 422)
        envelope(await post(gate, b"{}", Authorization="Bearer nonsense"), 401)
        envelope(await post(gate, b"{}", Authorization=f"Bearer {rest_only}"), 403)
        envelope(await post(gate, b'{"model": "x:y", "messages": [{"role": "user"}]}'), 404)
        envelope(await gate.client.get("/v1/nothing"), 404)
        envelope(await gate.client.get("/v1/models/%00"), 404)
        envelope(await gate.client.get("/v1/chat/completions"), 405)
        envelope(await post(gate, b'"' + b"x" * LIMIT + b'"'), 413)


# --- /api -----------------------------------------------------------------------------------------
PATHS = ["keys", "turns", "turns/11111111-1111-1111-1111-111111111111"]


def test_400_of_the_api_is_a_problem() -> None:
    client = by_key().client
    for raw in (b"no JSON", b"[" * 900, b"\xff", b'{"name": "\\u0000"}', b"[]", b"null", b"1"):
        problem(client.post("/api/v1/keys", raw, content_type="application/json"), 400)
    problem(client.get("/api/v1/turns?model=%00"), 400)


@pytest.mark.parametrize("path", PATHS)
def test_401_of_the_api_is_a_problem(path: str) -> None:
    problem(Rest().get(path), 401)
    response = Rest(key="ozk_nonsense").get(path)
    assert "nonsense" not in str(problem(response, 401))


@pytest.mark.parametrize("path", PATHS)
def test_403_of_the_api_is_a_problem(path: str) -> None:
    problem(by_key(scopes=["gateway"]).get(path), 403)


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/api/v2/keys",
        "/api/v1/nothing",
        "/api/v1/keys/",
        "/api/v1/turns/x",
        "/api/v1/turns/11111111-1111-1111-1111-111111111111",
        "/api/%00",
        "/api/%ff%fe",
        "/api/" + "x" * 10_000,
        "/api/../api/v1/x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_404_of_the_api_is_a_problem_for_everyone(path: str, method: str) -> None:
    response = by_key().client.generic(method, path)
    problem(response, 405 if method != "GET" and "11111111" in path else 404)
    if "11111111" not in path:
        problem(Client(enforce_csrf_checks=True).generic(method, path), 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/keys"),
        ("PATCH", "/api/v1/keys/1"),
        ("GET", "/api/v1/keys/1"),
        ("POST", "/api/v1/turns"),
        ("TRACE", "/api/v1/turns"),
        ("XYZZY", "/api/v1/turns"),
        ("POST", "/api/schema"),
        ("POST", "/api/docs"),
    ],
)
def test_405_of_the_api_is_a_problem(method: str, path: str) -> None:
    response = by_key().client.generic(method, path)
    problem(response, 405)
    assert response["Allow"]


def test_413_of_the_api_is_a_problem() -> None:
    body = b'{"name": "' + b"x" * LIMIT + b'"}'
    client = by_key().client
    for length in (str(len(body)), "9" * 5000, ""):
        said: Json = {"CONTENT_LENGTH": length} if length else {}
        response = client.post("/api/v1/keys", body, "application/json", **said)
        assert problem(response, 413)["code"] == "body_too_large"


CHUNKS: Json = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}


def test_a_body_in_chunks_is_a_411_and_makes_nothing() -> None:
    body = {"name": "x", "scopes": ["rest"]}
    response = by_key().client.post("/api/v1/keys", body, "application/json", **CHUNKS)
    assert problem(response, 411)["code"] == "length_required"
    assert ApiKey.objects.count() == 1
    assert "Length Required" in page(Client().post("/admin/login/", {}, **CHUNKS), 411)


def test_415_of_the_api_is_a_problem() -> None:
    problem(by_key().client.post("/api/v1/keys", b"x=1", content_type="text/plain"), 415)


def test_a_foreign_host_is_a_problem_that_does_not_repeat_it() -> None:
    response = Client().get("/api/v1/keys", headers={"Host": "evil.example"})
    assert "evil" not in str(problem(response, 400))


@pytest.mark.parametrize(
    ("handler", "raised", "status"), [(forbidden, PermissionDenied, 403), (not_found, Http404, 404)]
)
def test_what_middleware_refuses_is_a_problem_on_the_api_and_a_page_elsewhere(
    handler: Any, raised: type[Exception], status: int
) -> None:
    asked = RequestFactory().get
    response = handler(asked("/api/v1/keys"), raised("secret"))
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert b"secret" not in response.content
    response = handler(asked("/admin/"), raised("secret"))
    assert (response.status_code, response["Content-Type"]) == (status, "text/html; charset=utf-8")


class Broken:
    """Middleware that fails before any view."""

    def __init__(self, get_response: object) -> None:
        pass

    def __call__(self, request: HttpRequest) -> None:
        raise ZeroDivisionError("secret detail")


def test_500_of_the_api_is_a_problem_that_says_nothing_of_the_fault(settings) -> None:
    settings.MIDDLEWARE = [settings.MIDDLEWARE[0], "tests.test_error_shapes.Broken"]
    response = Client(raise_request_exception=False).get("/api/v1/keys")
    assert "secret" not in str(problem(response, 500))


# --- The admin ------------------------------------------------------------------------------------
def page(response: Any, status: int) -> str:
    assert response.status_code == status, response.content
    assert response["Content-Type"].startswith("text/html")
    assert response["X-Request-ID"]
    text: str = response.content.decode()
    assert "<h1" in text
    return text


def person(*permissions: str) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(staff(*permissions))
    return client


def test_errors_of_the_admin_are_pages() -> None:
    page(person().get("/admin/", headers={"Host": "evil.example"}), 400)
    page(person().get("/admin/auth/user/"), 403)
    page(person().get("/admin/nothing/"), 404)
    assert person().get("/admin/logout/").status_code == 405
    form = {"username": "x" * LIMIT, "password": "x"}
    assert "Content Too Large" in page(
        Client().post("/admin/login/", urlencode(form), content_type=FORM), 413
    )


def test_nobody_is_sent_to_the_login_page() -> None:
    response = Client().get("/admin/auth/user/")
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")


def test_a_form_without_its_csrf_token_is_a_page() -> None:
    strict = Client(enforce_csrf_checks=True)
    page(strict.post("/admin/login/", {"username": "x"}), 403)


def test_500_of_the_admin_is_a_page_that_says_nothing_of_the_fault(settings) -> None:
    settings.MIDDLEWARE = [settings.MIDDLEWARE[0], "tests.test_error_shapes.Broken"]
    response = Client(raise_request_exception=False).get("/admin/")
    assert "secret" not in page(response, 500)
