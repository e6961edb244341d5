"""MCP servers made with the official SDK: `python -m tests.end_to_end.servers.official KIND …`.

    session     2025-11-25, a session each client, answers as event streams
    stateless   2025-11-25, no sessions, answers as JSON
    modern      2026-07-28 (and what the SDK speaks besides)
    sse         the first HTTP transport: events on one stream, at /sse
    pages       44 tools in three pages

The first line on standard output has their ports on loopback, in the same order.
"""

import asyncio
import socket
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel
from starlette.types import ASGIApp

from tests.end_to_end.servers.witness import Witness

KINDS = ("session", "stateless", "modern", "sse", "pages")
PAGES = {"": "second", "second": "third", "third": None}
KEEP: dict[CacheableMethod, CacheHint] = {"tools/list": CacheHint(ttl_ms=60_000)}
STREAMABLE: dict[str, dict[str, bool]] = {
    "session": {},
    "stateless": {"stateless_http": True, "json_response": True},
    "modern": {},
}


class Weather(BaseModel):
    """What a tool with an output schema gives."""

    city: str
    degrees: float


def tools(seen: "list[Witness]") -> MCPServer[Any]:
    """The server; `seen[0]` is its witness, once there is one."""
    server: MCPServer[Any] = MCPServer("official", cache_hints=KEEP)

    @server.tool()
    def add(a: int, b: int) -> int:
        """The sum of two whole numbers."""
        seen[0].count("added")
        return a + b

    @server.tool()
    def shout(text: str) -> str:
        """The text in capitals."""
        return text.upper()

    @server.tool()
    def weather(city: str) -> Weather:
        """The weather of a city."""
        return Weather(city=city, degrees=21.5)

    @server.tool()
    def refuse() -> str:
        """Always an error."""
        raise ToolError("this tool never works")

    @server.tool()
    async def meet(parties: int) -> str:
        """Comes back when so many calls of it are under way at once."""
        seen[0].count("met")
        await seen[0].reach("met", parties)
        return "met"

    @server.tool()
    async def wait(seconds: float) -> str:
        """Comes back after so many seconds."""
        async with noted(seen[0]):
            await asyncio.sleep(seconds)
        return "waited"

    return server


@asynccontextmanager
async def noted(seen: Witness) -> AsyncIterator[None]:
    """Count that a call began, and how it ended."""
    seen.count("started")
    try:
        yield
    except asyncio.CancelledError:
        seen.count("cancelled")
        raise
    seen.count("finished")


def pages() -> Server[Any]:
    """A server with a list of several pages."""

    async def on_list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        cursor = (params.cursor if params else None) or ""
        page, size = list(PAGES).index(cursor), 4 if cursor == "third" else 20
        listed = [
            types.Tool(name=f"tool_{20 * page + n}", input_schema={"type": "object"})
            for n in range(size)
        ]
        return types.ListToolsResult(tools=listed, next_cursor=PAGES[cursor])

    async def on_call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=f"{params.name} was called")])

    return Server("pages", on_list_tools=on_list_tools, on_call_tool=on_call_tool, cache_hints=KEEP)


def application(kind: str) -> ASGIApp:
    """The server of that kind, with its witness."""
    if kind == "pages":
        return Witness(pages().streamable_http_app())
    seen: list[Witness] = []
    server = tools(seen)
    app = server.sse_app() if kind == "sse" else server.streamable_http_app(**STREAMABLE[kind])  # type: ignore[arg-type]
    seen.append(Witness(app, era="any" if kind == "modern" else "sessions"))
    return seen[0]


async def main(kinds: list[str], *, port: int = 0) -> None:
    """Serve them all until stopped, at ports that are free or this one."""
    listening = [socket.create_server(("127.0.0.1", port), backlog=512) for _ in kinds]
    print(*(sock.getsockname()[1] for sock in listening), flush=True)
    async with asyncio.TaskGroup() as serving:
        for kind, sock in zip(kinds, listening, strict=True):
            serving.create_task(server(kind).serve(sockets=[sock]))


def server(kind: str) -> uvicorn.Server:
    """Where one of them is served."""
    return uvicorn.Server(
        uvicorn.Config(
            application(kind), access_log=False, log_level="warning", timeout_graceful_shutdown=1
        )
    )


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(main(given.kinds, port=given.port))
