"""That the process was asked to end, known before the server waits for its responses.

An ASGI server tells the lifespan last, when no response is left. Turns have to know first: they
start no more, and end in order while their clients still listen.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

from orazaka.runtime import Resource, Runtime

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def _open(_: Runtime) -> AsyncGenerator[asyncio.Event]:
    yield asyncio.Event()


STOPPING: Resource[asyncio.Event] = Resource(_open)


@contextmanager
def noticed(stopping: asyncio.Event) -> Iterator[None]:
    """Set the event at SIGTERM and SIGINT too, before what the server does then.

    Without effect where the server takes signals in another way, or runs beside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    mine = {number: _first(loop, stopping, then) for number, then in before.items()}
    for number, heed in mine.items():
        if heed is not None:
            signal.signal(number, heed)
    try:
        yield
    finally:
        for number, heed in mine.items():
            # The server may have put back its own in the meantime.
            if heed is not None and signal.getsignal(number) is heed:
                signal.signal(number, before[number])


def _first(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, then: Any) -> Any:
    """A signal's handler that tells us first; None if nobody's would follow."""
    if not callable(then) or then is signal.default_int_handler:
        return None

    def heed(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stopping.set)
        then(number, frame)

    return heed
