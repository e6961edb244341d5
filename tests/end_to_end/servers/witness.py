"""What an MCP server of the tests has seen, for those who ask it over HTTP.

`GET /seen` gives it at once; `GET /until?counter=cancelled&count=2` when a counter is that high.
The counter `left` is of clients that did not wait for the answer to a tools/call.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HANDSHAKE = b"2025-11-25"  # the newest version of the era with sessions
NEW = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


class Witness:
    """An ASGI application around another. `counters` may be changed by its tools (`count`).

    With `era="sessions"` it is as deaf to the sessionless protocol as servers made before it.
    """

    def __init__(self, app: ASGIApp, *, era: str = "any") -> None:
        self._app, self._era = app, era
        self._requests: list[dict[str, Any]] = []
        self._counters: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def count(self, counter: str) -> None:
        self._counters[counter] += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def __getitem__(self, counter: str) -> int:
        return self._counters[counter]

    async def reach(self, counter: str, count: int) -> None:
        """Wait until the counter is that high."""
        while self._counters[counter] < count:
            await self._changed.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in ("/seen", "/until"):
            await self._tell(scope, send)
        else:
            await self._watch(scope, receive, send)

    async def _tell(self, scope: Scope, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode())
        if "counter" in query:
            await self.reach(query["counter"][0], int(query["count"][0]))
        seen = {"requests": self._requests, "counters": self._counters}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(seen).encode()})

    async def _watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version", b"")
        request = {
            "verb": scope["method"],
            "version": version.decode(),
            "session": b"mcp-session-id" in headers,
        }
        self._requests.append(request)
        if self._era == "sessions" and version > HANDSHAKE:
            scope = {**scope, "headers": [h for h in scope["headers"] if h[0] not in NEW]}
        watched = Watched(request, receive, send, on_left=lambda: self.count("left"))
        pumping = asyncio.create_task(watched.pump())
        try:
            await self._app(scope, watched.messages.get, watched.send)
        finally:
            pumping.cancel()


class Watched:
    """One request on its way to the application and back; what it is goes into `request`."""

    def __init__(
        self,
        request: dict[str, Any],
        receive: Receive,
        send: Send,
        *,
        on_left: Callable[[], None],
    ) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self._request, self._receive, self._send = request, receive, send
        self._on_left = on_left

    async def pump(self) -> None:
        """Read ahead of the application: not every one looks if its client is still there."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                if self._request.get("rpc") == "tools/call" and "ended" not in self._request:
                    self._on_left()
            elif message.get("body") and not message.get("more_body"):
                self._read(json.loads(message["body"]))
            await self.messages.put(message)
            if message["type"] == "http.disconnect":
                return

    def _read(self, said: dict[str, Any]) -> None:
        about = (said.get("params") or {}).get("requestId")  # a cancellation's
        self._request |= {"rpc": said.get("method"), "id": said.get("id", about)}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._request |= {"status": message["status"], "kind": kind.decode()}
        elif not message.get("more_body"):
            self._request["ended"] = True
        await self._send(message)
