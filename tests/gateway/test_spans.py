"""A turn's spans: what they say, and where they hang."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway import spans
from gateway.record import Record
from gateway.wire import Usage
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.runtime import RunSync
from tests.gateway.serving import gateway
from tests.orazaka.collector import attributes, collector

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def record() -> Record:
    caller = Caller(principal="user:1", request_id="req-1")
    return Record(caller, wire="chat", model="openai:m-1", streamed=True)


def reported(turn: Record, **more: Any) -> dict[str, ReadableSpan]:
    """The spans of a turn, by name."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    about = {"wire": "chat", "provider": "openai", "model": "m-1", "usage": Usage()}
    how: Any = {**about, "error": None, "parent": {}, **more}
    spans.report(provider.get_tracer("test"), turn, **how)
    provider.shutdown()
    return {span.name: span for span in exporter.get_finished_spans()}


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_the_turn_is_the_parent_of_its_calls() -> None:
    turn = record()
    turn.step("model", "m-1", "ok", started=0, round=1, usage={"prompt": 7, "completion": 2})
    turn.step("tool", "find", "ok", started=0, server="files", tool="find", origin="inline")
    turn.step("server", "files", "listed", started=0)
    found = reported(turn, usage=Usage(prompt=7, completion=2, cached=3))
    whole = found["turn m-1"]
    assert whole.kind is SpanKind.SERVER
    assert whole.parent is None
    assert said(whole)["gen_ai.usage.input_tokens"] == 7
    assert said(whole)["gen_ai.usage.cache_read.input_tokens"] == 3
    assert said(whole)["orazaka.turn.id"] == str(turn.id)
    assert said(whole)["orazaka.request.id"] == "req-1"
    below = {name: span for name, span in found.items() if span is not whole}
    assert sorted(below) == ["chat m-1", "tools/call find", "tools/list"]
    for span in below.values():
        assert span.parent and whole.context
        assert span.parent.span_id == whole.context.span_id
        assert (whole.start_time or 0) <= (span.start_time or 0)
        assert (span.start_time or 0) <= (span.end_time or 0) <= (whole.end_time or 0)
    assert said(below["chat m-1"])["gen_ai.usage.output_tokens"] == 2
    assert said(below["tools/call find"])["mcp.method.name"] == "tools/call"
    assert said(below["tools/list"])["orazaka.server"] == "files"


def test_a_kept_list_and_a_note_are_no_spans() -> None:
    turn = record()
    turn.step("server", "files", "kept", started=0)
    turn.step("note", "left out", "left_out", started=0)
    assert list(reported(turn)) == ["turn m-1"]


def test_a_tool_of_ours_is_no_mcp_call() -> None:
    turn = record()
    turn.step("tool", "sum", "ok", started=0, server="registry", tool="sum", origin="registered")
    assert "mcp.method.name" not in said(reported(turn)["execute_tool sum"])


def test_what_failed_says_how() -> None:
    turn = record()
    turn.step("model", "m-1", "late", started=0)
    found = reported(turn, error=OrazakaError("words that stay here", code="turn_timeout"))
    assert said(found["turn m-1"])["error.type"] == "turn_timeout"
    assert said(found["chat m-1"])["error.type"] == "late"
    assert {span.status.status_code for span in found.values()} == {StatusCode.ERROR}
    assert "words" not in str([span.to_json() for span in found.values()])


def test_content_that_is_recorded_stays_out() -> None:
    turn = record()
    private = {"sent": '{"secret": 1}', "got": "private words", "arguments": ["secret"]}
    turn.step("tool", "find", "ok", started=0, server="s", tool="find", origin="user", **private)
    shown = str([span.to_json() for span in reported(turn).values()])
    assert "secret" not in shown
    assert "private" not in shown


def test_a_clients_trace_is_continued() -> None:
    found = reported(record(), parent={"traceparent": TRACEPARENT, "tracestate": "a=b"})["turn m-1"]
    assert found.context and found.parent
    assert f"{found.context.trace_id:032x}" == TRACE
    assert f"{found.parent.span_id:016x}" == SPAN


@pytest.mark.parametrize(
    "sent", ["", "nonsense", "00-0-0-00", f"00-{'0' * 32}-{SPAN}-01", "ä" * 99]
)
def test_a_malformed_one_begins_a_new_trace(sent: str) -> None:
    assert reported(record(), parent={"traceparent": sent})["turn m-1"].parent is None


def test_a_client_that_does_not_sample_is_heeded() -> None:
    assert reported(record(), parent={"traceparent": TRACEPARENT[:-1] + "0"}) == {}


@pytest.mark.django_db
async def test_a_real_turn_reaches_the_collector(run_sync: RunSync, settings) -> None:
    with collector() as found:
        settings.OTEL_EXPORTER_OTLP_ENDPOINT = found.url
        async with gateway(run_sync) as here:
            here.client.headers["traceparent"] = TRACEPARENT
            messages = [{"role": "user", "content": "private words"}]
            reply = await here.chat(model="demo:demo", messages=messages)
            assert reply.status_code == 200
    turn = found.spans["turn demo"]
    assert turn.trace_id.hex() == TRACE
    assert turn.parent_span_id.hex() == SPAN
    assert found.spans["chat demo"].parent_span_id == turn.span_id
    used = reply.json()["usage"]["prompt_tokens"]
    assert attributes(turn)["gen_ai.usage.input_tokens"] == used
    assert attributes(turn)["orazaka.turn.id"] == reply.headers["x-orazaka-turn"]
    assert "private" not in str(found.spans)
