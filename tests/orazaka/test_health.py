"""The probes: alive, ready, and what is in the way."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.db import OperationalError
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpResponse
from django.test import RequestFactory

from orazaka import revision
from orazaka.health import healthz, readyz
from orazaka.models import Revision
from orazaka.runtime import RunSync, Runtime

OK = {"database": "ok", "cache": "ok", "migrations": "ok"}
MEMORY = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}


@pytest.fixture(autouse=True)
def memory_cache(settings) -> None:
    settings.CACHES = MEMORY


def body(response: HttpResponse) -> Any:
    return json.loads(response.content)


async def ready() -> HttpResponse:
    return await readyz(RequestFactory().get("/readyz"))


async def test_a_living_process_says_so_without_a_database() -> None:
    response = await healthz(RequestFactory().get("/healthz"))
    assert (response.status_code, body(response)) == (200, {"status": "ok"})


@pytest.mark.django_db
async def test_a_server_with_everything_in_order_is_ready(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        response = await ready()
    assert (response.status_code, body(response)) == (200, {"status": "ready", "checks": OK})


class Broken(RunSync):
    """A database that fails, or hangs, while `working` is off."""

    def __init__(self, inner: RunSync, *, hang: bool = False) -> None:
        self.inner, self.working, self.hang = inner, True, hang

    async def __call__(self, function: Callable[[], Any]) -> Any:
        if not self.working:
            if self.hang:
                await asyncio.Event().wait()
            raise OperationalError("password=hunter2")
        return await self.inner(function)

    async def close(self) -> None:
        pass


@pytest.mark.django_db
async def test_a_lost_database_is_named_without_its_error(
    run_sync: RunSync, caplog: pytest.LogCaptureFixture
) -> None:
    database = Broken(run_sync)
    async with Runtime(run_sync=database):
        database.working = False
        response = await ready()
        await ready()
        database.working = True
        assert (await ready()).status_code == 200
    assert response.status_code == 503
    checks = {"database": "failing", "cache": "ok", "migrations": "failing"}
    assert body(response) == {"status": "not ready", "checks": checks}
    lines = [record.getMessage() for record in caplog.records if "health" in record.name]
    assert lines.count("not ready: database") == 1


@pytest.mark.django_db
async def test_migrations_are_not_looked_at_again_once_they_were_complete(
    run_sync: RunSync,
) -> None:
    database = Broken(run_sync)
    async with Runtime(run_sync=database):
        await ready()
        database.working = False
        response = await ready()
    assert body(response)["checks"]["migrations"] == "ok"


@pytest.mark.django_db
async def test_a_database_that_hangs_is_late(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orazaka.health.CHECK_SECONDS", 0.05)
    database = Broken(run_sync, hang=True)
    async with Runtime(run_sync=database):
        database.working = False
        response = await ready()
    assert response.status_code == 503
    assert body(response)["checks"] == {"database": "late", "cache": "ok", "migrations": "late"}


@pytest.mark.django_db
async def test_a_migration_that_is_missing_is_named(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        await runtime.db(MigrationRecorder.Migration.objects.filter(app="orazaka").delete)
        response = await ready()
    assert response.status_code == 503
    assert body(response)["checks"] == OK | {"migrations": "failing"}


@pytest.mark.django_db
async def test_a_table_whose_changes_nobody_counts_is_named(
    run_sync: RunSync, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(revision.WATCHED, "new_table", revision.Watch(Revision))
    async with Runtime(run_sync=run_sync):
        response = await ready()
    assert body(response)["checks"] == OK | {"migrations": "failing"}
    assert "changes of new_table are not counted" in caplog.text


class Forgetful(LocMemCache):
    """A cache that keeps nothing."""

    def set(self, *_: Any, **__: Any) -> None:
        pass


class Unreachable(LocMemCache):
    """A cache that nobody answers for."""

    def set(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("redis://:hunter2@cache")


@pytest.mark.django_db
@pytest.mark.parametrize("cache", [Forgetful, Unreachable])
async def test_a_cache_that_does_not_work_is_named(
    cache: type, run_sync: RunSync, settings
) -> None:
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.{cache.__name__}"}}
    async with Runtime(run_sync=run_sync):
        response = await ready()
    assert response.status_code == 503
    assert body(response)["checks"] == OK | {"cache": "failing"}
    assert b"hunter2" not in response.content
