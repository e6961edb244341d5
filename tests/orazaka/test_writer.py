"""The writer: everything queued in one transaction, nothing lost but what can't be stored."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.auth.models import Group, User
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from orazaka.models import ApiKey
from orazaka.runtime import RunSync, Runtime
from orazaka.writer import QUEUE_LENGTH, WRITER, Writer, storable, write
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def names() -> list[str]:
    return sorted(Group.objects.exclude(name="Administrators").values_list("name", flat=True))


# --- Through the runtime --------------------------------------------------------------------------
async def test_what_is_put_is_written_behind_the_caller(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        writer = runtime[WRITER]
        writer.put(Group(name="a"), Group(name="b"))
        writer.do(lambda: Group.objects.create(name="c"))
        assert await writer.flush()
        assert await sync_to_async(names)() == ["a", "b", "c"]


async def test_rows_that_come_during_a_write_are_not_forgotten(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        writer = runtime[WRITER]
        for n in range(20):
            writer.put(Group(name=f"g{n:02}"))
            await asyncio.sleep(0)
        assert await writer.flush()
    assert await sync_to_async(names)() == [f"g{n:02}" for n in range(20)]


async def test_leaving_the_runtime_writes_what_is_left(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        runtime[WRITER].put(Group(name="last"))
    assert await sync_to_async(names)() == ["last"]


async def test_what_a_cancelled_task_puts_at_the_end_is_written(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        started = asyncio.Event()

        async def turn() -> None:
            try:
                started.set()
                await asyncio.Event().wait()
            finally:
                runtime[WRITER].put(Group(name="record"))

        runtime.spawn(turn(), name="turn")
        await started.wait()
    assert await sync_to_async(names)() == ["record"]


async def test_a_database_that_stays_away_does_not_keep_the_process_from_stopping(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orazaka.writer.CLOSE_SECONDS", 0.05)

    def away() -> None:
        raise OperationalError

    async with Runtime(run_sync=run_sync) as runtime:
        runtime[WRITER].do(away)
    assert "stopping without having written everything" in caplog.text


async def test_flushing_nothing_is_immediate(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        assert await runtime[WRITER].flush(limit=0.5)


# --- A database that is away ----------------------------------------------------------------------
class Database:
    """A runtime's `db`, failing as often as told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.written: list[Any] = []

    async def db(self, function: Callable[..., Any], batch: list[Any]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.written += batch
        batch.clear()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orazaka.writer.PAUSES", (0,))


@pytest.mark.usefixtures("quick")
async def test_what_could_not_be_written_is_kept_and_written_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = Database(*[OperationalError("password=hunter2")] * 5)
    writer = Writer(database)  # type: ignore[arg-type]
    task = asyncio.ensure_future(writer.run())
    writer.do(lambda: "first")
    assert await writer.flush(limit=5)
    writer.do(lambda: "second")
    assert await writer.flush(limit=5)
    task.cancel()
    assert [item() for item in database.written] == ["first", "second"]
    lines = [record.getMessage() for record in caplog.records if "writer" in record.name]
    assert lines == [
        "can't write now, trying again: OperationalError",
        "writing again; 0 items were dropped",
    ]


@pytest.mark.usefixtures("quick")
async def test_a_full_queue_drops_the_oldest_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = Database(OperationalError())
    writer = Writer(database)  # type: ignore[arg-type]
    numbers = range(QUEUE_LENGTH + 3)
    for n in numbers:
        writer.do(partial(int, n))
    assert writer.dropped == 3
    task = asyncio.ensure_future(writer.run())
    assert await writer.flush(limit=10)
    task.cancel()
    assert [item() for item in database.written] == list(numbers)[3:]
    lines = [record.getMessage() for record in caplog.records if "writer" in record.name]
    assert [line for line in lines if "drop" in line] == [
        "the writer's queue is full: from here on the oldest items are dropped",
        "writing again; 3 items were dropped",
    ]


async def test_flush_gives_up_after_its_limit() -> None:
    writer = Writer(Database())  # type: ignore[arg-type]
    writer.do(lambda: None)  # and nobody runs it
    assert not await writer.flush(limit=0.01)


# --- One batch ------------------------------------------------------------------------------------
def queued(*items: Any) -> list[Any]:
    """What a writer would have queued."""

    async def queue() -> list[Any]:
        writer = Writer(None)  # type: ignore[arg-type]
        for item in items:
            if callable(item):
                writer.do(item)
            else:
                writer.put(item)
        return list(writer._queue)

    return asyncio.run(queue())


def fail(error: Exception) -> Callable[[], None]:
    def failing() -> None:
        raise error

    return failing


def test_one_bad_row_loses_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    rows = [Group(name=f"g{n:02}") for n in range(20)]
    rows[7].name = rows[3].name  # unique
    rows[13].name = "x" * 10_000 if connection.vendor == "postgresql" else rows[3].name
    write(queued(*rows))
    assert names() == [f"g{n:02}" for n in range(20) if n not in (7, 13)]
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "auth.Group: IntegrityError" in text
    assert "g03" not in text


@pytest.mark.parametrize("error", [ValueError("secret"), IntegrityError(), DataError(), KeyError()])
def test_a_function_that_fails_loses_only_itself(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    write(queued(Group(name="before"), fail(error), Group(name="after")))
    assert names() == ["after", "before"]
    assert "secret" not in caplog.text
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("error", [OperationalError(), InterfaceError()])
def test_when_the_database_is_away_what_is_not_written_stays_in_the_batch(
    error: Exception,
) -> None:
    batch = queued(Group(name="a"), Group(name="a"), fail(error), Group(name="b"))
    with pytest.raises(type(error)):
        write(batch)
    assert names() == ["a"]
    assert len(batch) == 2
    del batch[0]
    write(batch)
    assert names() == ["a", "b"]


def test_a_batch_is_one_transaction_and_one_insert_for_each_kind_of_row() -> None:
    batch = queued(
        *(Group(name=f"a{n}") for n in range(50)),
        User(username="user"),
        *(Group(name=f"b{n}") for n in range(50)),
        lambda: User.objects.get(username="user"),
        Group(name="after the function"),
    )
    with CaptureQueriesContext(connection) as queries:
        write(batch)
    verbs = [query["sql"].split()[0] for query in queries]
    assert verbs == ["SAVEPOINT", "INSERT", "INSERT", "SELECT", "INSERT", "RELEASE"]
    assert len(names()) == 101


def test_a_key_that_a_failed_transaction_gave_is_not_used_again() -> None:
    user = UserFactory.create()
    entries = [LogEntry(user=user, action_flag=ADDITION, object_repr=str(n)) for n in range(3)]
    batch = queued(*entries, fail(OperationalError()))
    with pytest.raises(OperationalError):
        write(batch)
    taken = LogEntry.objects.create(user=user, action_flag=ADDITION, object_repr="between")
    batch.pop()
    write(batch)
    assert LogEntry.objects.get(pk=taken.pk).object_repr == "between"
    assert LogEntry.objects.count() == 4


def test_a_missing_table_is_the_rows_fault_and_not_waited_for() -> None:
    def into_nowhere() -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO nowhere VALUES (1)")

    write(queued(into_nowhere, Group(name="after")))
    assert names() == ["after"]


def test_what_no_database_stores_as_text_is_replaced() -> None:
    user = UserFactory.create()
    row = ApiKey(
        user=user,
        name="a\x00b\ud800c",
        digest="0" * 64,
        hint="ozk_",
        scopes={"k\x00": ["\x00", {"deep": "\udfff", "n": 1}], "none": None},
    )
    write(queued(row))
    stored = ApiKey.objects.get()
    assert stored.name == "a\ufffdb\ufffdc"
    assert stored.scopes == {
        "k\ufffd": ["\ufffd", {"deep": "\ufffd", "n": 1}],
        "none": None,
    }


@pytest.mark.parametrize("value", ["", "plain ✓ 🎉", 1, 1.5, None, True, b"\x00", [1, {"a": "b"}]])
def test_everything_else_stays_as_it_is(value: Any) -> None:
    assert storable(value) == value
