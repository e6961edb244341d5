"""Counting a key's requests: in this process, in Redis, and when Redis is away."""

import asyncio
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings as django_settings

from orazaka import minutes
from orazaka.minutes import MINUTE, Away, Minutes, take, take_blocking
from orazaka.runtime import RunSync, Runtime

REDIS = "redis" in django_settings.CACHES["default"]["BACKEND"].lower()
needs_redis = pytest.mark.skipif(not REDIS, reason="the cache is no Redis")


@pytest.fixture(autouse=True)
def fresh(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was counted, and no Redis failed."""
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}
    monkeypatch.setattr(minutes, "OWN", Minutes())
    monkeypatch.setattr(minutes, "AWAY", Away())


# --- In this process ------------------------------------------------------------------------------
class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_minute_begins_with_its_first_request_and_ends_60_seconds_later() -> None:
    clock = Clock()
    used = Minutes(clock)
    assert used.take("a", 2) == 0
    clock.now += 59
    assert used.take("a", 2) == 0
    assert used.take("a", 2) == 1
    clock.now += 1
    assert [used.take("a", 2) for _ in range(3)] == [0, 0, MINUTE]


def test_what_is_refused_is_not_counted() -> None:
    used = Minutes()
    assert [used.take("a", 1) > 0 for _ in range(5)] == [False, True, True, True, True]
    assert [used.take("a", 3) > 0 for _ in range(3)] == [False, False, True]


def test_each_key_has_a_minute_of_its_own() -> None:
    used = Minutes()
    assert [used.take(name, 2) > 0 for name in "aabaab"] == [False] * 3 + [True, True, False]


def test_minutes_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "MOST_KEPT", 100)
    clock = Clock()
    used = Minutes(clock)
    for n in range(100):
        used.take(str(n), 1)
    clock.now += MINUTE
    used.take("new", 1)
    assert len(used._used) == 1


def test_threads_get_no_more_than_the_limit() -> None:
    used = Minutes()
    with ThreadPoolExecutor(8) as threads:
        waits = list(threads.map(lambda _: used.take("a", 100), range(2000)))
    assert waits.count(0) == 100


# --- Whatever the cache is ------------------------------------------------------------------------
@pytest.mark.django_db
async def test_the_loop_and_threads_count_together(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        assert await take(7, limit=2) == 0
        assert await asyncio.to_thread(take_blocking, 7, limit=2) == 0
        for wait in (await take(7, limit=2), await asyncio.to_thread(take_blocking, 7, limit=2)):
            assert MINUTE - 20 < wait <= MINUTE
        assert await take(7, limit=3) == 0
        assert await take(8, limit=1) == 0


@pytest.mark.django_db
async def test_requests_at_the_same_time_get_no_more_than_the_limit(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        waits = await asyncio.gather(*(take(7, limit=20) for _ in range(50)))
    assert waits.count(0) == 20


# --- Redis ----------------------------------------------------------------------------------------
@needs_redis
@pytest.mark.django_db
async def test_processes_count_together_in_redis(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        assert await take(7, limit=1) == 0
    async with Runtime(run_sync=run_sync):
        assert await take(7, limit=1) > 0
    assert not minutes.OWN._used


@needs_redis
@pytest.mark.django_db
async def test_a_count_in_redis_ends_with_its_minute(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "_TAKE", minutes._TAKE.replace(", 60)", ", 1)"))
    async with Runtime(run_sync=run_sync):
        assert await take(7, limit=1) == 0
        assert 0 < await take(7, limit=1) <= 1
        async with asyncio.timeout(5):
            while await take(7, limit=1):
                await asyncio.sleep(0.05)


class Silent:
    """A server that takes connections and says nothing."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        return f"redis://127.0.0.1:{self._socket.getsockname()[1]}/0"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.fixture(params=["closed", "silent", "no such host"])
def away(request: pytest.FixtureRequest, settings) -> Iterator[None]:
    """The cache is a Redis that can't be used."""
    with Silent() as silent:
        location = {
            "silent": silent,
            "closed": "redis://127.0.0.1:1/0",
            "no such host": "redis://nowhere.invalid:6379/0",
        }[request.param]
        backend = "django.core.cache.backends.redis.RedisCache"
        settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": location}}
        yield


@pytest.mark.django_db
@pytest.mark.usefixtures("away")
async def test_while_redis_is_away_this_process_counts_and_waits_only_once(
    run_sync: RunSync, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime(run_sync=run_sync):
        began = time.monotonic()
        waits = [await take(7, limit=3) for _ in range(5)]
        assert time.monotonic() - began < 3
    assert [wait > 0 for wait in waits] == [False] * 3 + [True] * 2
    said = [r.getMessage() for r in caplog.records if r.name == "orazaka.minutes"]
    assert len(said) == 1
    assert "each process counts requests for itself" in said[0]


@pytest.mark.usefixtures("away")
def test_threads_too_count_for_themselves_while_redis_is_away() -> None:
    began = time.monotonic()
    assert [take_blocking(7, limit=3) > 0 for _ in range(5)] == [False] * 3 + [True] * 2
    assert time.monotonic() - began < 5


@needs_redis
@pytest.mark.django_db
async def test_a_redis_that_comes_back_is_asked_again(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orazaka.minutes")
    async with Runtime(run_sync=run_sync):
        assert await take(7, limit=1) == 0
        minutes.AWAY.failed(OSError())
        assert await take(7, limit=1) == 0  # counted in this process
        minutes.AWAY.until = 0
        assert await take(7, limit=1) > 0
    assert "answers again" in caplog.text


@pytest.mark.parametrize(
    ("backend", "location", "found"),
    [
        ("locmem.LocMemCache", "", ""),
        ("redis.RedisCache", "redis://a:1/0", "redis://a:1/0"),
        ("redis.RedisCache", "redis://a:1/0,redis://b:1/0", "redis://a:1/0"),
        ("redis.RedisCache", ["redis://a:1/0", "redis://b:1/0"], "redis://a:1/0"),
    ],
)
def test_the_redis_that_is_written_to_is_the_first(
    backend: str, location: object, found: str, settings
) -> None:
    config = {"BACKEND": f"django.core.cache.backends.{backend}", "LOCATION": location}
    settings.CACHES = {"default": config}
    assert minutes._location() == found
