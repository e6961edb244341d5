"""The turns that run in this process: an owner task each (design, decision 2); the drain."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

from django.conf import settings

from orazaka.errors import OrazakaError
from orazaka.runtime import Resource, Runtime
from orazaka.stopping import STOPPING

logger = logging.getLogger(__name__)


class Stopping(OrazakaError):
    """The process is about to end; another one, or this one restarted, takes the turn."""

    status = 503
    code = "stopping"


class Turns:
    """Starts the owner tasks, and knows those that still run."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self.begun = 0
        self.cut = False  # whether those that run are being cancelled because the process ends
        self._stopping = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a turn in a task with an empty context. Raises Stopping after `drain` began."""
        if self._stopping:
            work.close()
            raise Stopping("the gateway is stopping, try again", retry_after=1)
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self.begun += 1
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def drain(self, seconds: float) -> None:
        """Start no more; wait for those that run, then cancel them."""
        self._stopping = True
        if self.running:
            _, late = await asyncio.wait(self.running, timeout=seconds)
            self.cut = bool(late)
            for task in late:
                task.cancel()
            if late:
                logger.warning("%d turns were cancelled after %g s of draining", len(late), seconds)
                await asyncio.wait(late, timeout=5)


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncIterator[Turns]:
    turns = Turns()

    async def drained() -> None:
        await runtime[STOPPING].wait()
        await turns.drain(settings.ORAZAKA_DRAIN_SECONDS)

    # Not runtime.spawn: those are cancelled first, and a drain under way must come to its end.
    drain = asyncio.get_running_loop().create_task(drained(), name="drain", context=Context())
    try:
        yield turns
    finally:
        runtime[STOPPING].set()
        await drain


TURNS = Resource(_open)
