"""A turn as spans: itself, its model calls, its tool calls and the tool lists that it asked for.

Made from the record at the turn's end, so that a turn pays nothing while it runs. Attributes are
those of OpenTelemetry's semantic conventions for generative AI and MCP (1.43), copied as strings
since those modules still change. Names and sizes only, no content.
"""

from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.record import Record
from gateway.wire import Usage
from orazaka.errors import OrazakaError

Json = Any
Attributes = dict[str, str | int | float | bool]

HEADERS = ("traceparent", "tracestate")  # W3C Trace Context: what the client's own span is
FINE = {"ok", "cached", "kept", "listed"}
TOKENS = {
    "prompt": "gen_ai.usage.input_tokens",
    "completion": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
NONE = Usage()


def report(
    tracer: Tracer,
    record: Record,
    *,
    wire: str,
    provider: str,
    model: str,
    usage: Usage,
    error: OrazakaError | None,
    parent: Mapping[str, str],
) -> None:
    """Send the spans of a turn that has just ended, below the client's span if it sent one."""
    above = TraceContextTextMapPropagator().extract(parent, context=Context())
    about: Attributes = {"gen_ai.provider.name": provider, "gen_ai.request.model": model[:255]}
    began = int(record.at.timestamp() * 1e9)
    turn = tracer.start_span(
        f"turn {model[:255]}",
        context=above,
        kind=SpanKind.SERVER,
        start_time=began,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            **about,
            **_tokens(usage.since(NONE)),
            "orazaka.turn.id": str(record.id),
            "orazaka.request.id": record.request_id,
            "orazaka.wire": wire,
        },
    )
    if record.first_output is not None:
        seconds = record.first_output / 1000
        turn.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
    if error is not None:
        _failed(turn, error.code)
    below = set_span_in_context(turn, above)
    for step in record.steps:
        _step(tracer, step, about, context=below, began=began)
    turn.end(began + int(record.now() * 1e6))


def _step(
    tracer: Tracer, step: Mapping[str, Json], about: Attributes, *, context: Context, began: int
) -> None:
    if step["kind"] == "model":
        name, kind, attributes = _model(step, about)
    elif step["kind"] == "tool":
        name, kind, attributes = _tool(step)
    elif step["kind"] == "server" and step["outcome"] != "kept":  # kept: nothing was sent
        name, kind = "tools/list", SpanKind.CLIENT
        attributes = {"mcp.method.name": "tools/list", "orazaka.server": step["name"]}
    else:
        return
    start = began + int(step["started_ms"] * 1e6)
    span = tracer.start_span(
        name, context=context, kind=kind, start_time=start, attributes=attributes
    )
    if step["outcome"] not in FINE:
        _failed(span, step["outcome"])
    span.end(start + int(step["duration_ms"] * 1e6))


def _model(step: Mapping[str, Json], about: Attributes) -> tuple[str, SpanKind, Attributes]:
    used = _tokens(step["detail"].get("usage") or {})
    attributes: Attributes = {"gen_ai.operation.name": "chat", **about, **used}
    return f"chat {step['name']}", SpanKind.CLIENT, attributes


def _tool(step: Mapping[str, Json]) -> tuple[str, SpanKind, Attributes]:
    detail = step["detail"]
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step["name"],
        "gen_ai.tool.type": "function",
        "orazaka.tool.origin": detail["origin"],
        "orazaka.tool.outcome": step["outcome"],
    }
    if not step["server"] or detail["origin"] == "registered":
        return f"execute_tool {step['name']}", SpanKind.INTERNAL, attributes
    attributes |= {"mcp.method.name": "tools/call", "orazaka.server": step["server"]}
    return f"tools/call {detail['tool']}", SpanKind.CLIENT, attributes


def _tokens(usage: Mapping[str, int]) -> Attributes:
    return {TOKENS[name]: amount for name, amount in usage.items() if name in TOKENS}


def _failed(span: Span, what: str) -> None:
    span.set_attribute("error.type", what)
    span.set_status(Status(StatusCode.ERROR))
