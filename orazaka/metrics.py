"""`/metrics`: what this deployment does, in Prometheus' text format, over all its workers (spec 5).

Apps declare their metrics in REGISTRY, without a registry's default one: it would take in what
libraries measure of themselves. What is a state, not an event, is sampled:

    @sampled
    def open_sessions(runtime: Runtime) -> None:
        OPEN.set(…)
"""

import asyncio
import hmac
import os
import resource
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from orazaka.auth import Forbidden, authenticate, presented
from orazaka.errors import OrazakaError
from orazaka.runtime import Resource, Runtime, current
from orazaka.shortchain import failure
from orazaka.snapshot import SNAPSHOT
from orazaka.writer import WRITER

Sample = Callable[[Runtime], None]

SAMPLE_SECONDS = 1.0  # how old another worker's states may be; events are there at once
disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter
REGISTRY = CollectorRegistry()
STATM = Path("/proc/self/statm")
OPEN_FILES = Path("/proc/self/fd")

SUM: Final = "livesum"  # of the workers that live
workers = Gauge("orazaka_workers", "Processes that serve", registry=REGISTRY, multiprocess_mode=SUM)
resident = Gauge(
    "orazaka_resident_memory_bytes",
    "Resident memory of the workers",
    registry=REGISTRY,
    multiprocess_mode=SUM,
)
files = Gauge(
    "orazaka_open_fds",
    "Open file descriptors of the workers",
    registry=REGISTRY,
    multiprocess_mode=SUM,
)
cpu = Counter("orazaka_cpu_seconds", "CPU time of the workers", registry=REGISTRY)
snapshot_age = Gauge(
    "orazaka_snapshot_age_seconds",
    "Time since the oldest worker last compared its configuration with the database",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
rebuilds = Counter(
    "orazaka_snapshot_rebuilds", "Snapshots made of a changed configuration", registry=REGISTRY
)
queued = Gauge(
    "orazaka_writer_queue_length",
    "Items that wait to be written to the database",
    registry=REGISTRY,
    multiprocess_mode=SUM,
)
dropped = Counter(
    "orazaka_writer_dropped",
    "Items that were given up because the queue was full",
    registry=REGISTRY,
)

_samples: list[Sample] = []


def sampled(sample: Sample) -> Sample:
    """Register a function that sets gauges from a runtime, every second and at each look."""
    _samples.append(sample)
    return sample


async def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics, for whoever may see them; an error otherwise."""
    try:
        await _admit(request)
    except OrazakaError as error:
        response = failure(error.status, error.code, error.message)
        if error.status == 401:
            response["WWW-Authenticate"] = "Bearer"
        return response
    take(current())
    text = await asyncio.to_thread(exposition, settings.PROMETHEUS_MULTIPROC_DIR)
    return HttpResponse(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _admit(request: HttpRequest) -> None:
    """Raises Unauthenticated, Forbidden."""
    if request.method not in ("GET", "HEAD"):
        raise OrazakaError("this path takes GET only", status=405, code="method_not_allowed")
    token, found = settings.ORAZAKA_METRICS_TOKEN, presented(request.headers)
    if token and found and hmac.compare_digest(found[1].encode(), token.encode()):
        return
    if not (await authenticate(request.headers, scope="rest")).is_staff:
        raise Forbidden("metrics are for staff users and for ORAZAKA_METRICS_TOKEN")


def exposition(folder: str) -> bytes:
    """The text: of this process, or summed over those that write into the folder."""
    if not folder:
        return generate_latest(REGISTRY)
    bury_dead(Path(folder))
    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def bury_dead(folder: Path) -> None:
    """Take out the states of workers that died. Their counts stay: a total never falls."""
    for pid in {path.stem.rpartition("_")[2] for path in folder.glob("gauge_live*.db")}:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]


def take(runtime: Runtime) -> None:
    """Take all samples."""
    for sample in _samples:
        sample(runtime)


@sampled
def _process(_: Runtime) -> None:
    workers.set(1)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    follow(cpu, usage.ru_utime + usage.ru_stime)
    with suppress(OSError):  # Linux only
        resident.set(int(STATM.read_text().split()[1]) * resource.getpagesize())
        files.set(len(os.listdir(OPEN_FILES)))


@sampled
def _state(runtime: Runtime) -> None:
    keeper, writer = runtime[SNAPSHOT], runtime[WRITER]
    snapshot_age.set(keeper.age)
    follow(rebuilds, keeper.rebuilds)
    queued.set(writer.queued)
    follow(dropped, writer.lost)


_last: dict[Counter, float] = {}


def follow(counter: Counter, total: float) -> None:
    """Count what a total has grown by; one that is smaller than before has begun anew."""
    before = _last.get(counter, 0.0)
    counter.inc(total - before if total >= before else total)
    _last[counter] = total


@asynccontextmanager
async def _open(runtime: Runtime) -> AsyncGenerator[None]:
    async def keep() -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            with suppress(RuntimeError):  # the runtime is still opening
                take(runtime)

    runtime.spawn(keep(), name="metrics")
    yield


SAMPLING = Resource(_open)
