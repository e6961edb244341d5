"""The MCP SDK's HTTP client on real sockets: what fails a call, and nothing more than that call."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import orjson
import pytest
from aiohttp import web
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from orazaka.outbound import Code, Failed, Outbound, UnsafeHeader, sdk_client
from orazaka.urlsafety import Policy, UnsafeURL
from tests.orazaka.http_server import BODY, Answer, serve, serve_bytes

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}
NOTICE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESULT = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
EVENT = b"event: message\ndata: " + orjson.dumps(RESULT) + b"\n\n"
MAX_BODY = 100_000


@asynccontextmanager
async def client(*, policy: Policy | None = None, **options) -> AsyncIterator[httpx2.AsyncClient]:
    settings = {"headers": {}, "read_timeout": 5, "max_body": MAX_BODY, **options}
    async with (
        asyncio.timeout(20),
        Outbound(policy=policy or Policy()) as outbound,
        sdk_client(outbound.guarded, **settings) as http,
    ):
        yield http


def answering(body: Any, *, status: int = 200, **headers: str) -> Answer:
    """A server that always answers so; a body that is no bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(
            body=raw, status=status, headers={"content-type": "application/json"} | named
        )

    return answer


def streaming(*parts: bytes, hold: bool = False, content_type: str = "text/event-stream") -> Answer:
    """A server that writes the parts and ends the body, or leaves it open."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": content_type})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if hold:
            await asyncio.Event().wait()
        return response

    return answer


def failure(response: httpx2.Response, code: Code) -> Any:
    """The error of a JSON-RPC answer to CALL."""
    assert response.status_code == 502
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", 7, code)
    return answer["error"]


async def events(http: httpx2.AsyncClient, url: str) -> list[httpx2.ServerSentEvent]:
    async with http.stream("POST", url, json=CALL) as response:
        return [event async for event in httpx2.EventSource(response, max_event_size=None)]


async def first_event(http: httpx2.AsyncClient, url: str) -> Any:
    """A call as the SDK makes it: the stream is left after the first event."""
    async with http.stream("POST", url, json=CALL) as response:
        async for event in httpx2.EventSource(response):
            return event.json()
    raise AssertionError("no event came")


# --- what goes through ----------------------------------------------------------------------------


async def test_calls_one_after_another_share_a_connection():
    async with serve(answering(RESULT)) as server, client() as http:
        for _ in range(10):
            assert (await http.post(server.url, json=CALL)).json() == RESULT

    assert len(server.asked) == 10
    assert len(server.connections) == 1


async def test_event_streams_share_one_too_though_the_sdk_leaves_them_before_their_end():
    async with serve(streaming(EVENT)) as server, client() as http:
        for _ in range(10):
            assert await first_event(http, server.url) == RESULT

    assert len(server.asked) == 10
    assert len(server.connections) == 1


async def test_the_end_of_a_body_is_waited_for_a_moment_after_its_last_message():
    read = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENT)
        await read.wait()
        return response

    async with serve(answer) as server, client() as http:
        for _ in range(3):
            read.clear()
            async with http.stream("POST", server.url, json=CALL) as response:
                async for event in httpx2.EventSource(response):
                    assert event.json() == RESULT
                    read.set()
                    break

    assert len(server.connections) == 1


async def test_a_stream_that_stays_open_after_its_result_is_closed():
    left = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await streaming(EVENT, hold=True)(request)
        finally:
            left.set()

    async with serve(answer) as server, client() as http:
        assert await first_event(http, server.url) == RESULT
        async with asyncio.timeout(5):
            await left.wait()


async def test_headers_go_along_and_only_those_that_should():
    headers = {"Authorization": "Bearer t", "Host": "evil.test", "Transfer-Encoding": "chunked"}
    async with serve(answering(RESULT)) as server, client(headers=headers) as http:
        await http.post(f"{server.url}?a=%2F&b=1+2", json=CALL, headers={"mcp-session-id": "s"})

    asked = server.asked[0]
    assert asked.target == "/mcp?a=%2F&b=1+2"
    assert orjson.loads(asked.body) == CALL
    assert asked.headers == {
        "accept": "*/*",
        "accept-encoding": "identity",
        "authorization": "Bearer t",
        "content-length": str(len(asked.body)),
        "content-type": "application/json",
        "host": f"127.0.0.1:{server.port}",
        "mcp-session-id": "s",
        "user-agent": "orazaka",
    }


async def test_a_session_id_comes_back_and_a_cookie_does_not():
    sent = answering(RESULT, Mcp_Session_Id="s1", Set_Cookie="a=b")
    async with serve(sent) as server, client() as http:
        response = await http.post(server.url, json=CALL)
        await http.post(server.url, json=CALL)

    assert response.headers["mcp-session-id"] == "s1"
    assert "set-cookie" not in response.headers
    assert "cookie" not in server.asked[1].headers


async def test_compressed_answers_are_read_although_not_asked_for():
    packed = answering(gzip.compress(orjson.dumps(RESULT)), Content_Encoding="gzip")
    async with serve(packed) as server, client() as http:
        assert (await http.post(server.url, json=CALL)).json() == RESULT


async def test_large_arguments_are_sent_whole():
    call = {**CALL, "params": {"text": "x" * 3_000_000}}
    async with serve(answering(RESULT)) as server, client() as http:
        await http.post(server.url, json=call)

    assert orjson.loads(server.asked[0].body) == call


async def test_an_odd_spelling_of_an_allowed_address_is_reached():
    async with serve(answering(RESULT)) as server, client() as http:
        for host in ("0x7f.1", "localhost", "LOCALHOST"):
            response = await http.post(f"http://{host}:{server.port}/mcp", json=CALL)
            assert response.json() == RESULT


# --- what is answered with an error ---------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 407, 410, 429, 500, 502, 503])
async def test_a_status_reaches_the_caller(status):
    refusing = answering({"detail": "no"}, status=status, WWW_Authenticate='Bearer realm="mcp"')
    async with serve(refusing) as server, client() as http:
        error = failure(await http.post(server.url, json=CALL), Code.STATUS)

    assert error["message"] == f"it answered with HTTP {status}"
    assert error["data"] == {"status": status, "www_authenticate": 'Bearer realm="mcp"'}


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_json_rpc_error_is_passed_on_untouched_whatever_its_status(status):
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
    async with serve(answering(body, status=status)) as server, client() as http:
        response = await http.post(server.url, json=CALL)

    assert (response.status_code, response.json()) == (status, body)


async def test_an_error_without_an_id_gets_to_its_call():
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}
    async with serve(answering(body)) as server, client() as http:
        response = await http.post(server.url, json=CALL)

    assert (response.status_code, response.json()) == (400, body)  # where the SDK sets the id


async def test_html_is_an_error_as_soon_as_its_headers_are_read():
    page = streaming(b"<html>", hold=True, content_type="text/html; charset=utf-8")
    async with serve(page) as server, client() as http, asyncio.timeout(3):
        error = failure(await http.post(server.url, json=CALL), Code.NOT_MCP)

    assert error["message"] == "it answered with text/html, not with MCP"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[" * 100_000,
        b"\xff\xfe",
        [RESULT],
        {"ok": True},
        {**RESULT, "id": 8},
        "x",
        7,
    ],
    ids=lambda body: repr(body)[:20],
)
async def test_json_that_is_no_reply_to_the_call_is_an_error(body):
    async with serve(answering(body)) as server, client() as http:
        failure(await http.post(server.url, json=CALL), Code.NOT_MCP)


async def test_an_id_that_came_back_as_text_is_accepted():
    async with serve(answering({**RESULT, "id": "7"})) as server, client() as http:
        assert (await http.post(server.url, json=CALL)).status_code == 200


@pytest.mark.parametrize("body", [NOTICE, CALL])
async def test_accepted_is_passed_on_whatever_else_is_said(body):
    head = b"HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nAcc"
    async with serve_bytes(head, hold=True) as server, client() as http, asyncio.timeout(3):
        response = await http.post(server.url, json=body)

    assert (response.status_code, response.content) == (202, b"")


async def test_accepted_keeps_the_connection():
    async with serve(answering(b"", status=202)) as server, client() as http:
        for message in (NOTICE, CALL, NOTICE):
            assert (await http.post(server.url, json=message)).status_code == 202

    assert len(server.connections) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_and_nobody_else_gets_the_credentials(status):
    async with serve(answering(RESULT)) as other:
        away = answering(b"", status=status, Location=other.url)
        async with serve(away) as server, client(headers={"Authorization": "Bearer t"}) as http:
            error = failure(await http.post(server.url, json=CALL), Code.REDIRECT)
            with pytest.raises(Failed, match="redirects are not followed"):
                await http.get(server.url)

    assert error["data"] == {"status": status}
    assert not other.connections
    assert len(server.asked) == 2


async def test_a_redirect_within_the_server_is_not_followed_either():
    async with serve(answering(b"", status=307, Location="/mcp/")) as server, client() as http:
        failure(await http.post(server.url, json=CALL, follow_redirects=True), Code.REDIRECT)

    assert [asked.target for asked in server.asked] == ["/mcp"]


async def test_a_refused_address_is_blocked_in_the_guards_words():
    strict = Policy(allow_loopback=False)
    async with serve(answering(RESULT)) as server, client(policy=strict) as http:
        error = failure(await http.post(server.url, json=CALL), Code.BLOCKED)
        with pytest.raises(Failed) as caught:
            await http.get(server.url)

    assert error["message"] == "the URL leads to a loopback address, which is refused"
    assert error["data"] == {"code": "unsafe_url"}
    assert isinstance(caught.value.unsafe, UnsafeURL)
    assert not server.connections


async def test_user_information_never_leaves_even_unchecked():
    async with serve(answering(RESULT)) as server, client() as http:
        url = f"http://user:hunter2@127.0.0.1:{server.port}/"
        error = failure(await http.post(url, json=CALL), Code.BLOCKED)

    assert "hunter2" not in str(error)
    assert not server.connections


async def test_a_refused_connection_certainly_sent_nothing():
    async with client() as http:
        error = failure(await http.post("http://127.0.0.1:1/", json=CALL), Code.TRANSPORT)

    assert error["message"] == "it can't be reached: Connection refused"
    assert error["data"] == {"sent": False}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "it closed the connection without an answer"),
        ([b"SSH-2.0-OpenSSH\r\n"], "its answer is not valid HTTP"),
        (
            [
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
                b'{"js',
            ],
            "the connection broke in the middle of its answer",
        ),
    ],
)
async def test_a_broken_answer_may_have_been_a_call_that_ran(written, words):
    async with serve_bytes(*written) as server, client() as http:
        error = failure(await http.post(server.url, json=CALL), Code.TRANSPORT)

    assert error["message"] == words
    assert error["data"] == {"sent": True}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"


@pytest.mark.parametrize("written", [[], [HEAD], [HEAD, b"{"]])
async def test_silence_has_a_limit(written):
    async with serve_bytes(*written, hold=True) as server, client(read_timeout=0.05) as http:
        error = failure(await http.post(server.url, json=CALL), Code.TRANSPORT)

    assert error["message"] == "it sent nothing for too long"


async def test_a_body_over_the_limit_is_given_up():
    async with serve(answering(b'"' + b"x" * MAX_BODY + b'"')) as server, client() as http:
        error = failure(await http.post(server.url, json=CALL), Code.TOO_LARGE)

    assert error["message"] == f"its answer is larger than {MAX_BODY} bytes"
    assert error["data"] == {"limit": MAX_BODY}


async def test_a_body_without_end_is_given_up():
    async def pour(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" " * 10_000)

    async with serve(pour) as server, client() as http:
        failure(await http.post(server.url, json=CALL), Code.TOO_LARGE)


async def test_a_compressed_body_counts_as_what_it_unpacks_to():
    bomb = answering(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")
    async with serve(bomb) as server, client() as http:
        failure(await http.post(server.url, json=CALL), Code.TOO_LARGE)


async def test_a_header_that_can_not_be_written_certainly_sent_nothing():
    async with serve(answering(RESULT)) as server, client() as http:
        response = await http.post(server.url, json=CALL, headers={"X": "hunter2\r\nY: z"})
        error = failure(response, Code.TRANSPORT)

    assert error["message"] == "it can't be asked"
    assert error["data"] == {"sent": False}
    assert not server.asked


async def test_a_closed_session_is_an_error_too():
    async with Outbound(policy=Policy()) as outbound:
        http = sdk_client(outbound.guarded, headers={}, read_timeout=1, max_body=10)
    failure(await http.post("http://127.0.0.1:1/", json=CALL), Code.TRANSPORT)
    await http.aclose()


@pytest.mark.parametrize("body", [NOTICE, {"jsonrpc": "2.0", "id": 7, "result": {}}])
async def test_a_notice_that_can_not_be_sent_raises_nothing(body):
    async with client() as http:
        response = await http.post("http://127.0.0.1:1/", json=body)

    assert (response.status_code, response.json()["id"]) == (502, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer hunter2\r\nX: y"),
        ("Authorization", "Bearer hunter2\x00"),
        ("Authorization", "Bearer hunter2\u2028é"),
        ("X hunter2", "y"),
        ("", "hunter2"),
    ],
)
async def test_a_header_that_http_does_not_allow_is_refused_without_showing_it(name, value):
    async with Outbound(policy=Policy()) as outbound:
        with pytest.raises(UnsafeHeader) as caught:
            sdk_client(outbound.guarded, headers={name: value}, read_timeout=1, max_body=10)

    assert "hunter2" not in repr(caught.value)


# --- event streams --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cut", [b"", b'data: {"jsonrpc"', b"event: message\ndata: {\n", b": ping\n"]
)
async def test_a_stream_that_stalls_ends_with_the_calls_error(cut):
    async with serve(streaming(cut, hold=True)) as server, client(read_timeout=0.1) as http:
        *_, last = await events(http, server.url)

    assert last.event == "message"
    assert last.json()["id"] == 7
    assert last.json()["error"] == {
        "code": Code.TRANSPORT,
        "message": "it sent nothing for too long",
        "data": {"sent": True},
    }


async def test_a_stream_that_breaks_ends_with_the_calls_error():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n"
    async with serve_bytes(head, b"data: {}\n\nda") as server, client() as http:
        first, _, last = await events(http, server.url)

    assert first.data == "{}"
    assert last.json()["error"]["code"] == Code.TRANSPORT


async def test_a_stream_with_event_ids_is_left_for_the_sdk_to_resume():
    sent = streaming(b"id: 1\ndata:\n\n", hold=True)
    async with serve(sent) as server, client(read_timeout=0.1) as http:
        with pytest.raises(Failed, match="sent nothing"):
            await events(http, server.url)


@pytest.mark.parametrize("line", [b"data: ", b": ", b""])
async def test_a_line_over_a_mebibyte_is_given_up(line):
    sent = streaming(b"id: 1\ndata:\n\n", line, *[b"x" * 2**16] * 17, hold=True)
    async with serve(sent) as server, client(max_body=2**23) as http:
        *_, last = await events(http, server.url)

    assert last.json()["error"]["code"] == Code.TOO_LARGE


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
async def test_many_lines_are_fine_up_to_the_limit_of_the_body(end):
    line = b": " + b"x" * 1000 + end
    short, long = streaming(*[line] * 50, EVENT), streaming(*[line] * 200, EVENT)
    async with serve(short) as fine, serve(long) as over, client() as http:
        assert (await events(http, fine.url))[-1].json() == RESULT
        assert (await events(http, over.url))[-1].json()["error"]["code"] == Code.TOO_LARGE


async def test_the_stream_of_a_get_ends_quietly_in_silence_and_has_no_total_limit():
    line = b": " + b"x" * 1000 + b"\n\n"
    async with (
        serve(streaming(*[line] * 200, hold=True)) as server,
        client(read_timeout=0.2) as http,
        http.stream("GET", server.url) as response,
    ):
        assert len(await response.aread()) == 200 * len(line) > MAX_BODY


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_other_methods_raise_and_their_statuses_are_left_alone(method):
    async with serve(answering(b"", status=405)) as server, client() as http:
        assert (await http.request(method, server.url)).status_code == 405
        with pytest.raises(httpx2.TransportError) as caught:
            await http.request(method, "http://127.0.0.1:1/", headers={"X": "hunter2"})

    assert caught.value.code == Code.TRANSPORT
    assert caught.value.__cause__ is None
    assert "hunter2" not in repr(caught.value)


# --- with the SDK itself --------------------------------------------------------------------------


class McpServer:
    """The smallest server with a session; each tool is a way to fail, `slow` waits for `go`."""

    def __init__(self) -> None:
        self.go, self.begun = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = orjson.loads(request[BODY])
        if "id" not in message:
            return web.Response(status=202)
        headers = {"mcp-session-id": "s"}
        result: dict[str, Any] = {"tools": []}
        match message["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "small", "version": "1"},
                }
            case "tools/call":
                if failed := await self.fail(request, message["params"]["name"]):
                    return failed
                result = {"content": [{"type": "text", "text": "done"}]}
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def fail(self, request: web.BaseRequest, tool: str) -> web.StreamResponse | None:
        match tool:
            case "slow":
                return await self.slow(request)
            case "close":
                assert request.transport
                request.transport.close()
            case "hang":
                await asyncio.Event().wait()
            case "cut":
                return await streaming(b'data: {"json', hold=True)(request)
            case "html":
                return web.Response(text="<html>", content_type="text/html")
            case "redirect":
                return web.Response(status=307, headers={"Location": "/elsewhere"})
            case "large":
                return web.Response(body=b"x" * (MAX_BODY + 1), content_type="application/json")
            case "unauthorized":
                return web.Response(status=401)
        return None

    async def slow(self, request: web.BaseRequest) -> web.StreamResponse:
        """Signs of life until `go`, then the result."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.begun.set()
        while not self.go.is_set():
            await response.write(b": alive\n\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.go.wait(), 0.05)
        message = orjson.loads(request[BODY])
        result = {"content": [{"type": "text", "text": "done"}]}
        reply = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        await response.write(b"data: " + reply + b"\n\n")
        return response


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("close", Code.TRANSPORT),
        ("hang", Code.TRANSPORT),
        ("cut", Code.TRANSPORT),
        ("html", Code.NOT_MCP),
        ("redirect", Code.REDIRECT),
        ("large", Code.TOO_LARGE),
        ("unauthorized", Code.STATUS),
    ],
)
async def test_a_failed_call_leaves_its_session_and_the_calls_beside_it_alone(tool, code):
    small = McpServer()
    async with (
        serve(small) as server,
        client(read_timeout=0.3) as http,
        Client(streamable_http_client(server.url, http_client=http), mode="legacy") as mcp,
    ):
        beside = asyncio.ensure_future(mcp.call_tool("slow", {}))
        await small.begun.wait()
        with pytest.raises(MCPError) as caught:
            await mcp.call_tool(tool, {})
        small.go.set()
        assert (await beside).content[0].text == "done"
        assert (await mcp.call_tool("fine", {})).content[0].text == "done"

    assert caught.value.code == code
