"""The first HTTP transport (SSE, 2024-11-05), played by a scripted server."""

from typing import Any

import pytest
from aiohttp import web

from mcp_servers.faults import ServerError, ServerLate
from tests.mcp_servers.scripted import Asked, Scripted, body, hang, in_turn, send, status
from tests.mcp_servers.using import call, first, names, until, using
from tools.base import ToolError


class OldTransport:
    """A server of the first HTTP transport: `GET` gives the stream, `post` answers a POST."""

    def __init__(self, server: Scripted) -> None:
        self.server = server
        self.stream: Any = None
        server.on = dict.fromkeys(
            ("server/discover", "initialize", "tools/list", "tools/call"), self.post
        )
        server.on |= {"GET": self.get, "notifications/initialized": self.accept}
        self.calls: list[Any] = []
        self.refuse: Any = None

    async def get(self, asked: Asked) -> Any:
        self.stream = await asked.open_stream()
        await send(self.stream, b"event: endpoint\ndata: /mcp?messages=1\n\n")
        await hang(asked)
        ended, self.stream = self.stream, None
        return ended

    async def accept(self, asked: Asked) -> Any:
        return await status(202)(asked)

    async def post(self, asked: Asked) -> Any:
        if "messages" not in asked.request.query:
            return await status(405)(asked)
        if self.refuse and asked.message["method"] == "tools/call":
            return await self.refuse(asked)
        reply = await self.server.usual(asked)
        assert isinstance(reply, web.Response)
        assert isinstance(reply.body, bytes)
        await send(self.stream, b"event: message\ndata: " + reply.body + b"\n\n")
        return await body("fine, thanks", "text/plain")(asked)


async def test_an_old_server_may_say_what_it_likes_beside_accepted():
    async with Scripted() as server, using() as servers:
        OldTransport(server)
        assert (await call(servers, server.endpoint(), n=1)).text == '{"n": 1}'


async def test_a_post_that_an_old_server_refuses_fails_its_call_only():
    async with Scripted() as server, using() as servers:
        old = OldTransport(server)
        await names(servers, server.endpoint())
        old.refuse = status(500)
        with pytest.raises(ToolError, match="HTTP 500"):
            await call(servers, server.endpoint())
        old.refuse = None
        assert (await first(call(servers, server.endpoint(), n=1)))[0].text == '{"n": 1}'
        assert servers.pool.opened == 1


async def test_a_lost_session_of_an_old_server_is_begun_anew():
    async with Scripted() as server, using() as servers:
        old = OldTransport(server)
        await names(servers, server.endpoint())
        old.refuse = in_turn(status(404), old.server.usual)

        async def gone_once(asked: Asked) -> Any:
            old.refuse = None
            return await status(404)(asked)

        old.refuse = gone_once
        assert (await call(servers, server.endpoint(), n=1)).text == '{"n": 1}'
        assert servers.pool.opened == 2


async def test_an_old_server_that_never_names_its_endpoint_is_late():
    async def silent(asked: Asked) -> Any:
        await asked.open_stream()
        return await hang(asked)

    async with Scripted() as server, using(open=0.4, list=0.6) as servers:
        OldTransport(server)
        server.on["GET"] = silent
        with pytest.raises(ServerLate, match="shop"):
            await names(servers, server.endpoint())


async def test_an_old_server_that_names_someone_elses_endpoint_is_not_followed():
    async def elsewhere(asked: Asked) -> Any:
        return await asked.stream(b"event: endpoint\ndata: http://127.0.0.1:1/steal\n\n")

    async with Scripted() as server, using(open=0.4) as servers:
        OldTransport(server)
        server.on["GET"] = elsewhere
        with pytest.raises(ServerError, match="shop"):
            await names(servers, server.endpoint())


async def test_an_old_servers_stream_that_ends_ends_its_session():
    async with Scripted() as server, using() as servers:
        old = OldTransport(server)
        await names(servers, server.endpoint())
        server.released.set()
        await until(lambda: old.stream is None)
        server.released.clear()
        assert (await first(call(servers, server.endpoint(), n=1)))[0].text == '{"n": 1}'
        assert servers.pool.opened == 2
