"""Spans for a collector of OpenTelemetry, when OTEL_EXPORTER_OTLP_ENDPOINT names one (spec 5).

What writes spans takes the tracer with `runtime[TRACER]`; None: nobody wants any. It is not the
global one: libraries that trace by themselves (the MCP SDK) would add spans without a parent.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from opentelemetry.trace import Tracer

from orazaka.runtime import Resource, Runtime

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)
EXPORT_SECONDS = 5.0  # for one request to the collector, and for the last ones at the end


@register(Tags.compatibility)
def tracing_is_installed(**_: Any) -> Iterator[CheckMessage]:
    """E007."""
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT and not installed():
        yield Error(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but the packages for it are not installed.",
            hint="Install the extra: pip install '.[otel]'; or unset the variable.",
            id="orazaka.E007",
        )


def installed() -> bool:
    """Whether the extra `otel` is."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def provider_for(endpoint: str) -> "TracerProvider":
    """Sends spans in batches, from a thread of its own, to `endpoint`/v1/traces.

    OpenTelemetry's own variables hold too (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
    OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS). Whoever calls shuts it down.
    """
    # Optional packages, and half a second of imports that most deployments never need.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk import resources
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    mine = resources.Resource({resources.SERVICE_NAME: "orazaka"})
    provider = TracerProvider(
        resource=mine.merge(resources.OTELResourceDetector().detect()),
        shutdown_on_exit=False,  # the runtime does that
    )
    url = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@asynccontextmanager
async def _open(_: Runtime) -> AsyncGenerator[Tracer | None]:
    endpoint = settings.OTEL_EXPORTER_OTLP_ENDPOINT
    if not endpoint or not installed():
        yield None
        return
    provider = await asyncio.to_thread(provider_for, endpoint)
    try:
        yield provider.get_tracer("orazaka")
    finally:
        try:
            async with asyncio.timeout(EXPORT_SECONDS + 1):
                await asyncio.to_thread(provider.shutdown)
        except TimeoutError:
            log.warning("the collector of spans does not answer: the last ones are lost")


TRACER: Resource[Tracer | None] = Resource(_open)
