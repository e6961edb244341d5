"""A bare ASGI relay: the least that a Python process in the middle of a stream can cost."""

import aiohttp

from benchmarks.asgi import Receive, Scope, Send, begin, read, write

_sessions: list[aiohttp.ClientSession] = []


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Send the body on to the URL in the header `x-to`, and its answer back as it comes."""
    url = dict(scope["headers"])[b"x-to"].decode()
    raw = await read(receive)
    async with _session().post(
        url, data=raw, headers={"content-type": "application/json"}
    ) as answer:
        kind = answer.headers["content-type"].encode()
        await begin(send, (b"content-type", kind), status=answer.status)
        async for part in answer.content.iter_any():
            await write(send, part)
    await write(send, b"", more=False)


def _session() -> aiohttp.ClientSession:
    """One for the life of the process, made on its loop."""
    if not _sessions:
        _sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    return _sessions[0]
