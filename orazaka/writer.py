"""Everything that is written behind a turn goes through one task: records, cache rows, last uses.

It writes whatever is queued in one transaction, so that no request waits for a commit and SQLite
sees one writer a process (design, decision 6).
"""

import asyncio
import logging
import re
import sqlite3
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from itertools import count
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, models, transaction

from orazaka.runtime import Resource, Runtime

log = logging.getLogger(__name__)
QUEUE_LENGTH = 10_000
BATCH_LENGTH = 500
# What comes in this time shares a transaction: at one turn after the other the commit of each was a
# third of its cost. A worker that is killed loses as much.
LINGER_SECONDS = 0.1
CLOSE_SECONDS = 10.0
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between attempts; the last one again and again
# What PostgreSQL refuses in text and JSON: NUL, and halves of surrogate pairs.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# SQLSTATE classes of a database that can't serve now: connection, deadlock, resources, shutdown.
NOT_NOW = {"08", "40", "53", "55", "57", "58"}


class Row:
    """A row to insert. A key that the database gave is taken back before another attempt."""

    def __init__(self, model: models.Model) -> None:
        self.model = model
        self.keyed = model.pk is not None

    def prepare(self) -> models.Model:
        """The row with nothing in it that a database refuses as text."""
        row = self.model
        if not self.keyed:
            row.pk, row._state.adding = None, True
        for field in row._meta.concrete_fields:
            value = row.__dict__.get(field.attname)
            if isinstance(value, str | dict | list):
                setattr(row, field.attname, storable(value))
        return row


type Item = Row | Callable[[], object]


class Writer:
    """The queue and the task that empties it. Used on the loop's thread only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queue: deque[Item] = deque(maxlen=QUEUE_LENGTH)
        self._wake, self._idle, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.dropped = 0  # items that the full queue let go since it last wrote
        self.lost = 0  # all of them

    @property
    def queued(self) -> int:
        """Items that are not being written yet."""
        return len(self._queue)

    def put(self, *rows: models.Model) -> None:
        """Insert rows, soon. Rows that others refer to must bring their own primary key."""
        for row in rows:
            self._add(Row(row))

    def do(self, write: Callable[[], object]) -> None:
        """Call a function that writes, soon, in a transaction that it shares with others.

        A transaction that failed is tried again, and the function called again.
        """
        self._add(write)

    def _add(self, item: Item) -> None:
        if len(self._queue) == QUEUE_LENGTH:
            if not self.dropped:
                log.error("the writer's queue is full: from here on the oldest items are dropped")
            self.dropped += 1
            self.lost += 1
        self._queue.append(item)
        if len(self._queue) >= BATCH_LENGTH:
            self._hurry.set()
        self._idle.clear()
        self._wake.set()

    async def flush(self, *, limit: float = 10) -> bool:
        """Wait, at most `limit` seconds, until nothing is queued. Gives whether that is so."""
        self._hurry.set()
        try:
            await asyncio.wait_for(self._idle.wait(), limit)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Write what is queued until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), LINGER_SECONDS)
            self._hurry.clear()
            while self._queue:
                length = min(len(self._queue), BATCH_LENGTH)
                await self._write([self._queue.popleft() for _ in range(length)])
            self._idle.set()

    async def _write(self, batch: list[Item]) -> None:
        """Write a batch, however long the database is away."""
        for attempt in count():
            try:
                await self._runtime.db(write, batch)
            except Exception as error:
                if not attempt:
                    log.error("can't write now, trying again: %s", type(error).__name__)
                await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            else:
                if attempt or self.dropped:
                    log.warning("writing again; %d items were dropped", self.dropped)
                    self.dropped = 0
                return


def write(batch: list[Item]) -> None:
    """Write the items and take them out of the list, in order, all in one transaction if it goes.

    When it fails the transactions get smaller, until an item that the database refuses stands
    alone and is dropped. Raises DatabaseError when the database can't serve now; what is in the
    list then is not written.
    """
    size, refused = len(batch), Counter[str]()
    while batch:
        try:
            with transaction.atomic():
                _execute(batch[:size])
        except Exception as error:
            if isinstance(error, DatabaseError | InterfaceError) and _not_now(error):
                raise
            if size > 1:
                size = (size + 1) // 2
                continue
            refused[f"{_name(batch[0])}: {type(error).__name__}"] += 1
        del batch[:size]
        size = min(2 * size, len(batch)) or 1
    for what, times in refused.items():  # never the error's text: it quotes values
        log.error("not written (%d): %s", times, what)


def _execute(items: Sequence[Item]) -> None:
    """Insert rows, those of one model at once, in order of first appearance; call functions."""
    rows: dict[type[models.Model], list[models.Model]] = {}
    for item in items:
        if isinstance(item, Row):
            rows.setdefault(type(item.model), []).append(item.prepare())
        else:
            _insert(rows)
            item()
    _insert(rows)


def _insert(rows: dict[type[models.Model], list[models.Model]]) -> None:
    for model, objects in rows.items():
        model._base_manager.bulk_create(objects)
    rows.clear()


def _name(item: Item) -> str:
    if isinstance(item, Row):
        return item.model._meta.label
    return getattr(item, "__qualname__", type(item).__name__)


def _not_now(error: Exception) -> bool:
    """Whether the database, not what was written, is at fault."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):  # an extended code's low byte is the plain one
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return isinstance(error, OperationalError) and code != sqlite3.SQLITE_ERROR
    state = getattr(cause, "sqlstate", None)
    if state is None:
        return isinstance(error, OperationalError | InterfaceError)
    return state[:2] in NOT_NOW


def storable(value: Any) -> Any:
    """Text, or JSON with text in it, without what databases refuse (cases B32)."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(name): storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return value


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncGenerator[Writer]:
    writer = Writer(runtime)
    # Not runtime.spawn: those are cancelled first, and their last records come here.
    task = asyncio.get_running_loop().create_task(writer.run(), name="writer", context=Context())
    try:
        yield writer
        if not await writer.flush(limit=CLOSE_SECONDS):
            log.error("the database is away: stopping without having written everything")
    finally:
        task.cancel()
        await asyncio.wait([task])


WRITER: Resource[Writer] = Resource(_open)
