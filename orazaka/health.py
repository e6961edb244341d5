"""The probes: `/healthz` says that the process lives, `/readyz` that it can serve (spec 5)."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from django.core.cache import cache
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from orazaka import revision
from orazaka.runtime import Resource, Runtime, current

log = logging.getLogger(__name__)
CHECK_SECONDS = 2.0


async def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the loop turns."""
    return JsonResponse({"status": "ok"})


async def readyz(request: HttpRequest) -> HttpResponse:
    """200 when database, cache and migrations are in order, else 503 with what is not.

    The answer names the checks and nothing of their errors; those are in the log.
    """
    results = await current()[READINESS].check()
    ready = all(result == "ok" for result in results.values())
    status = "ready" if ready else "not ready"
    return JsonResponse({"status": status, "checks": results}, status=200 if ready else 503)


class NotMigrated(Exception):
    """The database lacks migrations of this code."""


class Readiness:
    """The checks, and that migrations were complete once: they stay so while the process lives."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._migrated = False
        self._said: frozenset[str] = frozenset()

    async def check(self) -> Mapping[str, str]:
        """`ok`, `failing` or `late` for each check, all at once in CHECK_SECONDS."""
        checks = {
            "database": self._bounded("database", self._database),
            "cache": self._bounded("cache", _cache),
            "migrations": self._bounded("migrations", self._migrations),
        }
        results = dict(zip(checks, await asyncio.gather(*checks.values()), strict=True))
        self._said = frozenset(name for name, result in results.items() if result != "ok")
        return results

    async def _bounded(self, name: str, check: Callable[[], Awaitable[None]]) -> str:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await check()
        except TimeoutError:
            return "late"
        except Exception as error:
            if name not in self._said:  # a probe comes every few seconds
                log.error("not ready: %s", name, exc_info=error)
            return "failing"
        return "ok"

    async def _database(self) -> None:
        await self._runtime.db(_select_one)

    async def _migrations(self) -> None:
        if not self._migrated:
            await self._runtime.db(_need_no_migration)
            self._migrated = True


def _select_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


async def _cache() -> None:
    key, value = f"readyz-{uuid.uuid4().hex}", "1"
    await cache.aset(key, value, timeout=10)
    if await cache.aget(key) != value:
        raise RuntimeError("the cache does not give back what it was given")


def _need_no_migration() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise NotMigrated("run `manage.py migrate`")
    if tables := revision.missing():
        names = ", ".join(sorted(tables))
        raise NotMigrated(f"changes of {names} are not counted: run `manage.py migrate`")


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncGenerator[Readiness]:
    yield Readiness(runtime)


READINESS: Resource[Readiness] = Resource(_open)
