"""Periodic work: due for all processes together, done by one at a time, and never the end of it."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from orazaka import periodic
from orazaka.models import Lease
from orazaka.periodic import TASKS, Task, do_if_due, every, expired_sessions, keep
from orazaka.runtime import RunSync, Runtime

pytestmark = pytest.mark.django_db
NOW = timezone.now()
LATER = NOW + timedelta(minutes=5)


def take(holder: str, *, at: Any = NOW, until: Any = LATER) -> bool:
    return Lease.objects.take("work", holder=holder, now=at, until=until)


# --- Leases ---------------------------------------------------------------------------------------
def test_work_that_nobody_did_yet_is_due() -> None:
    assert take("a")


def test_only_one_holds_a_lease_and_may_renew_it() -> None:
    assert take("a")
    assert not take("b")
    assert take("a")


def test_a_holder_that_died_is_followed_when_the_lease_ends() -> None:
    assert take("a")
    assert not take("b", at=LATER - timedelta(seconds=1))
    assert take("b", at=LATER, until=LATER + timedelta(minutes=5))
    assert not take("a", at=LATER)


def test_work_that_is_done_is_not_due_before_its_time() -> None:
    assert take("a")
    Lease.objects.give_back("work", holder="a", now=NOW, due_at=LATER)
    assert not take("b", at=LATER - timedelta(seconds=1))
    assert take("b", at=LATER)


def test_who_lost_the_lease_gives_nothing_back() -> None:
    take("a")
    take("b", at=LATER, until=LATER + timedelta(minutes=5))
    Lease.objects.give_back("work", holder="a", now=LATER, due_at=LATER)
    assert not take("c", at=LATER)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="threads lock a database in memory")
@pytest.mark.django_db(transaction=True)
def test_of_many_who_take_at_the_same_time_one_gets_it() -> None:
    got: list[bool] = []
    ready = threading.Barrier(6)

    def run(holder: str) -> None:
        try:
            ready.wait(timeout=10)
            got.append(take(holder))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(got) == [False] * 5 + [True]


# --- Tasks ----------------------------------------------------------------------------------------
class Work:
    """A piece that is called, and says whether there is more."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.called = asyncio.Event()

    def __call__(self) -> object:
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_two_tasks_with_one_lock_are_a_mistake_of_ours() -> None:
    declare = every(60, lock="prune-turns")
    with pytest.raises(ValueError, match="prune-turns"):
        declare(lambda: None)


def test_the_servers_sweeps_are_declared() -> None:
    assert TASKS.keys() >= {"prune-turns", "prune-tails", "expired-sessions"}


async def test_a_task_is_done_in_pieces_until_there_is_no_more(run_sync: RunSync) -> None:
    work = Work(True, 1, None)
    async with Runtime(run_sync=run_sync) as runtime:
        assert await do_if_due(Task(work, 60, "work"), runtime)
        assert work.calls == 3
        assert not await do_if_due(Task(work, 60, "work"), runtime)
    assert work.calls == 3


async def test_processes_do_it_once_in_each_interval(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as one, Runtime(run_sync=run_sync) as two:
        works = [Work(), Work()]
        done = await asyncio.gather(
            *(do_if_due(Task(w, 60, "work"), r) for w, r in zip(works, (one, two), strict=True))
        )
    assert sorted(done) == [False, True]
    assert works[0].calls + works[1].calls == 1


async def test_what_failed_is_not_due_again_at_once(run_sync: RunSync) -> None:
    work = Work(ValueError())
    async with Runtime(run_sync=run_sync) as runtime:
        with pytest.raises(ValueError):
            await do_if_due(Task(work, 60, "work"), runtime)
        assert not await do_if_due(Task(work, 60, "work"), runtime)
        lease = await Lease.objects.aget(name="work")
    assert lease.holder == ""
    assert lease.due_at > timezone.now() + timedelta(seconds=50)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_error_is_logged_and_does_not_stop_it(
    run_sync: RunSync, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(ValueError("one"), False, ValueError("two"), False)
    async with Runtime(run_sync=run_sync) as runtime:
        runtime.spawn(keep(Task(work, 0.001, "work"), runtime), name="work")
        await until(lambda: work.calls >= 5)
    assert caplog.text.count("the periodic task work failed; it comes again") == 2


async def test_a_stop_does_not_wait_for_the_next_time(run_sync: RunSync) -> None:
    async with asyncio.timeout(5), Runtime(run_sync=run_sync) as runtime:
        keeping = runtime.spawn(keep(Task(Work(), 3600, "work"), runtime), name="work")
    assert keeping.cancelled()


async def test_the_runtime_keeps_all_tasks(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work()
    monkeypatch.setattr(periodic, "TASKS", {"work": Task(work, 0.001, "work")})
    async with Runtime(run_sync=run_sync):
        await until(lambda: work.calls >= 2)


# --- Sessions -------------------------------------------------------------------------------------
def test_expired_sessions_go_and_others_stay() -> None:
    store = import_module(django_settings.SESSION_ENGINE).SessionStore
    old, new = store(), store()
    for session in (old, new):
        session["x"] = 1
        session.save()
    Session.objects.filter(pk=old.session_key).update(expire_date=NOW - timedelta(days=1))
    expired_sessions()
    assert list(Session.objects.values_list("pk", flat=True)) == [new.session_key]


async def test_the_sweep_of_sessions_runs_as_a_task(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        assert await do_if_due(TASKS["expired-sessions"], runtime)
    assert await sync_to_async(Lease.objects.filter(name="expired-sessions").exists)()
