"""How tests run: async ones on the ORM's own thread, nothing outside but loopback."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from orazaka.runtime import RunSync


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests so that the ORM stays on the test's thread and in its transaction: with an
    event loop in another thread rows would leak from test to test."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    async_to_sync(function)(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


class OnTestThread(RunSync):
    """Runs the runtime's blocking functions where the test's transaction is."""

    async def __call__(self, function: Callable[[], Any]) -> Any:
        return await sync_to_async(function, thread_sensitive=True)()

    async def close(self) -> None:
        pass


@pytest.fixture
def run_sync() -> RunSync:
    """For `Runtime(run_sync=run_sync)` in tests that use the database."""
    return OnTestThread()
