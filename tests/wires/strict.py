"""A strict stand-in for a provider: it refuses what real ones refuse, and says what it is told to.

    with StrictProvider() as provider:
        provider.url          # http://127.0.0.1:49152; OPENAI_BASE_URL is provider.url + "/v1"
        provider.requests     # all that came, in order: .path, .headers, .body
        provider.wait_until(lambda: provider.abandoned == 1)

What it answers is scripted by the last user message (`tests.wires.script`). Round n of a script
reports 100n prompt, 10n completion, 5n cached and 2n reasoning tokens, so that sums can be checked.
Ids and `created` differ from request to request; call ids never repeat.
"""

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, Self

import uvicorn

from tests.wires.refusals import Refused, demand
from tests.wires.script import Answer, Seen
from tests.wires.strict_chat import Chat

Json = Any
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class StrictWire(Protocol):
    """One API as the provider speaks it."""

    def check(self, body: Json) -> None:
        """Raises Refused for what real providers refuse."""
        ...

    def seen(self, body: Json) -> Seen:
        """What a conversation says to the script; the body has passed `check`."""
        ...

    def reply(self, answer: Answer, body: Json) -> Json:
        """The whole answer."""
        ...

    def events(self, answer: Answer, body: Json) -> Iterator[bytes]:
        """The answer as server-sent events."""
        ...

    def error(self, refused: Refused) -> Json:
        """A refusal in the API's own envelope."""
        ...


WIRES: dict[str, StrictWire] = {"/v1/chat/completions": Chat()}


@dataclass
class Request:
    """One request as it came: header names in lower case, `body` parsed (None if there is none)."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json


class ClientLeft(Exception):
    """Nobody reads the reply any more."""


class StrictProvider:
    """The provider, as an ASGI application and as a context in which it is served on loopback.

    With `key` any other key is refused, and shown in the message, as some real ones do; without,
    any key will do, but there must be one. `abandoned` counts the replies that a client did not
    wait for, `in_flight` and `most_in_flight` the requests at once.
    """

    def __init__(self, *, key: str | None = None, models: tuple[str, ...] = ("strict-1",)) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.abandoned = self.in_flight = self.most_in_flight = 0
        self._key, self._models, self._serials = key, models, count(1)
        self._refusals: Counter[tuple[str, int]] = Counter()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            self,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        serve = self._server.run
        self._thread = threading.Thread(target=serve, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    def wait_until(self, holds: Callable[[], bool], *, timeout: float = 5) -> None:
        """Block until this holds; it may speak of this provider's state only.

        Raises TimeoutError. From a coroutine: `await asyncio.to_thread(provider.wait_until, …)`.
        """
        with self._changed:
            if not self._changed.wait_for(holds, timeout):
                raise TimeoutError(f"the provider did not get there in {timeout} s")

    @property
    def bodies(self) -> list[Json]:
        """The bodies of the model calls, in order."""
        return [request.body for request in self.requests if request.path in WIRES]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        raw = await _body(receive)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        wire = WIRES.get(scope["path"])
        left = asyncio.ensure_future(receive())  # done when the client has gone
        try:
            request = Request(scope["method"], scope["path"], headers, _parsed(raw))
            with self._counted(request):
                self._admit(headers)
                if wire is None:
                    await _send_json(send, self._list_models(request))
                else:
                    await self._answer(wire, request.body, _Client(send, left))
        except Refused as refused:
            envelope = (wire or WIRES["/v1/chat/completions"]).error(refused)
            after = {"retry-after": refused.retry_after} if refused.retry_after else {}
            await _send_json(send, envelope, status=refused.status, headers=after)
        finally:
            left.cancel()

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        with self._changed:
            self.requests.append(request)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()
        left = 0
        try:
            yield
        except ClientLeft:
            left = 1
        finally:
            with self._changed:
                self.in_flight -= 1
                self.abandoned += left
                self._changed.notify_all()

    def _admit(self, headers: dict[str, str]) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not key or key != (self._key or key):
            raise Refused(f"Incorrect API key provided: {key or 'none'}", status=401)

    def _list_models(self, request: Request) -> Json:
        if (request.method, request.path) != ("GET", "/v1/models"):
            raise Refused(f"no such path: {request.method} {request.path}", status=404)
        listed = [
            {"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "strict"}
            for name in self._models
        ]
        return {"object": "list", "data": listed}

    async def _answer(self, wire: StrictWire, body: Json, client: "_Client") -> None:
        demand(isinstance(body, dict), "the body must be a JSON object")
        wire.check(body)
        seen = wire.seen(body)
        answer = Answer(seen, serial=next(self._serials))
        await client.silence(answer.round.number("FIRST"))
        self._refuse_as_told(seen, answer)
        if not body.get("stream"):
            demand("ERROR" not in answer.round, answer.round.said.get("ERROR", ""), status=500)
            await client.whole(wire.reply(answer, body), cut="CUT" in answer.round)
            return
        cut = int(answer.round.number("CUT")) if "CUT" in answer.round else None
        gap = answer.round.number("GAP")
        await client.stream(wire.events(answer, body), gap=gap, cut=cut)

    def _refuse_as_told(self, seen: Seen, answer: Answer) -> None:
        code, after, times = (*answer.round.said.get("STATUS", "").split(), "", "", "")[:3]
        self._refusals[seen.script, seen.played] += 1
        if code and self._refusals[seen.script, seen.played] <= int(times or 10**9):
            raise Refused(f"told to refuse with {code}", status=int(code), retry_after=after)


class _Client:
    """The other end of one request. All of it raises ClientLeft once that is so."""

    def __init__(self, send: Send, left: "asyncio.Future[Any]") -> None:
        self._send, self._left = send, left

    async def silence(self, seconds: float) -> None:
        await asyncio.wait({self._left}, timeout=seconds)
        if self._left.done():
            raise ClientLeft

    async def whole(self, reply: Json, *, cut: bool) -> None:
        """Send a plain reply, or half of one: the server then closes the connection."""
        body = json.dumps(reply).encode()
        await _start(self._send, 200, {"content-type": "application/json"}, length=len(body))
        await _write(self._send, body[: len(body) // 2] if cut else body, more=cut)

    async def stream(self, events: Iterator[bytes], *, gap: float, cut: int | None) -> None:
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        await _start(self._send, 200, headers)
        for number, event in enumerate(events):
            if number == cut:
                return
            await self.silence(gap if number else 0)
            await _write(self._send, event, more=True)
        await _write(self._send, b"", more=False)


async def _body(receive: Receive) -> bytes:
    raw = b""
    while True:
        message = await receive()
        raw += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return raw


def _parsed(raw: bytes) -> Json:
    """What was sent, or None if it is not JSON."""
    try:
        return json.loads(raw)
    except ValueError:
        return None


async def _start(
    send: Send, status: int, headers: dict[str, str], *, length: int | None = None
) -> None:
    if length is not None:
        headers = {**headers, "content-length": str(length)}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _write(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _send_json(
    send: Send, data: Json, *, status: int = 200, headers: dict[str, str] | None = None
) -> None:
    body = json.dumps(data).encode()
    kind = {"content-type": "application/json"}
    await _start(send, status, {**kind, **(headers or {})}, length=len(body))
    await _write(send, body, more=False)
