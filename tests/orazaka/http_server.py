"""Scripted HTTP servers on loopback, that remember what they were asked and by which connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Asked:
    """What a server was asked."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


BODY = web.RequestKey("body", bytes)
type Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server whose every reply is `answer(request)`."""
    server = Server()

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request[BODY] = await request.content.read()  # `request.read` has a limit
        server.asked.append(Asked(request.method, request.raw_path, headers, body))
        server.connections.add(request.transport)
        return await answer(request)

    runner = web.ServerRunner(
        web.Server(reply, handler_cancellation=True), access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_bytes(*parts: bytes, hold: bool = False) -> AsyncIterator[Server]:
    """A server that reads one request's head, writes the parts and closes, or holds the line."""
    server = Server()
    done = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections.add(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
            if hold:
                await done.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        done.set()
        listening.close()
        await listening.wait_closed()
