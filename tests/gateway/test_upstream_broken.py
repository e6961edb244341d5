"""Answers of a provider that break off, are not what they say, or never end."""

import asyncio
import gzip

import pytest
from aiohttp import web

from gateway.sse import BadStream
from gateway.upstream import MAX_ANSWER
from gateway.wire import UpstreamError
from tests.gateway.calling import (
    ASKED,
    CHUNKED,
    STREAM,
    TEXT,
    TO_THE_END,
    calling,
    chunk,
    events,
    failure,
    replying,
    streaming,
)
from tests.orazaka.http_server import serve, serve_bytes


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + chunk(b'data: {"a": 1}\n\n') + b"5\r\nda",
        CHUNKED + chunk(b'data: {"a": 1}\n\n'),
        TO_THE_END.replace(b"close\r\n", b"close\r\nContent-Length: 999\r\n")
        + b'data: {"a": 1}\n\n',
    ],
    ids=["in a chunk", "between chunks", "before its length"],
)
async def test_a_stream_that_is_cut_is_an_error_after_what_came(raw):
    async with serve_bytes(raw) as server, calling(server.port) as call:
        got = []
        with pytest.raises(UpstreamError, match="broke off its answer"):
            async with asyncio.timeout(5):
                async for batch in call(STREAM):
                    got += batch
    assert got == [{"a": 1}]


async def test_garbage_between_chunks_is_an_error():
    raw = CHUNKED + chunk(b'data: {"a": 1}\n\n') + b"nonsense\r\n"
    async with serve_bytes(raw) as server, calling(server.port) as call:
        assert isinstance(await failure(call, STREAM), UpstreamError)


async def test_garbage_in_a_stream_is_an_error_after_what_came():
    async with (
        serve(streaming(b'data: {"a": 1}\n\ndata: {"a":\n\n')) as server,
        calling(server.port) as call,
    ):
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
        async with (
            serve(replying(body=b"garbage", headers=headers)) as server,
            calling(server.port) as call,
        ):
            assert (await failure(call, body)).status == 502


async def test_a_web_page_instead_of_a_stream_has_no_events():
    headers = {"content-type": "text/html"}
    async with (
        serve(replying(body=b"<html>Sign in</html>", headers=headers)) as server,
        calling(server.port) as call,
    ):
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
    async with serve(replying(body=bomb, headers=headers)) as server, calling(server.port) as call:
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
