"""One absurdly deep tool must not cost a server its whole list.

JSON parsers give up at their own depth (the SDK's at 200 levels), and with the one value goes all
that was sent beside it. So what lies too deep is cut out of the text before anyone parses it; what
is left of such a schema is still deeper than a schema may be, and its tool is left out.
"""

import re
from collections.abc import AsyncIterator

import httpx2

from orazaka.sdk_transport import EVENTS

LEVELS_MAX = 128

# A string, so that what is inside of it does not count, or what opens or closes a level.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def shallow(text: bytes) -> bytes:
    """JSON text with null for every container below LEVELS_MAX levels; usually the same object."""
    if text.count(b"{") + text.count(b"[") <= LEVELS_MAX:
        return text
    parts: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        byte = text[token.start()]
        if byte in b"{[":
            level += 1
            if level == LEVELS_MAX + 1:
                parts += text[begin : token.start()], b"null"
        elif byte in b"}]":
            level -= 1
            if level == LEVELS_MAX:
                begin = token.end()
    if not parts:
        return text
    return b"".join(parts) + (text[begin:] if level <= LEVELS_MAX else b"")


class ShallowLists(httpx2.AsyncBaseTransport):
    """A transport whose tool lists are `shallow`, those of legacy SSE's one stream too."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        lists = request.method == "GET" or b'"tools/list"' in await request.aread()
        if lists and isinstance(response.stream, httpx2.AsyncByteStream):
            events = response.headers.get("content-type", "").lower().startswith(EVENTS)
            response.stream = _Shallow(response.stream, by_line=events)
        return response


class _Shallow(httpx2.AsyncByteStream):
    """A body made shallow: an event stream line by line, any other as a whole."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, by_line: bool) -> None:
        self._stream = stream
        self._by_line = by_line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        waiting: list[bytes] = []  # bounded by the limits of the stream below
        async for chunk in self._stream:
            waiting.append(chunk)
            if self._by_line and b"\n" in chunk:
                *lines, rest = b"".join(waiting).split(b"\n")
                yield b"".join(shallow(line) + b"\n" for line in lines)
                waiting = [rest]
        yield shallow(b"".join(waiting))

    async def aclose(self) -> None:
        await self._stream.aclose()
