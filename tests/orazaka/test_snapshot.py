"""The snapshot: current at once in its own process, within a second in every other one."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection

from orazaka import revision
from orazaka.keys import KEYS
from orazaka.models import ApiKey, Revision, digest_of
from orazaka.runtime import RunSync, Runtime
from orazaka.snapshot import SNAPSHOT, NotLoaded, Part
from tests.factories import UserFactory, issue
from tests.orazaka.changes import GRANTING, STOPPING, Scene

NOTICED_SECONDS = 1.0
POSTGRESQL = connection.vendor == "postgresql"


# --- In the process that changes ------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize("name", STOPPING)
async def test_a_key_stops_at_once_in_the_process_that_stops_it(
    name: str, run_sync: RunSync
) -> None:
    scene = await sync_to_async(Scene)()
    async with Runtime(run_sync=run_sync) as runtime:
        digest = digest_of(scene.plain)
        assert digest in (await runtime[SNAPSHOT].fresh())[KEYS]
        await sync_to_async(STOPPING[name])(scene)
        assert digest not in (await runtime[SNAPSHOT].fresh())[KEYS]


@pytest.mark.django_db
@pytest.mark.parametrize("name", GRANTING)
async def test_a_permission_holds_at_once_in_the_process_that_grants_it(
    name: str, run_sync: RunSync
) -> None:
    scene = await sync_to_async(Scene)()
    async with Runtime(run_sync=run_sync) as runtime:
        digest = digest_of(scene.plain)
        assert not (await runtime[SNAPSHOT].fresh())[KEYS][digest].caller.permissions
        await sync_to_async(GRANTING[name])(scene)
        caller = (await runtime[SNAPSHOT].fresh())[KEYS][digest].caller
        assert caller.may("admin.add_logentry")


@pytest.mark.django_db
async def test_a_new_key_works_at_once(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        before = (await runtime[SNAPSHOT].fresh())[KEYS]
        _, plain = await sync_to_async(issue)()
        after = (await runtime[SNAPSHOT].fresh())[KEYS]
        assert after.keys() - before.keys() == {digest_of(plain)}


@pytest.mark.django_db
async def test_signing_in_is_no_change_of_configuration(run_sync: RunSync) -> None:
    scene = await sync_to_async(Scene)()
    async with Runtime(run_sync=run_sync) as runtime:
        before = (await runtime[SNAPSHOT].fresh())[KEYS]
        scene.user.last_login = scene.key.created_at
        await sync_to_async(scene.user.save)(update_fields=["last_login"])
        assert (await runtime[SNAPSHOT].fresh())[KEYS] is before


# --- The counters ---------------------------------------------------------------------------------
@contextmanager
def bumping(table: str) -> Iterator[None]:
    before = revision.numbers().get(table)
    yield
    assert revision.numbers().get(table) != before


@pytest.mark.django_db
def test_the_database_counts_changes_that_no_orm_saw() -> None:
    key, _ = issue()
    with connection.cursor() as cursor:
        for sql in (
            "UPDATE orazaka_apikey SET name = 'x' WHERE id = %s",
            "DELETE FROM orazaka_apikey WHERE id = %s",
        ):
            with bumping("orazaka_apikey"):
                cursor.execute(sql, [key.pk])


@pytest.mark.django_db
def test_run_time_columns_alone_are_not_counted() -> None:
    key, _ = issue()
    before = revision.numbers()
    User.objects.update(last_login=key.created_at)
    assert revision.numbers() == before
    with bumping("auth_user"):
        User.objects.update(last_login=None, first_name="Ada")


@pytest.mark.django_db
def test_a_flushed_counter_does_no_harm_and_comes_back_different() -> None:
    issue()
    before = revision.numbers()
    Revision.objects.all().delete()
    assert revision.numbers() == {}
    issue()
    after = revision.numbers()
    assert after["orazaka_apikey"] != before["orazaka_apikey"]


@pytest.mark.django_db
def test_installing_the_triggers_again_counts_a_change_once_still() -> None:
    revision.install(using="default")
    before = revision.numbers()["orazaka_apikey"]
    key, _ = issue()
    after = revision.numbers()["orazaka_apikey"]
    assert after - before == 1
    ApiKey.objects.filter(pk=key.pk).revoke()
    assert revision.numbers()["orazaka_apikey"] - after == 1


@pytest.mark.django_db
def test_installing_counts_every_table_as_changed() -> None:
    before = revision.numbers()
    revision.install(using="default")
    after = revision.numbers()
    assert before.keys() <= after.keys() == revision.WATCHED.keys()
    assert all(after[table] != before.get(table) for table in after)


@pytest.mark.django_db
@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has one writer at a time")
def test_two_transactions_that_change_one_table_do_not_wait_for_each_other() -> None:
    issue()  # in the test's transaction, which is open
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SET lock_timeout = '2s'")
        other.execute("UPDATE orazaka_apikey SET name = 'x'")
        other.rollback()


# --- Parts and failures ---------------------------------------------------------------------------
class Away(RunSync):
    """A database that can be switched off, or made to hang."""

    def __init__(self, inner: RunSync) -> None:
        self.inner, self.away = inner, False
        self.answering = asyncio.Event()
        self.answering.set()

    async def __call__(self, function: Callable[[], Any]) -> Any:
        await self.answering.wait()
        if self.away:
            raise OperationalError("gone")
        return await self.inner(function)

    async def close(self) -> None:
        pass


async def until(true: Callable[[], bool], *, limit: float = 5) -> None:
    async with asyncio.timeout(limit):
        while not true():
            await asyncio.sleep(0.005)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "snapshot" in record.name]


@pytest.mark.django_db
async def test_a_lost_database_changes_nothing_and_is_logged_once(
    run_sync: RunSync, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    database = Away(run_sync)
    async with Runtime(run_sync=database) as runtime:
        keeper = runtime[SNAPSHOT]
        before = (await keeper.fresh())[KEYS]
        database.away = True
        for _ in range(3):
            keeper.mark()
            assert (await keeper.fresh())[KEYS] is before
        _, plain = await sync_to_async(issue)()
        database.away = False
        await until(lambda: digest_of(plain) in keeper.latest[KEYS])
    assert messages(caplog) == [
        "configuration not read: database",
        "configuration is read again: database",
    ]


@pytest.mark.django_db
async def test_a_database_that_hangs_delays_one_request_and_not_those_after_it(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orazaka.snapshot.PATIENCE_SECONDS", 0.05)
    database = Away(run_sync)
    async with Runtime(run_sync=database) as runtime:
        keeper = runtime[SNAPSHOT]
        before = (await keeper.fresh())[KEYS]
        database.answering.clear()
        keeper.mark()
        assert (await keeper.fresh())[KEYS] is before
        monkeypatch.setattr("orazaka.snapshot.PATIENCE_SECONDS", 60)
        async with asyncio.timeout(1):
            assert (await keeper.fresh())[KEYS] is before
        _, plain = await sync_to_async(issue)()
        database.answering.set()
        await until(lambda: digest_of(plain) in keeper.latest[KEYS])


async def test_without_any_database_the_process_starts_and_says_503() -> None:
    database = Away(RunSync())
    database.away = True
    async with Runtime(run_sync=database) as runtime:
        snapshot = await runtime[SNAPSHOT].fresh()
        with pytest.raises(NotLoaded) as raised:
            snapshot[KEYS]
    assert raised.value.status == 503


@pytest.fixture
def no_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "all", [])


@pytest.mark.django_db
@pytest.mark.usefixtures("no_other_parts")
async def test_a_part_that_fails_keeps_its_value_and_holds_up_no_other(
    run_sync: RunSync, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = ["one", ValueError("bad row"), ValueError("bad row"), "two"]

    def load() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    failing = Part("failing", load, watches=[ApiKey])
    sound = Part("sound", ApiKey.objects.count, watches=[ApiKey])
    async with Runtime(run_sync=run_sync) as runtime:
        keeper = runtime[SNAPSHOT]
        assert (await keeper.fresh())[failing] == "one"
        await sync_to_async(issue)()
        snapshot = await keeper.fresh()
        assert (snapshot[failing], snapshot[sound]) == ("one", 1)
        await until(lambda: keeper.latest[failing] == "two")
        assert not answers
    assert messages(caplog).count("configuration not read: failing") == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("no_other_parts")
async def test_a_part_is_loaded_again_only_when_its_own_tables_changed(run_sync: RunSync) -> None:
    users = Part("users", lambda: object(), watches=[User])
    keys = Part("keys", lambda: object(), watches=[ApiKey])
    async with Runtime(run_sync=run_sync) as runtime:
        before = await runtime[SNAPSHOT].fresh()
        await sync_to_async(UserFactory.create)()
        after = await runtime[SNAPSHOT].fresh()
    assert after[keys] is before[keys]
    assert after[users] is not before[users]


@pytest.mark.django_db
async def test_a_snapshot_in_hand_does_not_change(run_sync: RunSync) -> None:
    key, plain = await sync_to_async(issue)()
    async with Runtime(run_sync=run_sync) as runtime:
        in_hand = await runtime[SNAPSHOT].fresh()
        await sync_to_async(ApiKey.objects.filter(pk=key.pk).revoke)()
        assert digest_of(plain) not in (await runtime[SNAPSHOT].fresh())[KEYS]
        assert digest_of(plain) in in_hand[KEYS]


@pytest.mark.django_db
async def test_a_current_snapshot_is_read_without_waiting(
    run_sync: RunSync,
) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        keeper = runtime[SNAPSHOT]
        await until(lambda: keeper.current and (keeper.listening or not POSTGRESQL))
        with pytest.raises(StopIteration) as stopped:
            keeper.fresh().send(None)
        assert stopped.value.value is keeper.latest


# --- In other processes ---------------------------------------------------------------------------
class Peer:
    """Another process of the deployment (`peer.py`)."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.orazaka.peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=django_settings.BASE_DIR,
            env=environment,
        )

    def tell(self, verb: str, what: Any = None) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        stdin.write(json.dumps({verb: what}) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def says(self, key: str, wanted: list[str] | None, change: str) -> None:
        """Fails unless it sees that within the promised second."""
        end = time.monotonic() + NOTICED_SECONDS
        while (seen := self.tell("ask", key)) != wanted:
            if time.monotonic() > end:
                pytest.fail(f"{change}: it still sees {seen}")

    def close(self) -> int:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(timeout=20)


@contextmanager
def fresh_database(directory: Path) -> Iterator[str]:
    """The URL of an empty database of the kind that the tests run on."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{directory / 'deployment.sqlite3'}"
        return
    name = f"orazaka_{uuid4().hex}"
    params = {**connection.get_connection_params(), "dbname": "postgres", "autocommit": True}
    with psycopg.connect(**params) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield os.environ["DATABASE_URL"].rpartition("/")[0] + f"/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    with fresh_database(tmp_path_factory.mktemp("deployment")) as url:
        environment = {
            **os.environ,
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "orazaka.settings",
        }
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v0"],
            cwd=django_settings.BASE_DIR,
            env=environment,
            timeout=60,
            check=True,
        )
        one, other = Peer(environment), Peer(environment)
        yield one, other
        codes = [one.close(), other.close()]
    assert codes == [0, 0]


def test_a_key_stops_within_a_second_in_another_process(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    keys = {name: one.tell("new") for name in STOPPING}
    for _, plain in keys.values():
        other.says(plain, [], "before")
    for name, (key_id, plain) in keys.items():
        one.tell("change", [key_id, name])
        assert one.tell("ask", plain) is None, name
    for name, (_, plain) in keys.items():
        other.says(plain, None, name)


def test_a_key_can_be_used_the_moment_that_it_is_made(peers: tuple[Peer, Peer]) -> None:
    assert peers[0].tell("hurry", 150) == 0


def test_a_permission_holds_within_a_second_in_another_process(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    keys = {name: one.tell("new") for name in GRANTING}
    for _, plain in keys.values():
        other.says(plain, [], "before")
    for name, (key_id, plain) in keys.items():
        one.tell("change", [key_id, name])
        assert "admin.add_logentry" in one.tell("ask", plain), name
    for name, (_, plain) in keys.items():
        other.says(plain, one.tell("ask", plain), name)


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite is polled")
def test_a_change_is_seen_within_a_second_after_notifications_broke(
    peers: tuple[Peer, Peer],
) -> None:
    one, other = peers
    key_id, plain = one.tell("new")
    other.says(plain, [], "before")
    one.tell("deaf")
    one.tell("change", [key_id, "update"])
    other.says(plain, None, "update")
