"""An MCP server on a real socket that behaves as a test says: session era, plain aiohttp.

    async with Scripted() as server:
        server.on["tools/call"] = hang
        … server.endpoint() …

`on` maps a JSON-RPC method (or GET, DELETE) to how it is answered; what is not in it is answered
as a good server would. `log` has every message received, in order.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from mcp_servers.client import Endpoint

Answer = Callable[["Asked"], Awaitable[web.StreamResponse]]
VERSION = "2025-11-25"


@dataclass
class Asked:
    """One HTTP request: `message` is its JSON-RPC message, empty for GET and DELETE."""

    server: "Scripted"
    request: web.Request
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params") or {}

    @property
    def token(self) -> Any:
        """The progress token that came with a call."""
        return self.params["_meta"]["progressToken"]

    def reply(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def json(self, result: Any, *, status: int = 200) -> web.Response:
        return web.json_response(self.reply(result), status=status)

    def error(self, code: int, message: str, *, status: int = 200, **more: Any) -> web.Response:
        error = {"code": code, "message": message, **more}
        answer = {"jsonrpc": "2.0", "id": self.id, "error": error}
        return web.json_response(answer, status=status)

    async def stream(self, *events: Any) -> web.StreamResponse:
        """An event stream of JSON messages (or raw bytes) that ends after them."""
        response = await self.open_stream()
        for event in events:
            await send(response, event)
        return response

    async def open_stream(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.request)
        return response


async def send(response: web.StreamResponse, event: Any) -> None:
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    await response.write(data if data.startswith(b"event") else b"data: " + data + b"\n\n")


class Scripted:
    """`token`: answer 401 to any other. `modern`: speak 2026-07-28, else the session era."""

    def __init__(self, *tools: dict[str, Any], token: str = "", modern: bool = False) -> None:
        self.tools = list(tools) or [tool("echo")]
        self.on: dict[str, Answer] = {}
        self.log: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.answers: list[dict[str, Any]] = []  # what the client answered to requests of ours
        self.calls: list[dict[str, Any]] = []
        self.sessions: set[str] = set()
        self.gone = asyncio.Event()  # set when a waiting `hang` lost its client
        self.held = asyncio.Event()  # set when a `hang` has begun
        self.released = asyncio.Event()  # lets everything that waits go on
        self.on_port = 0  # a port of its own
        self._token = token
        self._modern = modern
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.on_port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.released.set()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.log)

    def endpoint(self, **fields: Any) -> Endpoint:
        return Endpoint(**{"label": "shop", "url": self.url, "principal": "ann"} | fields)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        message = await request.json() if request.method == "POST" else {}
        asked = Asked(self, request, message)
        name = message.get("method") or ("answer" if message else request.method)
        self.log.append(name)
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        if name == "answer":
            self.answers.append(message)
        if answer := self.on.get(name):
            return await answer(asked)
        return await self.usual(asked)

    async def usual(self, asked: Asked) -> web.StreamResponse:
        """How a good server answers."""
        match asked.message.get("method") or asked.request.method:
            case "initialize":
                return self._initialized(asked)
            case "server/discover":
                return self._discovered(asked)
            case "tools/list":
                return asked.json({"tools": self.tools} | self._envelope())
            case "tools/call":
                self.calls.append(asked.params)
                text = json.dumps(asked.params.get("arguments"))
                return asked.json({"content": [{"type": "text", "text": text}]} | self._envelope())
            case "GET":
                return web.Response(status=405)
            case _:
                return web.Response(status=202)

    def _initialized(self, asked: Asked) -> web.Response:
        session = f"session-{next(self._ids)}"
        self.sessions.add(session)
        answer = asked.json(
            {
                "protocolVersion": VERSION,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
        )
        answer.headers["Mcp-Session-Id"] = session
        return answer

    def _discovered(self, asked: Asked) -> web.Response:
        if not self._modern:
            return asked.error(-32601, "Method not found")
        return asked.json(
            {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": True}},
                **self._envelope(),
                "ttlMs": 0,
                "cacheScope": "private",
            }
        )

    def _envelope(self) -> dict[str, Any]:
        return {"resultType": "complete"} if self._modern else {}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    """A tool's definition as a server lists it."""
    return {"name": name, "description": f"The {name}.", "inputSchema": {"type": "object"}} | fields


async def hang(asked: Asked) -> web.StreamResponse:
    """Accept and never answer."""
    asked.server.held.set()
    try:
        await asked.server.released.wait()
    except asyncio.CancelledError:
        asked.server.gone.set()
        raise
    return web.Response(status=503)


async def close(asked: Asked) -> web.StreamResponse:
    """Close the connection without an answer."""
    if asked.request.transport:
        asked.request.transport.close()
    return web.Response()


def status(code: int, body: str = "", **headers: str) -> Answer:
    """Answer with a status and no MCP."""

    async def answer(_: Asked) -> web.Response:
        return web.Response(status=code, text=body, headers=headers)

    return answer


def body(text: str, kind: str = "application/json") -> Answer:
    """Answer 200 with anything."""

    async def answer(_: Asked) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return answer


def results(*given: Any) -> Answer:
    """Answer with these results in turn, the last one for ever."""
    left = list(given)

    async def answer(asked: Asked) -> web.Response:
        return asked.json(left.pop(0) if len(left) > 1 else left[0])

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Answer in these ways in turn, the last one for ever."""
    left = list(answers)

    async def answer(asked: Asked) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(asked)

    return answer


async def usual(asked: Asked) -> web.StreamResponse:
    return await asked.server.usual(asked)


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]} | more
