"""Sessions: shared, separate by credential, begun anew when lost, bounded, and gone when idle."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web

from mcp_servers.client import BadCredentials, Endpoint
from mcp_servers.faults import ServerUnreachable
from mcp_servers.sessions import TooManySessions
from tests.mcp_servers.scripted import (
    Asked,
    Scripted,
    close,
    hang,
    in_turn,
    status,
    text_result,
    usual,
)
from tests.mcp_servers.using import call, first, names, until, using
from tools.base import ToolError


async def test_200_calls_at_once_open_one_session():
    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint()
        results = await first(*(call(servers, endpoint, n=n) for n in range(200)))
        assert [result.text for result in results] == [f'{{"n": {n}}}' for n in range(200)]
        assert server.counts["initialize"] == 1
        assert (servers.pool.opened, servers.pool.kept, servers.pool.alive) == (1, 1, 1)
        assert servers.pool.busy == 0


async def test_each_credential_and_principal_has_its_own_session():
    async def whoami(asked: Asked) -> Any:
        return asked.json(text_result(asked.request.headers["Authorization"]))

    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = whoami
        for principal, token in [("ann", "a"), ("bob", "b"), ("ann", "a"), ("ann", "new")]:
            endpoint = server.endpoint(principal=principal, secret=token)
            assert (await call(servers, endpoint)).text == f"Bearer {token}"
        assert server.counts["initialize"] == 3


@pytest.mark.parametrize("secret", ["tok", "Bearer tok", "bearer  tok", " BEARER tok\n"])
async def test_a_pasted_scheme_is_not_sent_twice(secret: str):
    async with Scripted(token="tok") as server, using() as servers:
        assert await names(servers, server.endpoint(secret=secret)) == ["echo"]


async def test_headers_of_the_servers_own_kind_are_sent():
    async with Scripted() as server, using() as servers:
        await names(servers, server.endpoint(headers={"X-Api-Key": "k"}))
        assert {headers["X-Api-Key"] for headers in server.headers} == {"k"}
        assert not any("Authorization" in headers for headers in server.headers)


@pytest.mark.parametrize(
    "fields",
    [
        {"secret": "a\r\nHost: evil"},
        {"secret": "tök"},
        {"secret": "a\0b"},
        {"headers": {"X-Key": "a\nb"}},
        {"headers": {"Host": "other"}},
        {"headers": {"Mcp-Session-Id": "stolen"}},
    ],
    ids=str,
)
def test_credentials_that_cannot_be_sent_are_refused_without_repeating_them(fields: Any):
    with pytest.raises(BadCredentials) as raised:
        Endpoint(label="shop", url="https://a/", principal="ann", **fields)
    assert "shop" in raised.value.message
    assert not any(value in raised.value.message for value in ("evil", "tök", "other", "stolen"))
    assert raised.value.status == 400


def test_a_key_holds_a_digest_and_not_the_secret():
    endpoint = Endpoint(label="a", url="https://a/", principal="ann", secret="tok")
    url, principal, digest = endpoint.key
    assert (url, principal) == ("https://a/", "ann")
    assert len(digest) == 64
    assert "tok" not in repr(endpoint)
    other = Endpoint(label="b", url="https://a/", principal="ann", secret="tok", hint="x")
    assert other.key == endpoint.key


def lost(code: int, http: int, message: str) -> Any:
    async def answer(asked: Asked) -> Any:
        return asked.error(code, message, status=http)

    return answer


async def nameless(asked: Asked) -> Any:
    """As server-everything says it: an error without an id."""
    answer = {"jsonrpc": "2.0", "error": {"code": -32000, "message": "No valid session ID"}}
    return web.json_response(answer, status=400)


GONE = [
    nameless,
    lost(-32600, 404, "Session not found"),
    lost(-32001, 404, "Session not found"),
    lost(-32000, 400, "Bad Request: No valid session ID provided"),
    status(404),
    status(400, "no session"),
]


@pytest.mark.parametrize(
    "gone", GONE, ids=["no id", "404", "404 -32001", "400", "bare 404", "bare 400"]
)
async def test_a_lost_session_is_begun_anew_once_and_the_call_sent_once(gone: Any):
    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint()
        await call(servers, endpoint)
        server.on["tools/call"] = in_turn(gone, usual)
        assert (await call(servers, endpoint, n=1)).text == '{"n": 1}'
        assert server.counts["initialize"] == 2
        assert len(server.calls) == 2
        assert servers.pool.kept == 1


@pytest.mark.parametrize(
    "gone", GONE, ids=["no id", "404", "404 -32001", "400", "bare 404", "bare 400"]
)
async def test_a_session_that_is_lost_again_is_an_error(gone: Any):
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = gone
        with pytest.raises(ToolError, match="it does not know our session any more") as raised:
            await call(servers, server.endpoint())
        assert "unknown" not in str(raised.value)
        assert server.counts["tools/call"] == 2


async def test_many_calls_that_lose_their_session_share_the_new_one():
    async def dead_id(asked: Asked) -> Any:
        if asked.request.headers["Mcp-Session-Id"] == "session-1":
            return asked.error(-32600, "Session not found", status=404)
        return await usual(asked)

    async with Scripted() as server, using() as servers:
        await names(servers, server.endpoint())
        server.on["tools/call"] = dead_id
        results = await first(*(call(servers, server.endpoint(), n=n) for n in range(50)))
        assert len({result.text for result in results}) == 50
        assert server.counts["initialize"] == 2


async def test_wrong_arguments_with_a_400_do_not_end_the_session():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = lost(-32602, 400, "n must be a number")
        with pytest.raises(ToolError, match="n must be a number"):
            await call(servers, server.endpoint())
        assert server.counts["initialize"] == server.counts["tools/call"] == 1


async def test_a_lost_session_is_begun_anew_for_a_listing_too():
    async with Scripted() as server, using(ttl=0) as servers:
        await names(servers, server.endpoint())
        server.on["tools/list"] = in_turn(lost(-32600, 404, "Session not found"), usual)
        assert await names(servers, server.endpoint()) == ["echo"]
        assert server.counts["initialize"] == 2


async def test_a_restarted_server_is_used_again():
    async with using() as servers:
        async with Scripted() as before:
            endpoint = before.endpoint()
            await call(servers, endpoint)
        with pytest.raises(ToolError, match="failed after") as raised:
            await call(servers, endpoint)
        assert "unknown" not in str(raised.value)
        after = Scripted()
        after.on_port = before.port
        async with after:
            assert (await call(servers, endpoint, n=1)).text == '{"n": 1}'
            assert after.counts["initialize"] == 1


async def test_an_opening_that_failed_is_tried_anew_by_the_next():
    async with Scripted() as server, using() as servers:
        server.on["initialize"] = in_turn(status(503), usual)
        with pytest.raises(ServerUnreachable):
            await names(servers, server.endpoint())
        assert await names(servers, server.endpoint()) == ["echo"]


async def test_a_call_that_lost_its_connection_leaves_the_session_usable():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = in_turn(close, usual)
        with pytest.raises(ToolError, match="unknown"):
            await call(servers, server.endpoint())
        assert (await call(servers, server.endpoint(), n=1)).text == '{"n": 1}'
        assert server.counts["initialize"] == 1


async def test_siblings_of_a_call_that_fails_go_on():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = in_turn(hang, close, usual)
        await names(servers, server.endpoint())
        slow = asyncio.create_task(call(servers, server.endpoint()))
        await until(server.held.is_set)
        with pytest.raises(ToolError):
            await call(servers, server.endpoint())
        server.on["tools/call"] = usual
        assert (await first(call(servers, server.endpoint(), n=1)))[0].text == '{"n": 1}'
        assert not slow.done()
        server.released.set()
        with pytest.raises(ToolError, match="503"):
            await slow


async def test_an_idle_session_is_closed_at_the_server_and_begun_anew_when_needed():
    async with Scripted() as server, using(idle=0.1) as servers:
        await call(servers, server.endpoint())
        await until(lambda: servers.pool.alive == 0)
        assert server.counts["DELETE"] == 1
        await call(servers, server.endpoint())
        assert server.counts["initialize"] == 2


async def test_a_session_in_use_is_not_idle():
    async with Scripted() as server, using(idle=0.1) as servers:
        server.on["tools/call"] = hang
        await names(servers, server.endpoint())
        calling = asyncio.create_task(call(servers, server.endpoint()))
        await asyncio.wait({calling}, timeout=0.4)
        assert servers.pool.kept == 1
        server.released.set()
        with pytest.raises(ToolError):
            await calling
        await until(lambda: servers.pool.alive == 0)


async def test_at_the_cap_the_session_idle_longest_makes_room():
    async with Scripted() as server, using(cap=2) as servers:
        for name in ("a", "b", "a", "c"):
            await call(servers, server.endpoint(principal=name))
        await until(lambda: servers.pool.alive == 2)
        assert server.counts["DELETE"] == 1
        await call(servers, server.endpoint(principal="a"))
        assert server.counts["initialize"] == 3  # a stayed, b went


async def test_at_the_cap_with_all_in_use_a_new_server_has_to_wait():
    async with Scripted() as server, using(cap=2) as servers:
        server.on["tools/call"] = hang
        endpoints = [server.endpoint(principal=name) for name in "ab"]
        calls = [asyncio.create_task(call(servers, endpoint)) for endpoint in endpoints]
        await until(lambda: server.counts["tools/call"] == 2)
        with pytest.raises(TooManySessions) as raised:
            await names(servers, server.endpoint(principal="c"))
        assert raised.value.status == 503
        server.released.set()
        await asyncio.wait(calls)
        assert await names(servers, server.endpoint(principal="c")) == ["echo"]


async def test_a_retired_session_ends_when_its_last_call_does():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = hang
        endpoint = server.endpoint()
        await names(servers, endpoint)
        calling = asyncio.create_task(call(servers, endpoint))
        await until(server.held.is_set)
        servers.pool.retire(endpoint.key)
        assert (servers.pool.kept, servers.pool.alive, server.counts["DELETE"]) == (0, 1, 0)
        server.released.set()
        with pytest.raises(ToolError):
            await calling
        await until(lambda: servers.pool.alive == 0)
        assert server.counts["DELETE"] == 1


async def test_closing_ends_calls_and_sessions():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = hang
        await names(servers, server.endpoint())
        calling = asyncio.create_task(call(servers, server.endpoint()))
        await until(server.held.is_set)
        await servers.aclose()
        with pytest.raises(ToolError, match="unknown"):
            await calling
        assert server.counts["DELETE"] == 1


async def test_nothing_is_opened_once_all_is_closed():
    async with Scripted() as server, using() as servers:
        await servers.aclose()
        with pytest.raises(ServerUnreachable, match="stopping"):
            await names(servers, server.endpoint())
        assert server.log == []


async def test_a_closing_process_does_not_wait_for_a_server_that_never_opens():
    async with Scripted() as server, using() as servers:
        server.on["initialize"] = hang
        opening = asyncio.create_task(names(servers, server.endpoint()))
        await until(server.held.is_set)
        started = time.monotonic()
        await servers.aclose()
        assert time.monotonic() - started < 1
        await asyncio.wait({opening}, timeout=5)
        assert opening.done()
        assert opening.cancelled() or opening.exception()
