"""Configuration in memory: immutable, typed, rebuilt when its tables change (design, decision 5).

An app declares a part beside its loader and imports that module in `AppConfig.ready()`:

    KEYS = Part("keys", load_keys, watches=(ApiKey, …))

and the hot path reads it without touching the database:

    snapshot = await runtime[SNAPSHOT].fresh()
    snapshot[KEYS]

A change is effective at once in the process that made it, in every other one within a second.
A lost database changes nothing: the last snapshot is served.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import psycopg
from django.db import connection, models

from orazaka import revision
from orazaka.errors import OrazakaError
from orazaka.runtime import Resource, Runtime

log = logging.getLogger(__name__)
POLL_SECONDS = 0.4  # SQLite, and PostgreSQL while nothing listens there
SAFETY_POLL_SECONDS = 5.0  # PostgreSQL while notifications come
LISTEN_AGAIN_SECONDS = 2.0
# A database host that vanished is noticed after 4 + 3 x 2 s of silence (libpq's parameters).
DEAD_PEER = {
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
# A write is noticed a moment before it is committed: SQLite commits an INSERT … RETURNING when its
# rows are fetched. So long after it, every look counts as too early and is repeated.
SETTLE_SECONDS = 0.05
UNHURRIED_SECONDS = 0.1  # before a rebuild that no request waits for: many changes come together
PATIENCE_SECONDS = 2.0  # how long a request waits for a rebuild before it takes the old snapshot


class NotLoaded(OrazakaError):
    """The configuration was not read yet, because the database can't be reached."""

    status = 503
    code = "configuration_not_loaded"


class Part[T]:
    """One app's part of the snapshot. `load` reads the database and gives an immutable value;
    it is called again when a watched table changed. Parts are declared once, at import.
    """

    all: "list[Part[Any]]" = []

    def __init__(
        self,
        name: str,
        load: Callable[[], T],
        *,
        watches: Iterable[type[models.Model] | revision.Watch],
    ) -> None:
        self.name = name
        self.load = load
        self.tables = tuple(revision.watch(model) for model in watches)
        Part.all.append(self)


class Snapshot:
    """The parts as they were when their tables last changed."""

    def __init__(self, values: Mapping[Part[Any], Any]) -> None:
        self._values = values

    def __getitem__[T](self, part: Part[T]) -> T:
        """The part's value. Raises NotLoaded if it could never be read."""
        try:
            value: T = self._values[part]
        except KeyError:
            raise NotLoaded("the configuration is not loaded yet", retry_after=1) from None
        return value


class SnapshotKeeper:
    """Keeps the snapshot current. One task rebuilds it; requests only wait for that task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._values: dict[Part[Any], Any] = {}
        self._stamps: dict[Part[Any], tuple[int, ...]] = {}
        self.latest = Snapshot({})  # as last built, perhaps a moment old
        self._asked: object = object()  # replaced by every mark, so that no mark is lost
        self._asked_at = -math.inf
        self._seen: object = None  # the last mark that a whole rebuild is known to hold
        self._started = self._ended = 0
        self._turn = asyncio.Condition()
        self._wake, self._waited_for = asyncio.Event(), asyncio.Event()
        self._failing: frozenset[str] = frozenset()
        self._patient = True
        self.listening = False
        self.rebuilds = 0
        self._looked_at = -math.inf

    @property
    def age(self) -> float:
        """Seconds since the configuration was last known to be the database's."""
        return time.monotonic() - self._looked_at

    @property
    def current(self) -> bool:
        """Whether `latest` is known to hold every change of this process."""
        return self._seen is self._asked

    async def fresh(self) -> Snapshot:
        """The snapshot; it holds every change that this process committed before the call.

        Gives the last one when a rebuild fails or takes longer than PATIENCE_SECONDS.
        """
        if not self.current and self._patient:
            await self._next()
        return self.latest

    def mark(self) -> None:
        """Something may have changed: look before the next request. From any thread."""
        self._asked_at = time.monotonic()
        self._asked = object()
        with suppress(RuntimeError):  # the loop is gone, and so are its requests
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _next(self) -> None:
        """Wait for a rebuild that begins after this call."""
        due = self._started + 1
        self._wake.set()
        self._waited_for.set()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._turn:
                await self._turn.wait_for(lambda: self._ended >= due)
        except TimeoutError:
            self._patient = False  # until a rebuild ends: let nobody else wait
            log.warning("configuration is not rebuilt in time; the last snapshot is served")

    async def keep(self) -> None:
        """Rebuild when marked, and look for other processes' changes. Runs until cancelled."""
        while True:
            self._started += 1
            asked, settled = self._asked, time.monotonic() - self._asked_at > SETTLE_SECONDS
            self._wake.clear()
            self._waited_for.clear()
            if await self._rebuild() and settled:
                self._seen = asked
            self._patient = not self._failing
            self._ended = self._started
            async with self._turn:
                self._turn.notify_all()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._interval())
                await asyncio.wait_for(self._waited_for.wait(), UNHURRIED_SECONDS)

    def _interval(self) -> float:
        if not self.current and not self._failing:
            return SETTLE_SECONDS
        return SAFETY_POLL_SECONDS if self.listening and not self._failing else POLL_SECONDS

    async def _rebuild(self) -> bool:
        """Whether everything is current. What fails keeps its last value and is tried again."""
        errors: dict[str, Exception] = {}
        try:
            changed = await self._runtime.db(self._load, errors)
        except Exception as error:
            errors["database"] = error
        else:
            if changed:
                self.latest = Snapshot(dict(self._values))
                self.rebuilds += 1
        for name in errors.keys() - self._failing:
            log.error("configuration not read: %s", name, exc_info=errors[name])
        for name in self._failing - errors.keys():
            log.info("configuration is read again: %s", name)
        self._failing = frozenset(errors)
        if not errors:
            self._looked_at = time.monotonic()
        return not errors

    def _load(self, errors: dict[str, Exception]) -> bool:
        """Load the parts whose tables changed; counts first, so that no change is missed."""
        numbers, changed = revision.numbers(), False
        for part in Part.all:
            stamp = tuple(numbers.get(table, 0) for table in part.tables)
            if self._stamps.get(part) == stamp:
                continue
            try:
                self._values[part] = part.load()
            except Exception as error:
                errors[part.name] = error
            else:
                self._stamps[part], changed = stamp, True
        return changed


async def listen(keeper: SnapshotKeeper) -> None:
    """Mark the snapshot when PostgreSQL notifies; connect again when it is lost."""
    lost: Exception | None = None
    while True:
        try:
            async with aclosing(_notifications()) as notifications:
                async for _ in notifications:
                    keeper.listening = True
                    keeper.mark()
        except (psycopg.Error, OSError) as error:
            lost = error
        if keeper.listening:
            log.warning("no notifications of changes; polling until they come: %s", lost)
            keeper.listening = False
            keeper.mark()  # from here on it polls
        await asyncio.sleep(LISTEN_AGAIN_SECONDS)


async def _notifications() -> AsyncGenerator[None]:
    """One item when connected, since changes may have been missed before, then one a change."""
    params = {**DEAD_PEER, **connection.get_connection_params(), "autocommit": True}
    del params["cursor_factory"]  # Django's, for blocking connections
    listener = await psycopg.AsyncConnection.connect(**params)
    async with listener:
        await listener.execute(f"LISTEN {revision.CHANNEL}")
        yield
        async for _ in listener.notifies():
            yield


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncGenerator[SnapshotKeeper]:
    keeper = SnapshotKeeper(runtime)
    with revision.telling(keeper.mark):
        runtime.spawn(keeper.keep(), name="snapshot")
        if connection.vendor == "postgresql":
            runtime.spawn(listen(keeper), name="snapshot-listener")
        await keeper.fresh()
        yield keeper


SNAPSHOT: Resource[SnapshotKeeper] = Resource(_open)
