"""One session with a server and the task that owns it (design, decision 3).

The owner opens, keeps and closes the connection; requests only talk to it, from their own tasks.
It runs in an empty context, since a session outlives the request that opened it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from dataclasses import dataclass

from mcp_servers.client import Connection
from mcp_servers.faults import Fault, Late, Lost, Unreachable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds. `open` is for a session to be ready, `list` for a whole tools/list with it,
    `call_max` for a call that progress extends, `close` for leaving."""

    open: float = 15
    list: float = 15
    call_max: float = 300
    close: float = 5


class Session:
    """A connection and its owner task. It ends when idle, retired or closed."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[Connection],
        *,
        idle: float,
        limits: Limits,
        on_end: "Callable[[Session], None]",
    ) -> None:
        self._idle = idle
        self._limits = limits
        self._on_end = on_end
        self._connection: Connection | None = None
        self._fault: Fault | None = None
        self._ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._retired = self._closing = self._over = False
        self._last_used = time.monotonic()
        self._running: set[asyncio.Task[object]] = set()
        self.owner = asyncio.get_running_loop().create_task(
            self._own(opening), name="mcp-session", context=Context()
        )

    @property
    def busy(self) -> int:
        """How many requests are using it."""
        return len(self._running)

    @property
    def last_used(self) -> float:
        """When the last request ended, on the monotonic clock."""
        return self._last_used

    @property
    def leaving(self) -> bool:
        """Whether it takes no part any more and only closes."""
        return self._closing or (self._retired and not self._running)

    async def run[T](self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of `work`, which is cancelled with the caller; its clean-up goes on behind.

        Raises a `Fault`.
        """
        task = asyncio.create_task(self._run(work))
        self._running.add(task)
        task.add_done_callback(self._ran)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        return task.result()

    def retire(self) -> None:
        """Let it end as soon as nobody uses it; nobody new will."""
        self._retired = True
        self._wake.set()

    async def close(self) -> None:
        """End it now."""
        self._closing = True
        self._wake.set()
        if self._ready.is_set():
            await asyncio.wait({self.owner}, timeout=self._limits.close)
        self.owner.cancel()
        await asyncio.wait({self.owner}, timeout=1)

    async def _run[T](self, work: Callable[[Connection], Awaitable[T]]) -> T:
        await self._ready.wait()
        if self._connection is None:
            raise self._fault.again() if self._fault else Lost("its session ended")
        return await work(self._connection)

    def _ran(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        self._last_used = time.monotonic()
        if self._retired:
            self._wake.set()
        if not self._running and not self._ready.is_set():
            self._abandon()
        if not task.cancelled():
            task.exception()  # seen: the caller may have left before

    def _abandon(self) -> None:
        """Give the opening up: nobody waits for it any more (case B81)."""
        self._closing = True
        self._end()
        self.owner.cancel()

    async def _own(self, opening: AbstractAsyncContextManager[Connection]) -> None:
        try:
            async with asyncio.timeout(self._limits.open) as clock, opening as connection:
                clock.reschedule(None)
                self._connection = connection
                self._ready.set()
                await self._until_unused()
                self._end()
                clock.reschedule(asyncio.get_running_loop().time() + self._limits.close)
        except Fault as fault:
            self._fault = fault
        except TimeoutError:
            self._fault = Late(f"it did not answer within {self._limits.open:g} s", ran=False)
        except Exception as error:
            if not self._over:  # the SDK stumbles over answers that come while it leaves
                # Its text may hold what the server sent; the type says enough.
                logger.warning("an MCP session broke: %s", type(error).__name__)
                self._fault = Unreachable("the session broke")
        finally:
            self._end()
            self._ready.set()

    def _end(self) -> None:
        self._over = True
        self._connection = None
        self._on_end(self)

    async def _until_unused(self) -> None:
        while not self._closing:
            rest = self._last_used + self._idle - time.monotonic()
            if not self._running and (self._retired or rest <= 0):
                return
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._idle if self._running else rest):
                    await self._wake.wait()
