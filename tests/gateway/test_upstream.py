"""The way to a provider, over real sockets: what it answers, refuses, breaks off and leaks."""

import asyncio
import gzip
import json
import socket
import time
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import web

from gateway.providers import Limits, Peer, Route
from gateway.sse import DONE, BadStream
from gateway.upstream import MAX_ANSWER, Upstream, UpstreamLate, UpstreamRefused
from gateway.wire import UpstreamError
from orazaka.addresses import Policy
from orazaka.errors import OrazakaError
from orazaka.outbound import Outbound
from tests.orazaka.http_server import BODY, serve, serve_bytes

KEY = "sk-SECRET-0123456789"
ASKED = {"model": "openai:m", "messages": [{"role": "user", "content": "Hi."}]}
STREAM = {**ASKED, "stream": True}
TEXT = {"content-type": "text/event-stream"}
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
TO_THE_END = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Pauses(list):
    """Notes what would be waited between two tries, and does not wait."""

    async def __call__(self, seconds):
        self.append(seconds)


@asynccontextmanager
async def calling(port, *, wire="chat", key=KEY, headers=None, sent=None, pause=None, **limits):
    peer = Peer(
        name="acme",
        bases={},
        key=key,
        headers=headers or {},
        limits=Limits(**{"connect": 2, "first_byte": 5, "silence": 5, **limits}),
    )
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with Outbound(policy=Policy(allow_loopback=True)) as outbound:
        route = Route(peer=peer, model="m-1", url=url)
        pause = Pauses() if pause is None else pause
        yield Upstream(outbound.trusted, route, wire, headers=sent or {}, pause=pause)


async def events(call, body=ASKED):
    async with asyncio.timeout(20):
        return [event async for batch in call(body) for event in batch]


async def failure(call, body=ASKED):
    with pytest.raises(OrazakaError) as caught:
        await events(call, body)
    error = caught.value
    told = f"{error.message} {error!r}"
    assert KEY not in told and "127.0.0.1" not in told
    return error


def replying(status=200, body=b'{"choices": []}', **more):
    async def answer(request):
        headers = more.get("headers") or {"content-type": "application/json"}
        return web.Response(status=status, body=body, headers=headers)

    return answer


def streaming(*parts, hold=False):
    async def answer(request):
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if hold:
            await asyncio.Event().wait()
        return response

    return answer


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- answers


async def test_a_plain_answer_is_one_event():
    async with serve(replying(body=b'{"id": "a", "x": [null]}')) as server:
        async with calling(server.port) as call:
            assert await events(call) == [{"id": "a", "x": [None]}]
    (asked,) = server.asked
    assert asked.method == "POST" and asked.target == "/v1/chat/completions"
    assert json.loads(asked.body) == {**ASKED, "model": "m-1"}
    assert asked.headers["content-type"] == "application/json"


async def test_a_stream_is_its_events_as_they_arrive():
    more = asyncio.Event()

    async def answer(request):
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        await response.write(b': hi\n\ndata: {"a": 1}\n\ndata: {"b"')
        await more.wait()
        await response.write(b": 2}\n\ndata: [DONE]\n\n")
        return response

    async with serve(answer) as server, calling(server.port) as call, asyncio.timeout(5):
        got = []
        async with aclosing(call(STREAM)) as batches:
            async for batch in batches:
                got += batch
                if got == [{"a": 1}]:
                    more.set()
    assert got == [{"a": 1}, {"b": 2}, DONE]
    assert got[-1] is DONE


async def test_the_body_goes_out_as_it_is_but_for_the_model_s_name():
    body = {**ASKED, "x": [None, 1.5, "ü"], "temperature": 0}
    async with serve(replying()) as server, calling(server.port) as call:
        await events(call, body)
    assert json.loads(server.asked[0].body) == {**body, "model": "m-1"}
    assert body["model"] == "openai:m"


async def test_a_connection_is_used_again_after_a_stream_that_ended():
    async with serve(streaming(b'data: {"a": 1}\n\ndata: [DONE]\n\n')) as server:
        async with calling(server.port) as call:
            for _ in range(3):
                assert len(await events(call, STREAM)) == 2
    assert len(server.connections) == 1


async def test_an_answer_in_json_to_a_request_for_a_stream_is_one_event():
    async with serve(replying(body=b'{"choices": [{}]}')) as server, calling(server.port) as call:
        assert await events(call, STREAM) == [{"choices": [{}]}]


async def test_a_stream_that_ends_without_done_just_ends():
    async with serve(streaming(b'data: {"a": 1}')) as server, calling(server.port) as call:
        assert await events(call, STREAM) == [{"a": 1}]


async def test_a_compressed_answer_is_read():
    zipped = gzip.compress(b'{"a": 1}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    async with serve(replying(body=zipped, headers=headers)) as server:
        async with calling(server.port) as call:
            assert await events(call) == [{"a": 1}]


async def test_done_and_then_silence_does_not_hang():
    parts = [b'data: {"a": 1}\n\n', b"data: [DONE]\n\n: bye\n\n"]
    async with serve(streaming(*parts, hold=True)) as server, calling(server.port) as call:
        began = time.monotonic()
        assert await events(call, STREAM) == [{"a": 1}, DONE]
        assert time.monotonic() - began < 3


async def test_nothing_counts_after_done():
    raw = b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"b": 2}\n\ndata: garbage\n\n'
    async with serve(streaming(raw, hold=True)) as server, calling(server.port) as call:
        assert await events(call, STREAM) == [{"a": 1}, DONE]


# --- headers


async def test_our_key_goes_to_the_provider_in_the_api_s_own_header():
    async with serve(replying()) as server:
        async with calling(server.port) as call:
            await events(call)
        async with calling(server.port, wire="messages") as call:
            await events(call)
        async with calling(server.port, key="") as call:
            await events(call)
    chat, messages, keyless = (asked.headers for asked in server.asked)
    assert chat["authorization"] == f"Bearer {KEY}" and "x-api-key" not in chat
    assert messages["x-api-key"] == KEY and "authorization" not in messages
    assert messages["anthropic-version"] == "2023-06-01"
    assert not {"authorization", "x-api-key"} & keyless.keys()


async def test_the_operator_s_headers_win_over_ours_and_the_caller_s_over_both():
    given = {"Authorization": "Basic abc", "X-Title": "Orazaka", "Anthropic-Version": "2024-01-01"}
    sent = {"anthropic-version": "2025-01-01", "openai-beta": "x=1"}
    async with serve(replying()) as server:
        async with calling(server.port, wire="messages", headers=given, sent=sent) as call:
            await events(call)
    headers = server.asked[0].headers
    assert headers["authorization"] == "Basic abc"
    assert headers["x-title"] == "Orazaka"
    assert headers["anthropic-version"] == "2025-01-01"
    assert headers["openai-beta"] == "x=1"


async def test_a_header_is_sent_once_however_its_letters_are_written():
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    heads = []

    async def talk(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, calling(port, headers={"AUTHORIZATION": "Basic abc"}) as call:
        await events(call)
    names = [line.split(b":")[0].lower() for line in heads[0].splitlines()[1:] if line]
    assert len(names) == len(set(names))


async def test_the_provider_s_rate_limits_come_back_those_of_the_last_answer():
    given = iter(["9", "8"])

    async def answer(request):
        headers = {"x-ratelimit-remaining-requests": next(given), "x-other": "1"}
        return web.json_response({}, headers=headers)

    async with serve(answer) as server, calling(server.port) as call:
        await events(call)
        await events(call)
        assert {k.lower(): v for k, v in call.back.items()} == {
            "x-ratelimit-remaining-requests": "8"
        }


async def test_the_rate_limits_of_a_refusal_come_back_too():
    headers = {"x-ratelimit-reset-requests": "60s", "retry-after": "60", "server": "x"}
    async with serve(replying(429, headers=headers)) as server, calling(server.port) as call:
        assert (await failure(call)).retry_after == 60
        assert {k.lower() for k in call.back} == {"x-ratelimit-reset-requests", "retry-after"}


# --- refusals

SAID = json.dumps({"error": {"message": "no such thing", "type": "x"}}).encode()
MAPPED = [
    (400, 400, "upstream_refused", True),
    (404, 404, "upstream_refused", True),
    (422, 400, "upstream_refused", True),
    (401, 502, "upstream_error", False),
    (403, 502, "upstream_error", False),
    (402, 502, "upstream_error", False),
    (405, 502, "upstream_error", False),
    (408, 502, "upstream_error", False),
    (409, 502, "upstream_error", False),
    (413, 502, "upstream_error", False),
    (418, 502, "upstream_error", False),
    (429, 429, "rate_limit_exceeded", True),
    (500, 502, "upstream_error", False),
    (502, 502, "upstream_error", False),
    (503, 502, "upstream_error", False),
    (504, 502, "upstream_error", False),
    (529, 502, "upstream_error", False),
]


@pytest.mark.parametrize("body", [ASKED, STREAM], ids=["plain", "streamed"])
@pytest.mark.parametrize(("status", "ours", "code", "words"), MAPPED)
async def test_each_status_has_its_own_answer(status, ours, code, words, body):
    async with serve(replying(status, SAID)) as server, calling(server.port) as call:
        error = await failure(call, body)
    assert isinstance(error, UpstreamRefused)
    assert (error.status, error.code) == (ours, code)
    assert ("no such thing" in error.message) is words
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_the_gateway_s_and_the_caller_is_told_so(status):
    async with serve(replying(status, SAID)) as server, calling(server.port) as call:
        message = (await failure(call)).message
    assert message == f"the provider acme refused the gateway's key ({status})"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "too long"}', "too long"),
        (b'{"type": "error", "error": {"type": "x", "message": "too long"}}', "too long"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"detail": "too long"}', "too long"),
        (b'{"detail": [{"loc": ["body", "x"], "msg": "too long"}]}', "too long"),
        (b'{"message": {"detail": [{"msg": "too long"}]}}', "too long"),
        (b'{"error": {"message": ""}}', "the provider reported an error"),
        (b"{}", "the provider reported an error"),
        (b"[]", "the provider acme answered with the status 400"),
        (b"<html>too long</html>", "the provider acme answered with the status 400"),
        (b"", "the provider acme answered with the status 400"),
        (b"\xff\xfe", "the provider acme answered with the status 400"),
    ],
)
async def test_a_refusal_is_told_in_the_provider_s_words_whatever_their_form(body, words):
    async with serve(replying(400, body)) as server, calling(server.port) as call:
        assert words in (await failure(call)).message


async def test_a_refusal_is_not_told_at_any_length():
    body = json.dumps({"error": {"message": "x" * 100_000}}).encode()
    async with serve(replying(400, body)) as server, calling(server.port) as call:
        assert (await failure(call)).message == "x" * 2000


REPEATING = f"Incorrect API key provided: {KEY}. See header-{KEY}-value."


@pytest.mark.parametrize("form", ["refusal", "plain", "stream", "stream as text", "rate limit"])
async def test_a_secret_that_the_provider_repeats_goes_no_further(form):
    said = {"error": {"message": REPEATING, "code": "x"}}
    if form == "stream as text":
        said = {"error": REPEATING}
    raw = json.dumps(said).encode()
    answer = {
        "refusal": replying(400, raw),
        "rate limit": replying(429, raw),
        "plain": replying(200, raw),
    }.get(form) or streaming(b'data: {"a": 1}\n\ndata: ' + raw + b"\n\n")
    headers = {"x-extra": f"Token header-{KEY}-value"}
    async with serve(answer) as server, calling(server.port, headers=headers) as call:
        if form in ("refusal", "rate limit"):
            told = (await failure(call)).message
        else:
            got = await events(call, STREAM if "stream" in form else ASKED)
            told = json.dumps(got)
            assert got[-1]["error"]
    assert "Incorrect API key provided" in told
    assert KEY not in told


async def test_a_provider_s_error_in_a_stream_keeps_its_other_members():
    said = b'data: {"type": "error", "error": {"type": "overloaded", "message": "busy"}}\n\n'
    async with serve(streaming(said)) as server, calling(server.port) as call:
        (event,) = await events(call, STREAM)
    assert event == {"type": "error", "error": {"type": "overloaded", "message": "busy"}}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_that_says_so_and_is_not_followed(status):
    headers = {"location": "http://127.0.0.1:1/elsewhere"}
    async with serve(replying(status, headers=headers)) as server, calling(server.port) as call:
        error = await failure(call)
    assert (error.status, error.code) == (502, "upstream_error")
    assert "redirect" in error.message and str(status) in error.message
    assert len(server.asked) == 1


# --- tries


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("after", ["0", "5", "0.5", "-1"])
async def test_a_short_wait_that_the_provider_asks_for_is_waited(status, after):
    pauses = Pauses()
    answers = iter([status, status, 200])

    async def answer(request):
        return web.json_response({"a": 1}, status=next(answers), headers={"retry-after": after})

    async with serve(answer) as server, calling(server.port, pause=pauses) as call:
        assert await events(call) == [{"a": 1}]
    assert len(server.asked) == 3
    assert pauses == [max(0.0, float(after))] * 2


@pytest.mark.parametrize(("status", "ours"), [(429, 429), (503, 502)])
async def test_two_tries_more_and_then_the_refusal_is_passed_on(status, ours):
    answer = replying(status, SAID, headers={"retry-after": "1"})
    async with serve(answer) as server, calling(server.port) as call:
        error = await failure(call)
    assert len(server.asked) == 3
    assert error.status == ours
    assert error.retry_after == (1 if ours == 429 else None)


LONG = {
    "six seconds": ("6", 6),
    "an hour": ("3600", 3600),
    "a date": ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    "words": ("soon", None),
    "nothing": ("", None),
    "for ever": ("inf", None),
    "beyond all": ("1e999", None),
    "not a number": ("nan", None),
}


@pytest.mark.parametrize(("after", "told"), LONG.values(), ids=LONG)
async def test_a_long_wait_is_the_client_s(after, told):
    answer = replying(429, SAID, headers={"retry-after": after})
    async with serve(answer) as server, calling(server.port) as call:
        error = await failure(call)
    assert len(server.asked) == 1
    assert (error.status, error.retry_after) == (429, told)


@pytest.mark.parametrize("status", [500, 502, 504, 408, 409, 400])
async def test_other_refusals_are_not_tried_again(status):
    answer = replying(status, SAID, headers={"retry-after": "0"})
    async with serve(answer) as server, calling(server.port) as call:
        await failure(call)
    assert len(server.asked) == 1


async def test_a_provider_that_can_not_be_reached_is_tried_twice_more():
    pauses = Pauses()
    async with calling(free_port(), pause=pauses) as call:
        error = await failure(call)
    assert (error.status, error.code) == (502, "upstream_error")
    assert error.message == "the provider acme can't be reached"
    assert pauses == sorted(pauses) and len(pauses) == 2 and 0 < sum(pauses) < 2


async def test_a_provider_that_comes_up_in_between_is_used():
    port, runner = free_port(), web.ServerRunner(web.Server(replying(body=b'{"a": 1}')))

    async def start(seconds):
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()

    async with calling(port, pause=start) as call:
        assert await events(call) == [{"a": 1}]
    await runner.cleanup()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", b"\x16\x03\x01garbage\r\n\r\n"])
async def test_a_connection_that_breaks_before_an_answer_is_not_tried_again(head):
    async with serve_bytes(head) as server, calling(server.port) as call:
        error = await failure(call)
    assert (error.status, error.code) == (502, "upstream_error")
    assert "broke off before it answered" in error.message
    assert len(server.connections) == 1


@pytest.mark.parametrize("key", ["sk-with\nline", "sk-with\r\nx: y"])
async def test_a_key_that_is_no_header_is_an_error_and_no_second_header(key):
    async with serve(replying()) as server, calling(server.port, key=key) as call:
        error = await failure(call)
    assert error.status == 502 and "sk-with" not in error.message
    assert server.asked == []


# --- limits


async def test_silence_before_the_first_byte_is_504():
    async def silent(request):
        await asyncio.Event().wait()

    async with serve(silent) as server:
        async with calling(server.port, connect=0.1, first_byte=0.1) as call:
            error = await failure(call)
    assert isinstance(error, UpstreamLate)
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert "0.1 seconds" in error.message and "did not answer" in error.message
    assert len(server.asked) == 1


async def test_the_first_byte_may_take_longer_than_a_later_silence():
    async def thinking(request):
        await asyncio.sleep(0.3)
        return web.json_response({"a": 1})

    async with serve(thinking) as server, calling(server.port, silence=0.05) as call:
        assert await events(call) == [{"a": 1}]


@pytest.mark.parametrize("body", [ASKED, STREAM], ids=["plain", "streamed"])
async def test_silence_in_the_middle_is_504(body):
    async with serve(streaming(b'data: {"a": 1}\n\n', hold=True)) as server:
        async with calling(server.port, silence=0.1) as call:
            got = []
            with pytest.raises(UpstreamLate, match=r"went silent within 0\.1 seconds"):
                async with asyncio.timeout(5):
                    async for batch in call(body):
                        got += batch
    assert got == ([{"a": 1}] if body is STREAM else [])


async def test_a_stream_may_last_longer_than_its_silences():
    async def slow(request):
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        for n in range(4):
            await asyncio.sleep(0.1)
            await response.write(b'data: {"n": %d}\n\n' % n)
        return response

    async with serve(slow) as server, calling(server.port, silence=0.3, first_byte=0.3) as call:
        assert len(await events(call, STREAM)) == 4


async def test_a_host_that_does_not_accept_is_504():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):  # until the queue of the listening socket is full
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        async with calling(port, connect=0.2, first_byte=0.2) as call:
            error = await failure(call)
        for one in waiting:
            one.close()
    assert error.status == 504
    assert "did not accept a connection within 0.2 seconds" in error.message


# --- broken answers


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + chunk(b'data: {"a": 1}\n\n') + b"5\r\nda",
        CHUNKED + chunk(b'data: {"a": 1}\n\n'),
        TO_THE_END.replace(b"close\r\n", b"close\r\nContent-Length: 999\r\n")
        + b'data: {"a": 1}\n\n',
        CHUNKED + chunk(b'data: {"a": 1}\n\n') + b"nonsense\r\n",
    ],
    ids=["in a chunk", "between chunks", "before its length", "in garbage"],
)
async def test_a_stream_that_is_cut_is_an_error_after_what_came(raw):
    async with serve_bytes(raw) as server, calling(server.port) as call:
        got = []
        with pytest.raises(UpstreamError, match="broke off its answer"):
            async with asyncio.timeout(5):
                async for batch in call(STREAM):
                    got += batch
    assert got == [{"a": 1}]


async def test_garbage_in_a_stream_is_an_error_after_what_came():
    async with serve(streaming(b'data: {"a": 1}\n\ndata: {"a":\n\n')) as server:
        async with calling(server.port) as call:
            got = []
            with pytest.raises(BadStream):
                async for batch in call(STREAM):
                    got += batch
    assert got == [{"a": 1}]


@pytest.mark.parametrize("body", [b"<html>", b"", b"{", b"[1]", b"null", b"\xff", b"[" * 9999])
async def test_a_plain_answer_that_is_not_a_json_object_is_an_error(body):
    async with serve(replying(body=body)) as server, calling(server.port) as call:
        error = await failure(call)
    assert (error.status, error.code) == (502, "upstream_error")
    assert "not JSON" in error.message or "not a JSON object" in error.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_an_answer_that_is_not_compressed_as_it_says_is_an_error(encoding):
    headers = {"content-type": "application/json", "content-encoding": encoding}
    for body in (ASKED, STREAM):
        async with serve(replying(body=b"garbage", headers=headers)) as server:
            async with calling(server.port) as call:
                assert (await failure(call, body)).status == 502


async def test_a_web_page_instead_of_a_stream_has_no_events():
    headers = {"content-type": "text/html"}
    async with serve(replying(body=b"<html>Sign in</html>", headers=headers)) as server:
        async with calling(server.port) as call:
            assert await events(call, STREAM) == []


@pytest.mark.parametrize("body", [ASKED, STREAM], ids=["plain", "streamed"])
async def test_an_answer_of_any_size_is_refused_at_the_limit(body):
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        while True:
            await response.write(b'data: {"a": "' + b"x" * 2**18 + b'"}\n\n')
            sent += 2**18

    async with serve(endless) as server, calling(server.port) as call:
        assert "too large" in (await failure(call, body)).message
    assert sent < 2 * MAX_ANSWER


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_refused():
    bomb = gzip.compress(b'{"a": "' + b"x" * MAX_ANSWER + b'"}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    async with serve(replying(body=bomb, headers=headers)) as server:
        async with calling(server.port) as call:
            assert "too large" in (await failure(call)).message


async def test_a_refusal_that_never_ends_does_not_hang():
    async def endless(request):
        response = web.StreamResponse(status=400, headers={"content-type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"error": ')
        await asyncio.Event().wait()

    async with serve(endless) as server, calling(server.port, silence=0.1) as call:
        error = await failure(call)
    assert (error.status, error.message) == (400, "the provider acme answered with the status 400")


# --- the end of a call


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_the_connection_is_closed_with_the_call(how):
    gone = asyncio.Event()

    async def answer(request):
        response = web.StreamResponse(headers=TEXT)
        await response.prepare(request)
        await response.write(b'data: {"a": 1}\n\n')
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with serve(answer) as server, calling(server.port) as call, asyncio.timeout(5):
        batches = call(STREAM)
        assert await anext(batches) == [{"a": 1}]
        if how == "closed":
            await batches.aclose()
        else:
            task = asyncio.create_task(anext(batches))
            asyncio.get_running_loop().call_later(0.05, task.cancel)
            await asyncio.wait([task])
            assert task.cancelled()
        await gone.wait()


async def test_a_call_that_is_cancelled_before_the_answer_is_closed_too():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(request):
        assert request[BODY]
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with serve(answer) as server, calling(server.port) as call, asyncio.timeout(5):
        task = asyncio.create_task(events(call))
        await asked.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await gone.wait()


async def test_a_key_shows_in_no_repr():
    peer = Peer(name="acme", bases={}, key=KEY, headers={"x": KEY})
    assert KEY not in repr(Route(peer=peer, model="m", url="http://a"))
