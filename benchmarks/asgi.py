"""The few lines of ASGI that the fakes need: they must cost less than what they measure."""

from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream")


async def read(receive: Receive) -> bytes:
    """The whole body of the request."""
    message = await receive()
    raw = bytes(message.get("body", b""))
    while message.get("more_body"):
        message = await receive()
        raw += message.get("body", b"")
    return raw


async def respond(
    send: Send, body: bytes, *headers: tuple[bytes, bytes], status: int = 200
) -> None:
    """A whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def begin(send: Send, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    """The head of a response whose body follows by `write`."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def write(send: Send, body: bytes, *, more: bool = True) -> None:
    """A piece of the body, the last one without `more`."""
    await send({"type": "http.response.body", "body": body, "more_body": more})
