"""Between a turn and its response: output is held until the response has begun, then written
through by the turn's own task, so that no second task wakes for each event."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway import sse

Write = Callable[[bytes], Awaitable[None]]

UNREAD_SECONDS = 120  # for a client that stays and does not read
ROOM = 2**20  # bytes that are held for a response that has not begun, before the turn waits


class Outlet:
    """One turn's way out. The turn uses `put`, `note` and `close`, the response the rest."""

    def __init__(self) -> None:
        self.begun = False  # whether the client can't be given another status any more
        self._held: list[bytes] = []
        self._write: Write | None = None
        self._over = False
        self._moved = asyncio.Event()  # something for the response to look at
        self._room = asyncio.Event()
        self._last = 0.0

    async def put(self, data: bytes) -> None:
        """Send a part; waits when the client is slow."""
        self.begun = True
        if self._write is None:
            self._hold(data)
            if sum(map(len, self._held)) > ROOM:
                await self._room.wait()
            return
        if self._held:
            data, self._held = b"".join([*self._held, data]), []
        self._last = asyncio.get_running_loop().time()
        await self._write(data)

    def note(self, data: bytes) -> None:
        """Send a part soon, without waiting; it does not begin the response."""
        self._hold(data)

    def close(self) -> None:
        """Nothing more will come."""
        self._over = True
        self._moved.set()

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._moved.set()

    async def opened(self, seconds: float) -> None:
        """Wait for the first part or the end, at most so long; from then on it has begun, unless
        the turn ended without a part."""
        try:
            async with asyncio.timeout(seconds):
                while not (self.begun or self._over):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            self.begun = True

    async def drain(self, write: Write, *, keepalive: float) -> None:
        """Write all there is and will be, and a sign of life after `keepalive` seconds of silence.
        Returns at the end of the turn. Raises TimeoutError if the client does not read."""
        clock = asyncio.get_running_loop().time
        while True:
            self._moved.clear()
            while self._held:
                data, self._held = b"".join(self._held), []
                self._last = clock()
                async with asyncio.timeout(UNREAD_SECONDS):
                    await write(data)
            if self._over:
                return
            self._write = write
            self._room.set()
            try:
                async with asyncio.timeout_at(self._last + keepalive):
                    await self._moved.wait()
            except TimeoutError:
                if clock() >= self._last + keepalive:
                    self.note(sse.comment(b"keep-alive"))
