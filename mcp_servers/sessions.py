"""Sessions kept from turn to turn: one per server, principal and credentials (spec 2.2).

Each has one owner task, which opens, keeps and closes it; requests only talk to it, from their own
tasks. The owner runs in an empty context: a session outlives the request that opened it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

from mcp_servers.client import Connection, Endpoint, Key, Listing
from mcp_servers.faults import Fault, Late, Lost, Unreachable
from orazaka.errors import OrazakaError
from tools.base import Json

logger = logging.getLogger(__name__)


class Connect(Protocol):
    """Opens a connection (`Connector.connect`)."""

    def __call__(
        self, endpoint: Endpoint, *, on_change: Callable[[], None]
    ) -> AbstractAsyncContextManager[Connection]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds. `open` is for a session to be ready, `list` for a whole tools/list with it,
    `call_max` for a call that progress extends, `close` for leaving."""

    open: float = 15
    list: float = 15
    call_max: float = 300
    close: float = 5


class TooManySessions(OrazakaError):
    """All sessions that this process may have are in use."""

    status = 503
    code = "too_many_mcp_sessions"


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
        self._retired = self._closing = False
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
        if not task.cancelled():
            task.exception()  # seen: the caller may have left before

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
            # Its text may hold what the server sent; the type says enough.
            logger.warning("an MCP session broke: %s", type(error).__name__)
            self._fault = Unreachable("the session broke")
        finally:
            self._end()
            self._ready.set()

    def _end(self) -> None:
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


class _CallClock:
    """The limit of one call: so many seconds after its start and after each sign of progress."""

    def __init__(self, limit: float, longest: float) -> None:
        now = asyncio.get_running_loop().time()
        self._limit, self._latest = limit, now + longest
        self._started = now
        self.running = asyncio.timeout_at(now + limit)

    @property
    def given(self) -> float:
        """Seconds that the call has had, or would have had."""
        return round((self.running.when() or self._latest) - self._started, 1)

    def extend(self) -> None:
        now = asyncio.get_running_loop().time()
        with suppress(RuntimeError):  # progress that comes when the call is over
            self.running.reschedule(min(now + self._limit, self._latest))


class SessionPool:
    """The sessions of one process. `on_change` hears the key of a server whose tool list changed.

    At `cap` the one that is idle longest makes room, else TooManySessions is raised.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        on_change: Callable[[Key], None] = lambda _: None,
        idle: float = 300,
        cap: int = 200,
        limits: Limits | None = None,
    ) -> None:
        self._connect = connect
        self._on_change = on_change
        self._idle = idle
        self._cap = cap
        self._limits = limits or Limits()
        self._kept: dict[Key, Session] = {}
        self._all: set[Session] = set()
        self.opened = 0

    @property
    def kept(self) -> int:
        """Sessions that a next request could use."""
        return len(self._kept)

    @property
    def alive(self) -> int:
        """Owner tasks, those of retired and closing sessions included."""
        return len(self._all)

    @property
    def busy(self) -> int:
        """Requests under way."""
        return sum(session.busy for session in self._all)

    async def list_tools(self, endpoint: Endpoint) -> Listing:
        """All tools of a server. Raises a `Fault`, or TooManySessions."""
        limit = self._limits.list
        try:
            async with asyncio.timeout(limit):
                return await self._ask(endpoint, lambda connection: connection.list_tools())
        except TimeoutError:
            raise Late(f"it did not answer within {limit:g} s", ran=False) from None

    async def call(
        self, endpoint: Endpoint, name: str, arguments: Mapping[str, Json]
    ) -> dict[str, Json]:
        """The result object of one tools/call, opening included in its limit.

        Sent twice only if the first was certainly not accepted. Raises a `Fault`, or
        TooManySessions.
        """
        limit = min(endpoint.call_timeout, self._limits.call_max)
        clock = _CallClock(limit, self._limits.call_max)
        sent = False

        def work(connection: Connection) -> Awaitable[dict[str, Json]]:
            nonlocal sent
            sent = True
            return connection.call(name, arguments, on_progress=clock.extend)

        try:
            async with clock.running:
                return await self._ask(endpoint, work)
        except TimeoutError:
            raise Late(f"it did not answer within {clock.given:g} s", ran=sent) from None

    def retire(self, key: Key) -> None:
        """Let the session of a key end when unused: its credentials are no longer valid."""
        if session := self._kept.pop(key, None):
            session.retire()

    async def aclose(self) -> None:
        """Close all sessions, those in use included."""
        self._kept.clear()
        await asyncio.gather(*(session.close() for session in self._all))

    async def _ask[T](self, endpoint: Endpoint, work: Callable[[Connection], Awaitable[T]]) -> T:
        session = self._session(endpoint)
        try:
            return await session.run(work)
        except Lost:
            self._retire(endpoint.key, session)
        return await self._session(endpoint).run(work)

    def _session(self, endpoint: Endpoint) -> Session:
        key = endpoint.key
        if session := self._kept.get(key):
            return session
        self._make_room()
        session = self._kept[key] = Session(
            self._connect(endpoint, on_change=lambda: self._on_change(key)),
            idle=self._idle,
            limits=self._limits,
            on_end=lambda session: self._forget(key, session),
        )
        self._all.add(session)
        session.owner.add_done_callback(lambda _: self._all.discard(session))
        self.opened += 1
        return session

    def _make_room(self) -> None:
        if sum(not session.leaving for session in self._all) < self._cap:
            return
        idle = [(kept.last_used, key) for key, kept in self._kept.items() if not kept.busy]
        if not idle:
            raise TooManySessions(f"all {self._cap} sessions with MCP servers are in use")
        self.retire(min(idle)[1])

    def _retire(self, key: Key, session: Session) -> None:
        self._forget(key, session)
        session.retire()

    def _forget(self, key: Key, session: Session) -> None:
        # Only itself: a newer session of the same key is not its business (case B85).
        if self._kept.get(key) is session:
            del self._kept[key]
