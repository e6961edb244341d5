"""What is bound to the event loop, owned by one async context: entered once per process.

The ASGI lifespan enters it, and so do commands and tests. It knows no app: whoever needs something
that lives as long as the loop declares it where it is defined,

    POOL = Resource(open_pool)          # open_pool(runtime) -> async context manager

and takes it with `runtime[POOL]`. Resources are opened in the order of their declaration and closed
in reverse, so one may use those that are declared in the modules it imports.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import Context
from functools import partial
from importlib import import_module
from typing import Any, Self

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

_current: "Runtime | None" = None


class Resource[T]:
    """Something that lives as long as the runtime. Declared at import, opened when it starts."""

    all: "list[Resource[Any]]" = []

    def __init__(self, open: "Callable[[Runtime], AbstractAsyncContextManager[T]]") -> None:
        self.open = open
        Resource.all.append(self)


class Runtime:
    """The process's loop-bound things. `async with Runtime() as runtime: …`

    `run_sync` runs blocking functions; None makes two threads whose connections are kept.
    """

    def __init__(self, *, run_sync: "RunSync | None" = None) -> None:
        self._run_sync = run_sync or _OwnThreads()
        self._values: dict[Resource[Any], Any] = {}
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        global _current
        import_module(settings.ROOT_URLCONF)  # whoever answers requests has declared its resources
        self._previous, _current = _current, self
        self._stack.push_async_callback(self._run_sync.close)
        try:
            for resource in Resource.all:
                self._values[resource] = await self._stack.enter_async_context(resource.open(self))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    async def _close(self) -> None:
        global _current
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        _current = self._previous
        await self._stack.aclose()

    def __getitem__[T](self, resource: Resource[T]) -> T:
        if resource not in self._values:
            name = resource.open.__qualname__
            raise RuntimeError(f"{name} was declared after the runtime began: no URL leads to it")
        value: T = self._values[resource]
        return value

    async def db[**P, T](self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that uses the ORM, off the loop, on a connection that is kept."""
        return await self._run_sync(partial(function, *args, **kwargs))

    def spawn[T](self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Start background work that ends with the runtime at the latest.

        It runs in an empty context: a request's thread and connection must not travel into it.
        """
        task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class RunSync:
    """How the runtime calls blocking functions. Tests give one that stays on the test's thread."""

    async def __call__[T](self, function: Callable[[], T]) -> T:
        raise NotImplementedError

    async def close(self) -> None:
        """Release threads and connections."""


class _OwnThreads(RunSync):
    """Two threads with a database connection each, kept from call to call.

    A thread and a connection per request cost 1.7-3.1 ms; kept ones 1.1 (docs/performance.md).
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="orazaka-db")
        self._used: dict[BaseDatabaseWrapper, float] = {}

    async def __call__[T](self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._with_connection, function)

    def _with_connection[T](self, function: Callable[[], T]) -> T:
        mine = connections["default"]
        if mine not in self._used:
            mine.inc_thread_sharing()  # `close` runs on another thread
        elif time.monotonic() - self._used[mine] > 1 and mine.connection and not mine.is_usable():
            mine.close()  # the database was restarted while this connection rested
        try:
            return function()
        except (DatabaseError, InterfaceError):
            if mine.connection and not mine.is_usable():
                mine.close()
            raise
        finally:
            self._used[mine] = time.monotonic()

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._executor.shutdown()
        for used in self._used:
            used.close()
            used.dec_thread_sharing()
        # PostgreSQL's: the pool's threads would hold up the process's end.
        getattr(connections["default"], "close_pool", lambda: None)()


def current() -> Runtime:
    """The runtime of this process. Raises RuntimeError outside of one."""
    if _current is None:
        raise RuntimeError("no runtime is running in this process")
    return _current
