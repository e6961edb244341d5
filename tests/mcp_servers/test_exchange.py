"""What keeps requests and notifications of one session from harming each other."""

import asyncio
from collections.abc import AsyncIterator

import httpx2

from mcp_servers.exchange import Paced


class Flood(httpx2.AsyncByteStream):
    """Chunks of 1000 bytes without end, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += 1
            yield b"x" * 1000


async def test_a_flood_is_read_no_faster_than_its_pace():
    flood = Flood()

    async def read() -> None:
        async for _ in Paced(flood, burst=10_000, rate=20_000):
            pass

    reading = asyncio.create_task(read())
    await asyncio.wait({reading}, timeout=0.3)
    reading.cancel()
    await asyncio.wait({reading}, timeout=5)
    assert 11 <= flood.taken <= 30  # the burst, and what 0.3 s let through


async def test_what_comes_within_its_pace_is_not_held_up():
    async with asyncio.timeout(1):
        chunks = aiter(Paced(Flood(), burst=10_000, rate=1))
        for _ in range(10):
            assert len(await anext(chunks)) == 1000
