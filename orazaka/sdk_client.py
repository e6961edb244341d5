"""The HTTP client that the MCP SDK gets: a failed exchange fails its call and nothing else.

Raised inside the SDK, an error ends the session and cancels the calls beside it, and an HTTP status
becomes one fixed sentence. So failures of a POST are answered with JSON-RPC errors.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import httpx2
import orjson

from orazaka.errors import OrazakaError
from orazaka.sdk_transport import EVENTS, Code, Failed, Transport

JSON = "application/json"
MAX_SHOWN = 200  # characters of what a server chose
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EVENT_ID = re.compile(rb"^id:", re.MULTILINE)


class UnsafeHeader(OrazakaError):
    """A header that HTTP does not allow; which one is not said, since names may be secret too."""

    status = 400
    code = "invalid_header"

    def __init__(self) -> None:
        super().__init__("a header or secret holds a character that HTTP headers do not allow")


def sdk_client(
    session: aiohttp.ClientSession,
    *,
    headers: Mapping[str, str],
    read_timeout: float,
    max_body: int,
) -> httpx2.AsyncClient:
    """A client for the SDK's transports; closing it leaves the session open. Raises UnsafeHeader.

    `headers` go with every request. `read_timeout` is the longest silence in seconds: give more
    than the longest call. `max_body` limits one POST's reply, in bytes; a line of an event stream
    has 1 MiB.
    """
    for name, value in headers.items():
        if not (_HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            raise UnsafeHeader
    transport = Transport(session, read_timeout=read_timeout, max_body=max_body)
    return httpx2.AsyncClient(
        transport=RpcAnswers(transport),
        headers={"user-agent": "orazaka", **headers},
        trust_env=False,
    )


class RpcAnswers(httpx2.AsyncBaseTransport):
    """A transport whose POSTs never raise: what fails is answered with a JSON-RPC error (`Code`).

    A status of 400 or more is such a failure too, unless its body is a JSON-RPC error already.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it. Raises Failed for methods other than POST."""
        if request.method != "POST":
            return await self._transport.handle_async_request(request)
        call = _call_id(await request.aread())
        try:
            response = await self._transport.handle_async_request(request)
            try:
                return await _judge(response, call)
            except BaseException:
                await response.aclose()
                raise
        except Failed as error:
            answer = error.rpc(call)
        return httpx2.Response(502, headers={"content-type": JSON}, content=answer)


class _Ending(httpx2.AsyncByteStream):
    """An event stream that says how it broke: the call's error is its last event.

    A stream with event ids is left as it is, since the SDK asks for the rest of it.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, call: Any) -> None:
        self._stream = stream
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        resumable = False
        try:
            async for chunk in self._stream:
                resumable = resumable or bool(_EVENT_ID.search(chunk))
                yield chunk
        except Failed as error:
            if resumable and error.code == Code.TRANSPORT:
                raise
            # First an end for the event that was cut short, under a name that nobody reads.
            yield b"\nevent: broken-off\n\nevent: message\ndata: " + error.rpc(self._call) + b"\n\n"

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _judge(response: httpx2.Response, call: Any) -> httpx2.Response:
    """A reply to a POST as the SDK may see it. Raises Failed for what is not MCP."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code >= 400:
        body = await response.aread() if kind == JSON else b""
        if not _is_error(_json(body)):
            raise _bad_status(response)
    elif call is None or response.status_code == 202:
        await response.aclose()  # what is said beside "accepted" is of no matter, nor how it ends
        response = httpx2.Response(response.status_code, headers=response.headers)
    elif kind == EVENTS and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Ending(response.stream, call)
    elif kind == JSON:
        reply = _json(await response.aread())
        if _is_error(reply) and reply.get("id") is None:
            response.status_code = 400  # there the SDK puts the request's own id in
        elif not (isinstance(reply, dict) and str(reply.get("id")) == str(call)):
            raise _not_mcp(kind, "it answered with JSON that is no reply to the request")
    else:
        raise _not_mcp(kind, f"it answered with {kind or 'no content type'}, not with MCP")
    return response


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _call_id(content: bytes) -> Any:
    """The id of a JSON-RPC request; None for a notification or an answer of ours."""
    message = _json(content)
    return message.get("id") if isinstance(message, dict) and "method" in message else None


def _is_error(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("error"), dict)
    )


def _bad_status(response: httpx2.Response) -> Failed:
    status = response.status_code
    challenge = response.headers.get("www-authenticate", "")[:MAX_SHOWN]
    data = {"status": status, "www_authenticate": challenge}
    return Failed(Code.STATUS, f"it answered with HTTP {status}", data=data)


def _not_mcp(kind: str, message: str) -> Failed:
    return Failed(Code.NOT_MCP, message[:MAX_SHOWN], data={"content_type": kind[:MAX_SHOWN]})
