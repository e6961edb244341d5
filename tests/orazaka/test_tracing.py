"""Spans for a collector: sent when one is set, and never in the way."""

import logging
import socket
import subprocess
import sys
import time

import pytest

from orazaka import tracing
from orazaka.runtime import RunSync, Runtime
from orazaka.tracing import TRACER
from tests.orazaka.collector import attributes, collector

pytestmark = pytest.mark.django_db


async def test_without_a_collector_there_is_no_tracer(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        assert runtime[TRACER] is None


def test_without_a_collector_nothing_of_its_packages_is_loaded() -> None:
    code = (
        "import sys, django; django.setup(); import orazaka.tracing, gateway.spans; "
        "print([name for name in sys.modules if 'opentelemetry.exporter' in name])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"


async def test_spans_reach_the_collector_at_the_end_at_the_latest(
    run_sync: RunSync, settings
) -> None:
    with collector() as found:
        settings.OTEL_EXPORTER_OTLP_ENDPOINT = found.url + "/"
        async with Runtime(run_sync=run_sync) as runtime:
            tracer = runtime[TRACER]
            assert tracer is not None
            tracer.start_span("one", attributes={"a": 1}).end()
    assert found.paths == ["/v1/traces"]
    assert found.services == {"orazaka"}
    assert attributes(found.spans["one"]) == {"a": 1}


async def test_a_collector_that_is_silent_does_not_hold_up_the_stop(
    run_sync: RunSync, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "EXPORT_SECONDS", 0.5)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        settings.OTEL_EXPORTER_OTLP_ENDPOINT = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Runtime(run_sync=run_sync) as runtime:
            tracer = runtime[TRACER]
            assert tracer is not None
            tracer.start_span("lost").end()
            began = time.monotonic()
        assert time.monotonic() - began < 5


def test_the_check_says_what_to_install(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(tracing.tracing_is_installed()) == []
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://127.0.0.1:4318"
    assert list(tracing.tracing_is_installed()) == []
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    (error,) = tracing.tracing_is_installed()
    assert error.id == "orazaka.E007"
    assert "[otel]" in str(error.hint)
