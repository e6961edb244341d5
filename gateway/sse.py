"""Server-sent events: bytes to parsed events and back (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson

from orazaka.errors import OrazakaError

Event = dict[str, Any]

# What OpenAI's streams end with instead of an event. Compared by identity.
DONE: Event = {"done": True}
# One event of a model is a few hundred bytes; an image as base64 may be some megabytes.
MAX_EVENT = 16 * 2**20
BOM = b"\xef\xbb\xbf"


class BadStream(OrazakaError):
    """The provider's stream is not one: not JSON, or an event without an end."""

    status = 502
    code = "upstream_error"


async def decode(chunks: AsyncIterator[bytes]) -> AsyncGenerator[list[Event]]:
    """Parsed events, in lists: as many as one read brought. Raises BadStream, after the events
    that came before the bad one. An event that the end of the stream cuts short counts."""
    rest, after_cr = bytearray(), False
    async for chunk in chunks:
        if chunk and (after_cr or b"\r" in chunk):
            chunk, after_cr = _with_newlines(chunk, after_cr=after_cr), chunk.endswith(b"\r")
        if rest or not chunk.endswith(b"\n\n"):  # most reads are whole events
            begun = len(rest)
            rest += chunk
            found = rest.rfind(b"\n\n", max(0, begun - 1))
            chunk = bytes(rest[: found + 2]) if found >= 0 else b""
            del rest[: len(chunk)]
        if chunk:
            events, bad = _parsed(chunk)
            yield events
            if bad:
                raise bad
        if len(rest) > MAX_EVENT:
            raise BadStream("the provider sent an event that is too large")
    events, bad = _parsed(bytes(rest))
    yield events
    if bad:
        raise bad


def _with_newlines(chunk: bytes, *, after_cr: bool) -> bytes:
    """CR LF and a lone CR as LF; an LF at the start may be the other half of what came before."""
    if after_cr:
        chunk = chunk.removeprefix(b"\n")
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parsed(text: bytes) -> tuple[list[Event], BadStream | None]:
    """The events in a text, and what ends them early."""
    events: list[Event] = []
    try:
        for block in text.split(b"\n\n"):
            data = _data(block)
            if data == b"[DONE]":
                events.append(DONE)
            elif data:
                events.append(_event(data))
    except BadStream as error:
        return events, error
    return events, None


def _data(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:  # as nearly all are
        return block[6:].strip()
    block = block.removeprefix(BOM)  # a stream may begin with it
    lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def _event(data: bytes) -> Event:
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
