"""A stop is known before the server has waited for its responses."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from gateway.turns import TURNS, Stopping
from orazaka.runtime import RunSync, Runtime
from orazaka.stopping import SIGNALS, STOPPING, noticed

pytestmark = pytest.mark.django_db


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that the server itself hears; the test's own handlers come back."""
    signals: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, lambda number, _: signals.append(number))
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noticed_and_passed_on(number: int, heard: list[int]) -> None:
    async def told() -> None:
        stopping = asyncio.Event()
        with noticed(stopping):
            signal.raise_signal(number)
            await asyncio.wait_for(stopping.wait(), 5)

    with asyncio.Runner() as runner:
        runner.run(told())
    assert heard == [number]
    signal.raise_signal(number)
    assert heard == [number, number], "the server's handlers are back"


def test_handlers_that_came_meanwhile_stay(heard: list[int]) -> None:
    later: list[int] = []

    async def change() -> None:
        with noticed(asyncio.Event()):
            signal.signal(signal.SIGTERM, lambda number, _: later.append(number))

    with asyncio.Runner() as runner:
        runner.run(change())
    signal.raise_signal(signal.SIGTERM)
    assert (heard, later) == ([], [signal.SIGTERM])


def test_a_signal_that_nobody_handles_keeps_its_meaning(heard: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    async def look() -> object:
        with noticed(asyncio.Event()):
            return signal.getsignal(signal.SIGTERM)

    with asyncio.Runner() as runner:
        assert runner.run(look()) is signal.SIG_DFL


async def test_in_another_thread_it_does_nothing(heard: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def look() -> object:
        with noticed(asyncio.Event()):
            return signal.getsignal(signal.SIGTERM)

    assert await asyncio.to_thread(asyncio.run, look()) is before


async def until_event(event: asyncio.Event) -> None:
    await event.wait()


async def test_turns_that_run_are_awaited_and_no_more_begin(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        go = asyncio.Event()
        running = runtime[TURNS].start(until_event(go))
        runtime[STOPPING].set()
        with pytest.raises(Stopping):
            while True:
                runtime[TURNS].start(until_event(go))
                await asyncio.sleep(0)
        assert not running.done()
        go.set()
        await asyncio.wait_for(running, 5)
        assert runtime[TURNS].cut is False


async def test_turns_that_outlast_the_drain_are_cut(run_sync: RunSync, settings) -> None:
    settings.ORAZAKA_DRAIN_SECONDS = 0.05
    async with Runtime(run_sync=run_sync) as runtime:
        running = runtime[TURNS].start(until_event(asyncio.Event()))
        runtime[STOPPING].set()
        await asyncio.wait({running}, timeout=5)
        assert running.cancelled()
        assert runtime[TURNS].cut is True
