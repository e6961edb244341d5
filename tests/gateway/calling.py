"""A provider's endpoint on loopback as a test scripts it, and one turn's way to it."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gateway.providers import Limits, Peer, Route
from gateway.upstream import Upstream
from orazaka.addresses import Policy
from orazaka.errors import OrazakaError
from orazaka.outbound import Outbound

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
    """The way to a provider at that port; `pause` waits between two tries."""
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
    """All events of one model call."""
    async with asyncio.timeout(20):
        return [event async for batch in call(body) for event in batch]


async def failure(call, body=ASKED):
    """The error that a model call ends with; it must tell neither our key nor an address."""
    with pytest.raises(OrazakaError) as caught:
        await events(call, body)
    error = caught.value
    told = f"{error.message} {error!r}"
    assert KEY not in told and "127.0.0.1" not in told
    return error


def replying(status=200, body=b'{"choices": []}', **more):
    """A server's whole answer."""

    async def answer(request):
        headers = more.get("headers") or {"content-type": "application/json"}
        return web.Response(status=status, body=body, headers=headers)

    return answer


def streaming(*parts, hold=False):
    """A server's answer in parts; with `hold` it never ends."""

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
    """Data as one chunk of HTTP/1.1's chunked coding."""
    return b"%x\r\n%s\r\n" % (len(data), data)
