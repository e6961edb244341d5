"""What a provider refuses, how often it is asked, and what its words may tell (spec 3.6)."""

import json
import socket

import pytest
from aiohttp import web

from gateway.upstream import UpstreamRefused
from tests.gateway.calling import (
    ASKED,
    KEY,
    STREAM,
    Pauses,
    calling,
    events,
    failure,
    replying,
    streaming,
)
from tests.orazaka.http_server import serve, serve_bytes

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
