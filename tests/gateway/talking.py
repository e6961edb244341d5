"""How tests talk to the gateway: a server to name, words for the strict provider, its results."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer

from gateway.models import Turn
from tests.gateway.serving import Gateway
from tests.mcp_servers.using import served

Json = Any
OWN = {
    "type": "function",
    "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}},
}


@asynccontextmanager
async def official() -> AsyncIterator[str]:
    """A server made with the official SDK, session era, answers as event streams."""
    server = MCPServer("tests", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool()
    def fail() -> str:
        """Always fail."""
        raise ValueError("out of order")

    async with served(server.streamable_http_app()) as url:
        yield url + "/mcp"


def said(*lines: str) -> list[Json]:
    return [{"role": "user", "content": "\n".join(lines)}]


def inline(url: str, name: str = "tests", **more: Json) -> Json:
    return {"name": name, "url": url, **more}


async def streamed(gate: Gateway, **request: Json) -> bytes:
    response = await gate.chat(stream=True, **request)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    return response.content


def got(text: str) -> list[str]:
    """The results that the strict provider says it got."""
    return json.loads(text.removeprefix("GOT "))


async def the_turn(gate: Gateway, run_sync) -> Turn:
    await gate.written()
    return await run_sync(lambda: Turn.objects.get())
