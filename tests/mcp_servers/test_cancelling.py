"""Calls that are given up, and calls that say how far they are."""

import asyncio
import time
from typing import Any

import pytest

from mcp_servers.client import Endpoint
from mcp_servers.source import Servers
from tests.mcp_servers.scripted import Asked, Scripted, hang, in_turn, send, text_result, usual
from tests.mcp_servers.using import call, first, names, until, using
from tools.base import ToolError


async def cancel(server: Scripted, servers: Servers, endpoint: Endpoint) -> float:
    """Cancel a call that hangs at the server; seconds that it took."""
    calling = asyncio.create_task(call(servers, endpoint))
    await until(server.held.is_set)
    started = time.monotonic()
    calling.cancel()
    await asyncio.wait({calling}, timeout=5)
    assert calling.cancelled()
    return time.monotonic() - started


@pytest.mark.parametrize("modern", [False, True], ids=["session era", "2026-07-28"])
async def test_cancelling_a_call_cancels_it_at_the_server_and_keeps_the_session(modern: bool):
    async with Scripted(modern=modern) as server, using() as servers:
        endpoint = server.endpoint()
        await names(servers, endpoint)
        server.on["tools/call"] = hang
        assert await cancel(server, servers, endpoint) < 0.2
        async with asyncio.timeout(5):
            await server.gone.wait()  # the POST is not left open
        assert server.counts["notifications/cancelled"] == (0 if modern else 1)
        server.on["tools/call"] = usual
        assert (await call(servers, endpoint, n=1)).text == '{"n": 1}'
        assert servers.pool.opened == 1
        await until(lambda: servers.pool.busy == 0)


async def test_cancelling_a_call_that_streams_closes_its_stream():
    async def streams(asked: Asked) -> Any:
        response = await asked.open_stream()
        await send(response, b"event: message\nid: 7\ndata: \n\n")  # could be resumed
        return await hang(asked) and response

    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint()
        await names(servers, endpoint)
        gets = server.counts["GET"]
        server.on["tools/call"] = streams
        await cancel(server, servers, endpoint)
        async with asyncio.timeout(5):
            await server.gone.wait()
        server.on["tools/call"] = usual
        assert (await call(servers, endpoint, n=1)).text == '{"n": 1}'
        assert server.counts["GET"] == gets  # nobody asks for the rest


async def test_cancelling_is_quick_when_the_server_hears_nothing():
    async with Scripted() as server, using() as servers:
        server.on |= {"tools/call": hang, "notifications/cancelled": hang}
        await names(servers, server.endpoint())
        assert await cancel(server, servers, server.endpoint()) < 0.2


async def test_one_caller_who_leaves_during_the_opening_leaves_the_others_alone():
    async with Scripted() as server, using() as servers:
        server.on["initialize"] = in_turn(hang, usual)
        endpoint = server.endpoint()
        leaver, stayer = (asyncio.create_task(servers.pool.list_tools(endpoint)) for _ in "ab")
        await until(server.held.is_set)
        leaver.cancel()
        await asyncio.wait({leaver})
        assert not stayer.done()
        assert servers.pool.opened == 1
        stayer.cancel()


async def test_progress_extends_a_call_up_to_its_maximum():
    async def reports(asked: Asked) -> Any:
        response = await asked.open_stream()
        while True:
            params = {"progressToken": asked.token, "progress": 1}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await send(response, note)
            try:
                await asyncio.wait_for(asked.server.released.wait(), 0.05)
            except TimeoutError:
                continue
            await send(response, asked.reply(text_result("done")))
            return response

    async with Scripted() as server, using(call_max=0.9) as servers:
        server.on["tools/call"] = reports
        await names(servers, server.endpoint())
        endpoint = server.endpoint(call_timeout=0.3)
        calling = asyncio.create_task(call(servers, endpoint))
        await asyncio.wait({calling}, timeout=0.6)
        assert not calling.done()
        server.released.set()
        assert (await first(calling))[0].text == "done"
        server.released.clear()
        started = time.monotonic()
        with pytest.raises(ToolError, match=r"within 0\.9 s"):
            await call(servers, endpoint)
        assert time.monotonic() - started < 1.5
