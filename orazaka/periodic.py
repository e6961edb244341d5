"""Work that comes round again, in the server and in one process at a time (spec 5).

    @every(3600, lock="prune-turns")
    def prune_turns() -> bool:
        \"""A bounded piece of it; True when there is more.\"""

The interval holds for all processes together: who does the work has a lease on a row. A process
that dies over it is followed by another when the lease ends. What fails is logged and comes again.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module

from django.conf import settings
from django.utils import timezone

from orazaka.models import Lease
from orazaka.runtime import Resource, Runtime

log = logging.getLogger(__name__)
LOOK_SECONDS = 60.0  # how often a process looks whether something is due
PAUSE_SECONDS = 0.1  # between two pieces, for everyone else who writes
LEASE = timedelta(minutes=5)  # longer than a piece takes

type Piece = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Task:
    """Blocking work in pieces, and how many seconds after its end it is due again."""

    piece: Piece
    seconds: float
    lock: str


TASKS: dict[str, Task] = {}


def every(seconds: float, *, lock: str) -> Callable[[Piece], Piece]:
    """Declare periodic work, at import. It is called again at once while it returns true."""

    def declare(piece: Piece) -> Piece:
        if lock in TASKS:
            raise ValueError(f"two periodic tasks have the lock {lock!r}")
        TASKS[lock] = Task(piece, seconds, lock)
        return piece

    return declare


async def keep(task: Task, runtime: Runtime) -> None:
    """Do the task whenever it is due and nobody else does it. Runs until cancelled."""
    while True:
        # Jittered, so that processes that began together do not look together for ever.
        await asyncio.sleep(min(task.seconds, LOOK_SECONDS) * random.uniform(0.5, 1.5))
        try:
            await do_if_due(task, runtime)
        except Exception:
            log.exception("the periodic task %s failed; it comes again", task.lock)


async def do_if_due(task: Task, runtime: Runtime) -> bool:
    """Do all of it that there is, unless it is not due or someone else does it."""
    holder, done = uuid.uuid4().hex, False
    try:
        more: object = True
        while more and await runtime.db(_take, task, holder):
            done = True
            if more := await runtime.db(task.piece):
                await asyncio.sleep(PAUSE_SECONDS)
    finally:
        if done:
            await runtime.db(_give_back, task, holder)
    return done


def _take(task: Task, holder: str) -> bool:
    now = timezone.now()
    return Lease.objects.take(task.lock, holder=holder, now=now, until=now + LEASE)


def _give_back(task: Task, holder: str) -> None:
    now = timezone.now()
    due = now + timedelta(seconds=task.seconds)
    Lease.objects.give_back(task.lock, holder=holder, now=now, due_at=due)


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncGenerator[None]:
    for task in TASKS.values():
        runtime.spawn(keep(task, runtime), name=task.lock)
    yield


PERIODIC: Resource[None] = Resource(_open)


@every(3600, lock="expired-sessions")
def expired_sessions() -> None:
    """Delete the sessions of people who stayed away too long."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
