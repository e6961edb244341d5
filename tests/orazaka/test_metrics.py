"""`/metrics`: who may see them, and what several processes add up to."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.test import AsyncRequestFactory
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from orazaka import metrics
from orazaka.models import ApiKey
from orazaka.runtime import RunSync, Runtime
from orazaka.snapshot import SNAPSHOT
from orazaka.writer import WRITER
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
TOKEN = "a-token-only-for-metrics"


def samples(text: str) -> dict[str, float]:
    """Each sample's value under its name with its labels, sorted."""
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def get(key: str = "", method: str = "GET") -> SimpleNamespace:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = AsyncRequestFactory().generic(method, "/metrics", headers=headers)
    response = await metrics.metrics(request)
    return SimpleNamespace(status=response.status_code, text=response.content.decode())


def issue(*, is_staff: bool, scopes: list[str] | None = None) -> str:
    row, key = ApiKey.objects.issue(UserFactory.create(is_staff=is_staff), name="metrics")
    if scopes is not None:
        ApiKey.objects.filter(pk=row.pk).update(scopes=scopes)
    return key


async def test_a_staff_users_key_opens_them(run_sync: RunSync) -> None:
    key = await run_sync(lambda: issue(is_staff=True))
    async with Runtime(run_sync=run_sync):
        found = await get(key)
    assert found.status == 200
    values = samples(found.text)
    assert values["orazaka_workers"] == 1
    assert 0 <= values["orazaka_snapshot_age_seconds"] < 60
    assert values["orazaka_writer_queue_length"] in (0, 1)  # the key's use, which is noted
    assert values["orazaka_cpu_seconds_total"] > 0


async def test_others_keys_do_not_open_them(run_sync: RunSync) -> None:
    plain = await run_sync(lambda: issue(is_staff=False))
    narrow = await run_sync(lambda: issue(is_staff=True, scopes=["gateway"]))
    async with Runtime(run_sync=run_sync):
        assert [(await get(key)).status for key in (plain, narrow)] == [403, 403]


async def test_the_token_opens_them_and_nothing_like_it(run_sync: RunSync, settings) -> None:
    settings.ORAZAKA_METRICS_TOKEN = TOKEN
    async with Runtime(run_sync=run_sync):
        assert (await get(TOKEN)).status == 200
        for wrong in ("", TOKEN[:-1], TOKEN + "x", "ä" * 8):
            assert (await get(wrong)).status == 401
        assert (await get(TOKEN, "POST")).status == 405


async def test_without_a_token_set_an_empty_one_opens_nothing(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        request = AsyncRequestFactory().get("/metrics", headers={"Authorization": "Bearer "})
        assert (await metrics.metrics(request)).status_code == 401


async def test_states_are_those_of_the_runtime(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        await runtime[SNAPSHOT].fresh()
        runtime[WRITER].do(lambda: None)
        metrics.take(runtime)
        values = samples(metrics.exposition("").decode())
    assert values["orazaka_writer_queue_length"] == 1
    assert values["orazaka_snapshot_rebuilds_total"] >= 1


def test_a_total_that_begins_anew_adds_to_what_was_counted() -> None:
    counter = Counter("orazaka_test_total", "A test's", registry=CollectorRegistry())
    for total in (3, 5, 2, 2):
        metrics.follow(counter, total)
    assert counter._value.get() == 7


WORKER = """
from orazaka import metrics
metrics.workers.set(1)
metrics.dropped.inc(2)
metrics.snapshot_age.set({age})
print("ready", flush=True)
input()
"""


def worker(folder: Path, age: int) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", "import django; django.setup()\n" + WORKER.format(age=age)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_workers_are_summed_and_a_dead_ones_states_go_but_not_its_counts(
    tmp_path: Path,
) -> None:
    with worker(tmp_path, 3) as one, worker(tmp_path, 7) as other:
        try:
            both = samples(metrics.exposition(str(tmp_path)).decode())
            other.kill()
            other.wait(10)
            alone = samples(metrics.exposition(str(tmp_path)).decode())
        finally:
            one.kill()
    names = ("orazaka_workers", "orazaka_writer_dropped_total", "orazaka_snapshot_age_seconds")
    assert [both[name] for name in names] == [2, 4, 7]
    assert [alone[name] for name in names] == [1, 4, 3]
