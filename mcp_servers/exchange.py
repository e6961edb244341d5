"""Requests and notifications on the wire, kept from harming each other inside the MCP SDK.

The SDK holds every message up behind a notification that hangs, leaves a cancelled call's POST open
(session era), loses the HTTP status beside a server's own error, and in legacy SSE forgets a call
whose POST failed. `orazaka.sdk_client` settles what a failed exchange does to its own call; this
transport settles the rest.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import httpx2
import orjson

from orazaka.sdk_transport import EVENTS, Code, Failed
from tools.base import Json

NOTICE_LIMIT = 5.0  # seconds for a notification; nobody waits for what it brings
CANCEL_PATIENCE = 1.0  # seconds for a call to have been accepted before it is cancelled
GOODBYE_LIMIT = 2.0  # seconds for ending a session at the server
# Bytes at once and a second of what a server sends unasked: more would keep this process busy for
# as long as its session lives. In legacy SSE the answers come that way too.
UNASKED, UNASKED_WITH_ANSWERS = (2**20, 2**15), (2**23, 2**18)
HTTP_STATUS = "orazaka/httpStatus"  # in `data` of a server's own JSON-RPC error

Report = Callable[[dict[str, Json]], Awaitable[None]]


class Exchange(httpx2.AsyncBaseTransport):
    """A transport over `inner` (whose POSTs never raise) for one session.

    With `report` the replies come by another way (legacy SSE): a POST only says whether it was
    accepted, and the JSON-RPC error of one that was not is given to `report`.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, report: Report | None = None) -> None:
        self._inner = inner
        self._report = report
        self._posts: WeakValueDictionary[Any, _Post] = WeakValueDictionary()
        self._notices: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            await self._notice(request, GOODBYE_LIMIT)
            return httpx2.Response(204)
        if request.method != "POST":
            return await self._listen(request)
        message = orjson.loads(await request.aread())
        if "id" in message and "method" in message:
            return await self._ask(request, message["id"])
        if message.get("method") == "notifications/cancelled":
            self._cancelled(request, message["params"]["requestId"])
        else:
            await self._notice(request, NOTICE_LIMIT)
        return httpx2.Response(202)

    async def aclose(self) -> None:
        """Give up the notifications that are still on their way."""
        for task in self._notices:
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)

    async def _listen(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        burst, rate = UNASKED_WITH_ANSWERS if self._report else UNASKED
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = Paced(response.stream, burst=burst, rate=rate)
        return response

    async def _ask(self, request: httpx2.Request, id_: Any) -> httpx2.Response:
        post = self._posts[id_] = _Post(id_)
        try:
            response = await post.wait(self._inner.handle_async_request(request))
        except TimeoutError:
            return httpx2.Response(502, headers=_JSON, content=post.last_words())
        if self._report:
            return await self._accepted(response, self._report)
        if _kind(response) == EVENTS and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Leashed(response.stream, post)
        elif response.status_code >= 400:
            return await _with_status(response, id_)
        return response

    async def _accepted(self, response: httpx2.Response, report: Report) -> httpx2.Response:
        body = await response.aread()
        if response.status_code >= 400:
            message = orjson.loads(body)
            # What is said beside "accepted" is of no matter here, in whatever format.
            if message["error"]["code"] != Code.NOT_MCP:
                await report(message)
        return httpx2.Response(202)

    async def _notice(self, request: httpx2.Request, limit: float) -> None:
        """Send what has no answer. Nobody can do anything about how it fares: it never fails."""
        with suppress(Failed, TimeoutError):
            async with asyncio.timeout(limit):
                response = await self._inner.handle_async_request(request)
                await response.aclose()

    def _cancelled(self, request: httpx2.Request, id_: Any) -> None:
        task = asyncio.create_task(self._cancel(request, id_))
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _cancel(self, request: httpx2.Request, id_: Any) -> None:
        post = self._posts.get(id_)
        if post:
            await post.begun(CANCEL_PATIENCE)
        await self._notice(request, NOTICE_LIMIT)
        if post:
            post.end()


class Paced(httpx2.AsyncByteStream):
    """A stream that is read no faster than `rate` bytes a second once `burst` bytes have come."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, burst: int, rate: int) -> None:
        self._stream = stream
        self._burst = burst
        self._rate = rate

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, then = float(self._burst), time.monotonic()
        async for chunk in self._stream:
            now = time.monotonic()
            left = min(self._burst, left + (now - then) * self._rate) - len(chunk)
            then = now
            yield chunk
            if left < 0:
                await asyncio.sleep(-left / self._rate)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Post:
    """One request's POST up to its answer, which can be ended from outside."""

    def __init__(self, id_: Any) -> None:
        self._id = id_
        self._ended = False
        self._answered = asyncio.Event()
        self._leash: asyncio.Timeout | None = None

    async def begun(self, seconds: float) -> None:
        """Wait for its answer to begin, at most so long: on another connection a cancellation
        could overtake the request that it cancels, and would be ignored."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answered.wait()

    async def wait[T](self, work: Awaitable[T]) -> T:
        """Raises TimeoutError as soon as the POST is ended."""
        try:
            async with asyncio.timeout_at(0 if self._ended else None) as self._leash:
                return await work
        finally:
            self._answered.set()
            self._leash = None

    def end(self) -> None:
        """Nobody waits for the answer any more."""
        self._ended = True
        if self._leash:
            self._leash.reschedule(0)

    def last_words(self) -> bytes:
        """An answer for the SDK, which would ask for the rest of a stream without one."""
        error = {"code": Code.TRANSPORT, "message": "it was cancelled", "data": {"sent": True}}
        return orjson.dumps({"jsonrpc": "2.0", "id": self._id, "error": error})


class _Leashed(httpx2.AsyncByteStream):
    """The event stream of a POST, which ends with its POST.

    An iterator and no generator: the SDK leaves streams half read, and each generator that is left
    so costs the event loop a task.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, post: _Post) -> None:
        self._stream = stream
        self._chunks = aiter(stream)
        self._post = post
        self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._post.wait(anext(self._chunks))
        except TimeoutError:
            self._over = True
            words = self._post.last_words()
            return b"\nevent: broken-off\n\nevent: message\ndata: " + words + b"\n\n"

    async def aclose(self) -> None:
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()
        await self._stream.aclose()


_JSON = {"content-type": "application/json"}


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _with_status(response: httpx2.Response, id_: Any) -> httpx2.Response:
    """The JSON-RPC error of a reply, with the HTTP status in it if it is the server's own.

    Made whole on the way: some leave out the id, and the SDK would see no error in it.
    """
    error = orjson.loads(await response.aread())["error"]
    code, data = error.get("code"), error.get("data")
    if code in tuple(Code):
        return response
    whole = {
        "code": code if isinstance(code, int) else 0,
        "message": str(error.get("message", "")),
        "data": (data if isinstance(data, dict) else {}) | {HTTP_STATUS: response.status_code},
    }
    message = {"jsonrpc": "2.0", "id": id_, "error": whole}
    return httpx2.Response(response.status_code, headers=_JSON, content=orjson.dumps(message))
