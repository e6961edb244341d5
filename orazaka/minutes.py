"""The requests that a key made in its minute: counted in Redis for all workers, or in this process.

A minute begins with its first request and ends 60 s later; what is refused is not counted. While
Redis is away each process counts for itself.
"""

import asyncio
import logging
import math
import re
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.cache import caches

from orazaka.runtime import Resource, Runtime, current

if TYPE_CHECKING:  # 13 MiB of memory: only where the cache is a Redis
    import redis
    import redis.asyncio

log = logging.getLogger(__name__)
MINUTE = 60
PATIENCE_SECONDS = 0.5  # how long a request waits for Redis
AWAY_SECONDS = 5.0  # how long a Redis that failed is not asked
MOST_KEPT = 10_000  # keys counted in this process; over it those whose minute is over go


async def take(key_id: int | None, *, limit: int) -> float:
    """Count a request, on the loop. Gives 0, or the seconds left of a minute that is full."""
    name = _name(key_id)
    wait = await _shared(name, limit)
    return OWN.take(name, limit) if wait is None else wait


def take_blocking(key_id: int | None, *, limit: int) -> float:
    """The same in a thread."""
    name = _name(key_id)
    wait = _shared_blocking(name, limit)
    return OWN.take(name, limit) if wait is None else wait


def _name(key_id: int | None) -> str:
    return caches["default"].make_key(f"requests-of-key-{key_id}")


# --- In this process ------------------------------------------------------------------------------
class Minutes:
    """Counts of this process, from any thread. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[str, tuple[int, float]] = {}  # the count, and when its minute ends

    def take(self, name: str, limit: int) -> float:
        """Count one if there is room. Gives 0, or the seconds left of the minute."""
        now = self._clock()
        with self._lock:
            count, end = self._used.get(name, (0, now))
            if end <= now:
                self._forget(now)
                count, end = 0, now + MINUTE
            if count >= limit:
                return end - now
            self._used[name] = count + 1, end
        return 0

    def _forget(self, now: float) -> None:
        if len(self._used) >= MOST_KEPT:
            self._used = {name: used for name, used in self._used.items() if used[1] > now}


OWN = Minutes()


# --- In Redis -------------------------------------------------------------------------------------
class Away:
    """Whether Redis failed a moment ago; said in the log once."""

    def __init__(self) -> None:
        self.until = -math.inf
        self._said = False

    def __bool__(self) -> bool:
        return time.monotonic() < self.until

    def failed(self, error: Exception) -> None:
        self.until = time.monotonic() + AWAY_SECONDS
        if not self._said:
            words = "the cache does not answer (%s): each process counts requests for itself"
            log.warning(words, type(error).__name__)
            self._said = True

    def answered(self) -> None:
        if self._said:
            log.info("the cache answers again: all processes count requests together")
            self._said = False


AWAY = Away()


def failures() -> tuple[type[Exception], ...]:
    """What a Redis that is away raises."""
    import redis

    return (redis.RedisError, OSError, TimeoutError)


def _location() -> str:
    """The Redis that is written to, as Django's backend finds it; "" when the cache is no Redis."""
    config = settings.CACHES["default"]
    if "redis" not in config["BACKEND"].lower():
        return ""
    servers = config["LOCATION"]
    return str(re.split("[;,]", servers)[0] if isinstance(servers, str) else servers[0])


def _options(retry: Any) -> dict[str, Any]:
    """One more attempt, for a connection that Redis closed meanwhile."""
    wait = {"socket_timeout": PATIENCE_SECONDS, "socket_connect_timeout": PATIENCE_SECONDS}
    from redis.backoff import NoBackoff

    return {**wait, "retry": retry(NoBackoff(), 1)}


# The same as Minutes.take, in one step: the milliseconds left of a minute that is full, else 0.
_TAKE = f"""
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then
    return math.max(redis.call('PTTL', KEYS[1]), 1)
end
if redis.call('INCR', KEYS[1]) == 1 then redis.call('EXPIRE', KEYS[1], {MINUTE}) end
return 0
"""


@asynccontextmanager
async def _open(_: Runtime) -> AsyncGenerator["redis.asyncio.Redis | None"]:
    if not (location := _location()):
        yield None
        return
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(location, **_options(redis.asyncio.retry.Retry))
    try:
        yield client
    finally:
        await client.aclose()


CLIENT: "Resource[redis.asyncio.Redis | None]" = Resource(_open)


async def _shared(name: str, limit: int) -> float | None:
    """Count in Redis; None when that does not go."""
    client = current()[CLIENT]
    if client is None or AWAY:
        return None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            left = await cast(Awaitable[int], client.eval(_TAKE, 1, name, limit))
    except failures() as error:
        AWAY.failed(error)
        return None
    AWAY.answered()
    return left / 1000


@cache
def _blocking(location: str) -> "redis.Redis":
    import redis
    from redis.retry import Retry

    return redis.Redis.from_url(location, **_options(Retry))


def _shared_blocking(name: str, limit: int) -> float | None:
    location = _location()
    if not location or AWAY:
        return None
    try:
        left = cast(int, _blocking(location).eval(_TAKE, 1, name, limit))
    except failures() as error:
        AWAY.failed(error)
        return None
    AWAY.answered()
    return left / 1000
