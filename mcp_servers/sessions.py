"""Sessions kept from turn to turn: one per server, principal and credentials (spec 2.2)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

from mcp_servers.client import Connection, Endpoint, Key, Listing
from mcp_servers.faults import Late, Lost, Unreachable
from mcp_servers.session import Limits, Session
from orazaka.errors import OrazakaError
from tools.base import Json

__all__ = ["Connect", "Limits", "SessionPool", "TooManySessions"]


class Connect(Protocol):
    """Opens a connection (`Connector.connect`)."""

    def __call__(
        self, endpoint: Endpoint, *, on_change: Callable[[], None]
    ) -> AbstractAsyncContextManager[Connection]: ...


class TooManySessions(OrazakaError):
    """All sessions that this process may have are in use."""

    status = 503
    code = "too_many_mcp_sessions"


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
        self._closed = False
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
        self._closed = True
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
        if self._closed:
            raise Unreachable("this process is stopping", ran=False)
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
