"""What the tests of this directory use the client with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from mcp_servers.client import Connector, Endpoint
from mcp_servers.sessions import Limits
from mcp_servers.source import Servers, ServerSource
from orazaka.caller import Caller
from orazaka.outbound import Outbound
from orazaka.urlsafety import Policy, SafeForm
from tools.base import ToolResult

ANN = Caller(principal="ann")
SOON = 5.0  # seconds: a bound for what must happen at once


class PlainHttpWithSecrets(Outbound):
    """The real thing, but for the rule that a secret needs https: test servers have no TLS."""

    async def check(self, url: str, *, has_secret: bool) -> SafeForm:
        return await super().check(url, has_secret=False)


@asynccontextmanager
async def using(
    *, ttl: float = 60, probe_limit: float = 5, idle: float = 300, cap: int = 200, **limits: float
) -> AsyncIterator[Servers]:
    """Sessions and lists over a real outbound session; nothing is left when they are closed."""
    async with PlainHttpWithSecrets(policy=Policy()) as outbound:
        connect = Connector(outbound, probe_limit=probe_limit).connect
        servers = Servers(connect, ttl=ttl, limits=Limits(**limits), idle=idle, cap=cap)
        try:
            yield servers
        finally:
            await servers.aclose()
            assert servers.pool.alive == servers.pool.busy == 0


async def names(servers: Servers, endpoint: Endpoint) -> list[str]:
    return [spec.name for spec in await ServerSource(endpoint, servers).list()]


async def call(
    servers: Servers, endpoint: Endpoint, name: str | None = None, **arguments: Any
) -> ToolResult:
    """Call a tool by name, the first one if none is given."""
    source = ServerSource(endpoint, servers)
    specs = await source.list()
    spec = next(spec for spec in specs if name in (None, spec.name))
    return await source.call(spec, arguments, caller=ANN)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks bring about, for a bounded time."""
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """The base URL of an ASGI app, in this loop."""
    config = uvicorn.Config(
        app, port=0, log_level="critical", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, SOON)


async def first(*work: Awaitable[Any]) -> list[Any]:
    """All of it, within a bounded time."""
    async with asyncio.timeout(SOON):
        return await asyncio.gather(*work)
