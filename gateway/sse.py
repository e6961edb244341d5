"""Server-sent events: bytes to parsed events and back (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson

from orazaka.errors import OrazakaError

Event = dict[str, Any]

# What OpenAI's streams end with instead of an event. Compared by identity.
DONE: Event = {"done": True}
# One event of a model is a few hundred bytes; an image as base64 may be some megabytes.
MAX_EVENT = 16 * 2**20


class BadStream(OrazakaError):
    """The provider's stream is not one: not JSON, or an event without an end."""

    status = 502
    code = "upstream_error"


async def decode(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[Event]]:
    """Parsed events, in lists: as many as one read brought. Raises BadStream."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        if b"\r" in rest:
            # A lone CR ends a line too, but a CR that ends the read may be half of CR LF.
            held, rest = (rest[-1:], rest[:-1]) if rest.endswith(b"\r") else (b"", rest)
            rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        whole, separator, rest = rest.rpartition(b"\n\n")
        if separator:
            yield list(_events(whole))
        if len(rest) > MAX_EVENT:
            raise BadStream("the provider sent an event that is too large")
    if rest.strip():
        yield list(_events(rest))


def _events(text: bytes) -> Iterator[Event]:
    for block in text.split(b"\n\n"):
        data = _data(block)
        if data == b"[DONE]":
            yield DONE
        elif data:
            yield _parsed(data)


def _data(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:].strip()
    lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def _parsed(data: bytes) -> Event:
    try:
        event = orjson.loads(data)
    except ValueError as error:
        raise BadStream("the provider sent an event that is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("the provider sent an event that is not a JSON object")
    return event


def encode(event: Event) -> bytes:
    """An event without a name, as chat completions has them."""
    if event is DONE:
        return b"data: [DONE]\n\n"
    return b"data: " + orjson.dumps(event) + b"\n\n"


def comment(text: bytes) -> bytes:
    """A line that clients skip: a sign of life, or the trace."""
    return b": " + text + b"\n\n"
