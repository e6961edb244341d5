"""What is refused on `/v1` before anything is sent anywhere, and how it is said."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orazaka.models import ApiKey
from tests.factories import issue
from tests.gateway.serving import gateway
from tests.wires.strict import StrictProvider

pytestmark = pytest.mark.django_db

Json = Any
SECRET = "tok-4f1c9b7e-never-to-be-seen"
GOOD = {"model": "openai:strict-1", "messages": [{"role": "user", "content": "SAY hi"}]}


@pytest.fixture(autouse=True)
def provider(settings) -> Iterator[StrictProvider]:
    with StrictProvider() as provider:
        settings.OPENAI_API_KEY = "sk-upstream"
        settings.OPENAI_BASE_URL = provider.url + "/v1"
        yield provider


def deep(levels: int) -> str:
    return '{"model": "openai:strict-1", "messages": ' + "[" * levels + "]" * levels + "}"


def server(**more: Json) -> Json:
    return {"mcp_servers": [{"name": "s", "url": "http://127.0.0.1:9/mcp", **more}]}


RAW: list[tuple[str, bytes, int]] = [
    ("nothing", b"", 400),
    ("no JSON", b"hello", 400),
    ("half", b'{"model": "openai:strict-1"', 400),
    ("a list", b"[]", 400),
    ("a text", b'"hello"', 400),
    ("null", b"null", 400),
    ("not UTF-8", b'{"model": "\xff\xfe"}', 400),
    ("half a surrogate pair", b'{"model": "\\ud800"}', 400),
    ("NaN", b'{"model": NaN}', 400),
    ("a comment", b'{"model": 1} // x', 400),
    ("200 levels", deep(200).encode(), 400),
    ("100 000 levels", deep(100_000).encode(), 400),
    ("a member twice", b'{"model": "openai:strict-1", "model": "x", "messages": []}', 400),
    (
        "a member twice, deep down",
        b'{"model": "openai:strict-1", "messages": [{"role": "user", "role": "system"}]}',
        400,
    ),
    ("21 MB", b'{"model": "' + b"x" * 21 * 2**20 + b'"}', 413),
]

FIELDS: list[tuple[Json, int, str | None]] = [
    ({"model": None}, 422, "model"),
    ({"model": 5}, 422, "model"),
    ({"model": ""}, 422, "model"),
    ({"model": "strict-1"}, 404, "model"),
    ({"model": "nobody:strict-1"}, 404, "model"),
    ({"model": "openai:"}, 404, "model"),
    ({"model": "\0"}, 404, "model"),
    ({"messages": None}, 422, "messages"),
    ({"messages": []}, 422, "messages"),
    ({"messages": "hi"}, 422, "messages"),
    ({"messages": ["hi"]}, 422, "messages[0]"),
    ({"messages": [{}]}, 422, "messages[0].role"),
    ({"messages": [{"role": 1}]}, 422, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, 422, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, 422, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, 422, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, 422, "messages[0].tool_calls"),
    ({"stream": "yes"}, 422, "stream"),
    ({"stream": 1}, 422, "stream"),
    ({"stream_options": "x", "stream": True}, 422, "stream_options"),
    ({"response_format": "json"}, 422, "response_format"),
    ({"n": "2"}, 422, "n"),
    ({"n": True}, 422, "n"),
    ({"tool_choice": 1}, 422, "tool_choice"),
    ({"tools": None}, 422, "tools"),
    ({"tools": {}}, 422, "tools"),
    ({"tools": [1]}, 422, "tools[0]"),
    ({"tools": [{"type": "function", "function": 1}]}, 422, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": 1}}]}, 422, "tools[0].function.name"),
    ({"tools": [{"type": "otari_web_search"}]}, 400, "tools[0].type"),
    ({"tools": [{"type": "otari_code_execution"}], **server()}, 400, "tools[0].type"),
    ({"mcp_servers": {}}, 422, "mcp_servers"),
    ({"mcp_servers": [1]}, 422, "mcp_servers[0]"),
    ({"mcp_servers": [{}]}, 422, "mcp_servers[0].name"),
    ({"mcp_servers": [{"name": "", "url": "http://x"}]}, 422, "mcp_servers[0].name"),
    ({"mcp_servers": [{"name": "x" * 129, "url": "http://x"}]}, 422, "mcp_servers[0].name"),
    ({"mcp_servers": [{"name": "x"}]}, 422, "mcp_servers[0].url"),
    ({"mcp_servers": [{"name": "x", "url": "u" * 2049}]}, 422, "mcp_servers[0].url"),
    (server(purpose_hint="x" * 2001), 422, "mcp_servers[0].purpose_hint"),
    (server(allowed_tools="x"), 422, "mcp_servers[0].allowed_tools"),
    (server(allowed_tools=[1]), 422, "mcp_servers[0].allowed_tools[0]"),
    (server(authorization_token=5), 422, "mcp_servers[0].authorization_token"),
    ({"mcp_servers": server()["mcp_servers"] * 51}, 422, "mcp_servers"),
    ({"mcp_servers": server()["mcp_servers"] * 2}, 400, "mcp_servers[1].name"),
    ({"mcp_server_ids": "x"}, 422, "mcp_server_ids"),
    ({"mcp_server_ids": ["x"]}, 422, "mcp_server_ids[0]"),
    ({"mcp_server_ids": ["11111111-1111-1111-1111-111111111111"]}, 400, "mcp_server_ids"),
    ({"max_tool_iterations": 0}, 422, "max_tool_iterations"),
    ({"max_tool_iterations": 26}, 422, "max_tool_iterations"),
    ({"max_tool_iterations": "5"}, 422, "max_tool_iterations"),
    ({"max_tool_iterations": True}, 422, "max_tool_iterations"),
    ({"max_tool_iterations": 5.5}, 422, "max_tool_iterations"),
    ({"tools_header": "x" * 4001}, 422, "tools_header"),
    ({"orazaka_tools": "some"}, 422, "orazaka_tools"),
    ({"orazaka_tools": ["nothing"]}, 400, "orazaka_tools"),
    ({"orazaka_servers": ["x"]}, 422, "orazaka_servers[0]"),
    ({"orazaka_servers": ["11111111-1111-1111-1111-111111111111"]}, 400, "orazaka_servers"),
    ({"orazaka_commit": "now"}, 422, "orazaka_commit"),
    ({"orazaka_trace": "yes"}, 422, "orazaka_trace"),
]

# The whole table of spellings is tests/orazaka/test_urlsafety.py; these show that the guard stands
# here, and how it speaks.
URLS = [
    "ftp://127.0.0.1/mcp",
    "file:///etc/passwd",
    "http://",
    "http://[bad/",
    "http://user:pass@127.0.0.1/mcp",
    "http://169.254.169.254/latest/meta-data",
    "http://2852039166/",
    "http://10.0.0.1/mcp",
    "http://[::ffff:10.0.0.1]/mcp",
    "http://0.0.0.0/mcp",
    "http://no-such-name.invalid/mcp",
    "http://127.0.0.1:99999/mcp",
    "http://a b/",
]


def checked(response: Any, status: int) -> Json:
    """The error, in OpenAI's envelope, with nothing of a secret in it."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    assert error["type"] in ("invalid_request_error", "authentication_error", "permission_error")
    assert SECRET not in response.text
    assert response.headers["X-Request-ID"]
    return error


async def test_bodies_that_cannot_be_read_are_refused_in_openais_envelope(run_sync, provider):
    async with gateway(run_sync) as gate:
        for name, raw, status in RAW:
            response = await gate.client.post("/v1/chat/completions", content=raw)
            checked(response, status), name
        assert provider.requests == []


async def test_members_of_the_wrong_shape_are_named_by_their_path(run_sync, provider):
    async with gateway(run_sync) as gate:
        for more, status, param in FIELDS:
            error = checked(await gate.chat(**{**GOOD, **more}), status)
            assert error["param"] == param, more
        assert provider.requests == []


async def test_a_token_beside_a_bad_field_is_not_repeated(run_sync, provider):
    async with gateway(run_sync) as gate:
        bad = [
            server(authorization_token=SECRET),  # http with a token
            server(authorization_token=SECRET, allowed_tools=5),
            server(authorization_token={"value": SECRET}),
            server(authorization_token=[SECRET]),
            {"mcp_servers": [{"name": SECRET * 10, "url": "http://127.0.0.1:9/"}]},
            {"mcp_servers": [{"name": "s", "url": f"http://u:{SECRET}@127.0.0.1/"}]},
            {"mcp_servers": [{"name": "s", "url": f"gopher://127.0.0.1/{SECRET}"}]},
            {"mcp_server_ids": [SECRET]},
            {"model": SECRET},
        ]
        for more in bad:
            response = await gate.chat(**{**GOOD, **more})
            checked(response, response.status_code)
            assert 400 <= response.status_code < 500
        assert provider.requests == []


async def test_urls_that_lead_where_they_must_not_are_400_and_name_the_server(run_sync, provider):
    async with gateway(run_sync) as gate:
        for url in URLS:
            servers = [{"name": "shop", "url": url}]
            error = checked(await gate.chat(**GOOD, mcp_servers=servers), 400)
            assert error["param"] == "mcp_servers[0].url", url
            assert "shop" in error["message"]
            assert "10.0.0.1" not in error["message"]
        assert provider.requests == []


async def test_loopback_can_be_closed(run_sync, settings):
    settings.OTARI_MCP_ALLOW_LOOPBACK = False
    async with gateway(run_sync) as gate:
        for url in (
            "http://127.0.0.1:9/",
            "http://localhost:9/",
            "http://[::1]:9/",
            "http://0x7f.1:9/",
        ):
            checked(await gate.chat(**GOOD, mcp_servers=[{"name": "s", "url": url}]), 400)


async def test_empty_lists_and_nulls_of_ours_count_as_absent(run_sync, provider):
    async with gateway(run_sync) as gate:
        empty: Json = {
            "mcp_servers": [],
            "mcp_server_ids": [],
            "max_tool_iterations": None,
            "orazaka_tools": None,
            "tools_header": None,
        }
        response = await gate.chat(**GOOD, **empty)
        assert response.status_code == 200
        assert set(provider.bodies[0]) == {"model", "messages"}


async def test_keys_are_taken_from_three_headers_and_the_first_decides(run_sync):
    async with gateway(run_sync) as gate:
        del gate.client.headers["Authorization"]

        async def ask(**headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await gate.client.get("/v1/models", headers=named)).status_code

        bearer = f"Bearer {gate.key}"
        assert await ask(Authorization=bearer) == 200
        assert await ask(authorization=f"bearer {gate.key}") == 200
        assert await ask(x_api_key=gate.key) == 200
        assert await ask(Otari_Key=gate.key, Authorization="Bearer wrong") == 200
        assert await ask(Otari_Key="wrong", Authorization=bearer) == 401
        assert await ask(Authorization="Bearer wrong", x_api_key=gate.key) == 401
        response = await gate.client.get("/v1/models")
        checked(response, 401)
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_a_key_that_is_revoked_or_lacks_the_scope_is_refused_at_once(run_sync):
    async with gateway(run_sync) as gate:
        assert (await gate.client.get("/v1/models")).status_code == 200
        await run_sync(lambda: ApiKey.objects.all().revoke())
        checked(await gate.client.get("/v1/models"), 401)
        _, rest = await run_sync(lambda: issue(scopes=["rest"]))
        response = await gate.client.get("/v1/models", headers={"Authorization": f"Bearer {rest}"})
        assert checked(response, 403)["code"] == "missing_scope"


async def test_a_key_limited_to_models_may_use_only_those(run_sync, provider):
    async with gateway(run_sync) as gate:
        _, key = await run_sync(lambda: issue(allowed_models=["demo:demo"]))
        headers = {"Authorization": f"Bearer {key}"}
        listed = (await gate.client.get("/v1/models", headers=headers)).json()
        assert [model["id"] for model in listed["data"]] == ["demo:demo"]
        response = await gate.client.post("/v1/chat/completions", json=GOOD, headers=headers)
        assert checked(response, 403)["code"] == "model_not_allowed"
        assert provider.bodies == []


async def test_models_are_listed_with_their_provider(run_sync):
    async with gateway(run_sync) as gate:
        listed = (await gate.client.get("/v1/models")).json()
        assert [m["id"] for m in listed["data"]] == ["demo:demo", "openai:strict-1"]
        one = await gate.client.get("/v1/models/openai:strict-1")
        assert one.json()["owned_by"] == "openai"
        checked(await gate.client.get("/v1/models/openai:other"), 404)


async def test_other_methods_and_paths_are_answered_in_the_envelope(run_sync):
    async with gateway(run_sync) as gate:
        wrong = await gate.client.get("/v1/chat/completions")
        checked(wrong, 405)
        assert wrong.headers["Allow"] == "POST"
        checked(await gate.client.delete("/v1/models"), 405)
        checked(await gate.client.get("/v1/nothing"), 404)


@pytest.mark.parametrize(
    ("upstream", "status", "code"),
    [
        (400, 400, "upstream_refused"),
        (401, 502, "upstream_error"),
        (402, 502, "upstream_error"),
        (403, 502, "upstream_error"),
        (404, 404, "upstream_refused"),
        (422, 400, "upstream_refused"),
        (429, 429, "rate_limit_exceeded"),
        (500, 502, "upstream_error"),
        (503, 502, "upstream_error"),
    ],
)
async def test_a_providers_refusal_is_told_by_its_kind(run_sync, upstream, status, code):
    async with gateway(run_sync) as gate:
        for stream in (False, True):
            messages = [{"role": "user", "content": f"STATUS {upstream} 7"}]
            response = await gate.chat(messages=messages, stream=stream)
            assert response.status_code == status
            assert response.json()["error"]["code"] == code
            assert "sk-upstream" not in response.text
            if upstream == 429:
                assert response.headers["Retry-After"] == "7"


async def test_the_demo_model_calls_tools_offline(run_sync, settings):
    settings.OPENAI_API_KEY = ""
    async with gateway(run_sync) as gate:
        response = await gate.chat(model="demo:demo", messages=[{"role": "user", "content": "hi"}])
        assert response.json()["choices"][0]["message"]["content"].startswith("I am the demo model")
        assert json.loads(response.text)["usage"]["total_tokens"] > 0
