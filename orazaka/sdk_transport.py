"""httpx2's transport interface over an aiohttp session, for the MCP SDK, which speaks httpx2."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from enum import IntEnum
from typing import Any

import aiohttp
import httpx2
import orjson
from yarl import URL

from orazaka.faults import Redirected, explain, refused
from orazaka.urlsafety import UnsafeURL, parse

EVENTS = "text/event-stream"
TOTAL_SECONDS = 3600.0  # of one exchange, against servers that trickle
DRAIN_SECONDS = 0.05  # for the end of a body whose last message was read
MAX_LINE = 2**20  # of an event stream (spec 2.2)
_NOT_SENT = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding"}
_NOT_PASSED = {b"content-length", b"content-encoding", b"transfer-encoding", b"set-cookie"}


class Code(IntEnum):
    """JSON-RPC error codes of our own making, and what `data` holds beside the message.

    TRANSPORT: {"sent"}: False if it is certain that the server got nothing. STATUS: {"status",
    "www_authenticate"}. NOT_MCP: {"content_type"}. REDIRECT: {"status"}. TOO_LARGE: {"limit"},
    bytes. BLOCKED: {"code"}, UnsafeURL's, whose message it is too.
    """

    TRANSPORT = -32050
    STATUS = -32051
    NOT_MCP = -32052
    REDIRECT = -32053
    TOO_LARGE = -32054
    BLOCKED = -32055


class Failed(httpx2.TransportError, httpx2.StreamError):
    """An exchange that failed. The SDK catches one base while sending, the other while reading.

    The message is a clause about the server ("it answered with HTTP 401"), without its name.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        data: Mapping[str, Any],
        unsafe: UnsafeURL | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.unsafe = unsafe

    def rpc(self, call: Any) -> bytes:
        """The failure as a JSON-RPC error, on one line; `call` is the request's id or None."""
        error = {"code": self.code, "message": self.message, "data": self.data}
        return orjson.dumps({"jsonrpc": "2.0", "id": call, "error": error})


class Transport(httpx2.AsyncBaseTransport):
    """httpx2 requests over an aiohttp session. Raises Failed, here or while the body is read."""

    def __init__(
        self, session: aiohttp.ClientSession, *, read_timeout: float, max_body: int
    ) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(
            total=TOTAL_SECONDS, connect=session.timeout.connect, sock_read=read_timeout
        )
        self._max_body = max_body

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it. The body that comes back is still on the wire and must be closed."""
        content = await request.aread()
        try:
            response = await self._session.request(
                request.method,
                URL(parse(str(request.url)).url, encoded=True),
                # aiohttp warns of large raw bytes: it writes them in one go
                data=io.BytesIO(content) if len(content) > 2**16 else content or None,
                headers=_sent(request),
                timeout=self._timeout,
                allow_redirects=False,
            )
        # ValueError: a header that can't be sent; RuntimeError: a closed session, uvloop
        except (aiohttp.ClientError, UnsafeURL, OSError, ValueError, RuntimeError) as error:
            raise _failed(error) from None
        open_ended = request.method == "GET" and response.content_type == EVENTS
        return httpx2.Response(
            response.status,
            headers=[h for h in response.raw_headers if h[0].lower() not in _NOT_PASSED],
            stream=Body(response, limit=None if open_ended else self._max_body),
        )


class Body(httpx2.AsyncByteStream):
    """The body of a response, decoded. Raises Failed when it breaks, stalls or is too large.

    Without a `limit` it is a stream that the server keeps open: silence ends it without an error,
    so that the SDK opens it again.
    """

    def __init__(self, response: aiohttp.ClientResponse, *, limit: int | None) -> None:
        self._response = response
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        has_lines = self._response.content_type == EVENTS
        size = line = 0
        try:
            async for chunk in self._response.content.iter_any():
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    raise _too_large(self._limit)
                if has_lines:
                    end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
                    line = len(chunk) - end - 1 + (line if end < 0 else 0)
                    if line > MAX_LINE:
                        raise _too_large(MAX_LINE)
                yield chunk
        except TimeoutError as error:
            if self._limit is not None:
                raise _failed(error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(error) from None

    async def aclose(self) -> None:
        """Let the connection be used again if the body ends now; close it if not."""
        try:
            if self._limit is not None and not self._response.closed:
                async with asyncio.timeout(DRAIN_SECONDS):
                    while await self._response.content.readany():
                        pass
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            self._response.close()  # does nothing to a connection that was given back


def _sent(request: httpx2.Request) -> list[tuple[str, str]]:
    """The headers to send. No compression is asked for: it would hold events back."""
    kept = [(k.decode(), v.decode()) for k, v in request.headers.raw if k.lower() not in _NOT_SENT]
    return [*kept, ("accept-encoding", "identity")]


def _failed(error: Exception) -> Failed:
    """What went wrong on the wire. Raise it `from None`: the cause's repr may hold secrets."""
    if unsafe := refused(error):
        return Failed(Code.BLOCKED, unsafe.message, data={"code": unsafe.code}, unsafe=unsafe)
    if isinstance(error, Redirected):
        return Failed(Code.REDIRECT, f"it {error}", data={"status": error.status})
    unsent = isinstance(
        error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | ValueError
    )
    return Failed(Code.TRANSPORT, explain(error), data={"sent": not unsent})


def _too_large(limit: int) -> Failed:
    return Failed(Code.TOO_LARGE, f"its answer is larger than {limit} bytes", data={"limit": limit})
