"""The way to a provider, over real sockets: what it answers, breaks off and takes too long for."""

import asyncio
import gzip
import json
import socket
import time
from contextlib import aclosing

import pytest
from aiohttp import web

from gateway.providers import Peer, Route
from gateway.sse import DONE
from gateway.upstream import UpstreamLate
from tests.gateway.calling import (
    ASKED,
    KEY,
    STREAM,
    TEXT,
    calling,
    events,
    failure,
    replying,
    streaming,
)
from tests.orazaka.http_server import BODY, serve

# --- answers


async def test_a_plain_answer_is_one_event():
    async with (
        serve(replying(body=b'{"id": "a", "x": [null]}')) as server,
        calling(server.port) as call,
    ):
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
    async with (
        serve(streaming(b'data: {"a": 1}\n\ndata: [DONE]\n\n')) as server,
        calling(server.port) as call,
    ):
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
    async with (
        serve(replying(body=zipped, headers=headers)) as server,
        calling(server.port) as call,
    ):
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
    async with (
        serve(replying()) as server,
        calling(server.port, wire="messages", headers=given, sent=sent) as call,
    ):
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


# --- limits


async def test_silence_before_the_first_byte_is_504():
    async def silent(request):
        await asyncio.Event().wait()

    async with serve(silent) as server, calling(server.port, connect=0.1, first_byte=0.1) as call:
        error = await failure(call)
    assert isinstance(error, UpstreamLate)
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert "0.1 seconds" in error.message and "did not answer" in error.message
    assert len(server.asked) == 1


async def test_the_first_byte_may_take_longer_than_a_later_silence():
    async def thinking(request):
        await asyncio.sleep(0.4)
        return web.json_response({"a": 1})

    async with serve(thinking) as server, calling(server.port, silence=0.2) as call:
        assert await events(call) == [{"a": 1}]


@pytest.mark.parametrize("body", [ASKED, STREAM], ids=["plain", "streamed"])
async def test_silence_in_the_middle_is_504(body):
    async with (
        serve(streaming(b'data: {"a": 1}\n\n', hold=True)) as server,
        calling(server.port, silence=0.1) as call,
    ):
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
            await asyncio.sleep(0.15)
            await response.write(b'data: {"n": %d}\n\n' % n)
        return response

    async with serve(slow) as server, calling(server.port, silence=0.5, first_byte=0.5) as call:
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
