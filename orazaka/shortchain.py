"""The short chain: how `/v1` and the health probes are answered, without Django's handler.

Django's own ASGI handler costs 0.9 ms a request in middleware and thread hops, this 0.2
(docs/performance.md). It keeps what these paths need: Django's requests, URLs and responses, a
request id on everything, a bound on bodies and waits, and cancellation when the client leaves. It
runs no middleware and sends no signals, and it holds no database connection.
"""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

import orjson
import structlog
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import Resolver404, resolve

from orazaka import cors
from orazaka.errors import OrazakaError
from orazaka.requestid import request_id_of

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_SECONDS = 60  # between two pieces of a body
# A body over the limit is read on to this many times the limit before the answer: a client that
# still sends does not listen.
DRAINED = 4


class BodyTooLarge(OrazakaError):
    """The body is over ORAZAKA_MAX_BODY_BYTES."""

    status = 413
    code = "body_too_large"


class BodyLate(OrazakaError):
    """The body stopped coming."""

    status = 408
    code = "body_timeout"


class WrittenResponse(HttpResponseBase):
    """A response that is written by whoever has its content: `drain` gets the function that sends
    a part, and returns when there is no more. Sending must not outlive it."""

    streaming = True

    def __init__(
        self, drain: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]], **more: Any
    ) -> None:
        super().__init__(**more)
        self.drain = drain


class Left(Exception):
    """The client is gone: there is nobody to answer."""


async def respond(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one HTTP request (ASGI 3)."""
    tasks: list[asyncio.Task[Any]] = []
    scope["orazaka.tasks"], scope["orazaka.receive"] = tasks, receive
    # Django's request and the server's log fail on other bytes; no path here reads its query.
    query: bytes = scope.get("query_string", b"")
    scope["query_string"] = query.decode("ascii", "backslashreplace").encode()
    request = ASGIRequest(scope, io.BytesIO())
    scope["orazaka.request_id"] = name = request_id_of(request.headers)
    structlog.contextvars.bind_contextvars(request_id=name)
    try:
        response = cors.preflight(request) or await _answer(request)
        cors.allow(request, response)
        response.headers.setdefault("X-Request-ID", name)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        await _send(response, send)
    except (Left, TimeoutError):
        pass  # the client is gone, or stays without reading: the server closes the connection
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not scope.get("orazaka.left") or task is None:
            raise
        task.uncancel()  # our own watcher cancelled us
    finally:
        for running in tasks:
            running.cancel()


async def _answer(request: ASGIRequest) -> HttpResponseBase:
    try:
        match = resolve(request.path_info)
    except Resolver404:
        return failure(404, "not_found", "there is nothing at this path")
    request.resolver_match = match
    try:
        return cast(HttpResponseBase, await match.func(request, *match.args, **match.kwargs))
    except Left:
        raise
    except (OperationalError, InterfaceError):
        logger.exception("the database can't be reached")
        words = "the gateway's database can't be reached now, try again"
        return failure(503, "database_unavailable", words)
    except Exception:
        logger.exception("a view of the short chain failed")
        return failure(500, "server_error", "the gateway failed because of a fault of its own")


def failure(status: int, code: str, message: str) -> HttpResponse:
    """An error that belongs to no API of its own, in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return HttpResponse(
        orjson.dumps({"error": error}), status=status, content_type="application/json"
    )


def request_id(request: HttpRequest) -> str:
    """The id that the request goes by in logs, records and the response."""
    return str(cast(ASGIRequest, request).scope["orazaka.request_id"])


async def body_of(request: HttpRequest) -> bytes:
    """The whole body; read once, when the view is ready for it. From then on the request is
    cancelled when its client leaves.

    Raises BodyTooLarge, BodyLate.
    """
    scope = cast(Message, cast(ASGIRequest, request).scope)
    receive: Receive = scope["orazaka.receive"]
    limit = settings.ORAZAKA_MAX_BODY_BYTES
    parts, size = [], 0
    while True:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise BodyLate(f"the body stopped for {BODY_SECONDS} seconds") from None
        if message["type"] == "http.disconnect":
            raise Left
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        more = message.get("more_body", False)
        if size > limit and (not more or size > DRAINED * limit):
            raise BodyTooLarge(f"the body is larger than {limit} bytes")
        if not more:
            break
    _watch(scope, receive)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _watch(scope: Message, receive: Receive) -> None:
    """Cancel the request's task when its client leaves."""
    task = asyncio.current_task()
    assert task is not None

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope["orazaka.left"] = True
        task.cancel()

    scope["orazaka.tasks"].append(asyncio.get_running_loop().create_task(wait()))


def own(request: HttpRequest, task: asyncio.Task[Any]) -> None:
    """Let a task live at most as long as the request: it is cancelled when the answer is over, or
    never begins because the client left between the view and the body."""
    cast(ASGIRequest, request).scope["orazaka.tasks"].append(task)


async def _send(response: HttpResponseBase, send: Send) -> None:
    headers = [(k.lower().encode("ascii"), v.encode("latin1")) for k, v in response.items()]
    headers += [(b"set-cookie", c.OutputString().encode()) for c in response.cookies.values()]
    start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
    if isinstance(response, WrittenResponse):
        await send(start)
        await response.drain(
            lambda part: send({"type": "http.response.body", "body": part, "more_body": True})
        )
        await send({"type": "http.response.body"})
    else:
        content = cast(HttpResponse, response).content
        headers.append((b"content-length", str(len(content)).encode()))
        await send(start)
        await send({"type": "http.response.body", "body": content})
