"""What a turn leaves behind: its record, and the trace."""

import json
from functools import partial
from typing import Any

import pytest

from gateway.models import TurnStep
from mcp_servers.client import Endpoint
from tests.gateway.serving import gateway
from tests.gateway.talking import got, inline, official, said, streamed, the_turn
from tests.mcp_servers.scripted import (
    Scripted,
    hang,
    text_result,
    tool,
)
from tests.wires.checker import check_plain, check_stream

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("provider")]

Json = Any


# --- the record -----------------------------------------------------------------------------------


async def test_a_turn_leaves_a_record_whose_steps_add_up_to_its_usage(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said('CALL add {"a": 1, "b": 2}', "THEN", 'CALL add {"a": 3, "b": 4}'),
            mcp_servers=[inline(url)],
        )
        usage = response.json()["usage"]
        turn = await the_turn(gate, run_sync)
        steps = await run_sync(lambda: list(turn.steps.order_by("position")))
        assert str(turn.pk) == response.headers["X-Orazaka-Turn"]
        assert turn.request_id == response.headers["X-Request-ID"]
        assert (turn.status, turn.rounds, turn.tool_calls) == ("ok", 3, 2)
        assert (turn.prompt_tokens, turn.completion_tokens) == (600, 60)
        assert (turn.cached_tokens, turn.reasoning_tokens) == (30, 12)
        assert usage["prompt_tokens"] == turn.prompt_tokens
        kinds = [(s.kind, s.outcome) for s in steps]
        assert kinds == [("server", "listed")] + [("model", "ok"), ("tool", "ok")] * 2 + [
            ("model", "ok")
        ]
        assert sum(s.detail["usage"]["prompt"] for s in steps if s.kind == "model") == 600
        assert turn.offered[0] == {
            "name": "add",
            "source": "inline:tests",
            "reason": "named in the request",
        }


async def test_a_record_names_arguments_and_keeps_their_values_only_if_asked(run_sync, settings):
    async with official() as url, gateway(run_sync) as gate:
        request = {"messages": said('CALL add {"a": 12345, "b": 2}'), "mcp_servers": [inline(url)]}
        await gate.chat(**request)
        settings.ORAZAKA_RECORD_PAYLOADS = True
        await gate.chat(**request)
        await gate.written()
        one, two = await run_sync(
            lambda: list(TurnStep.objects.filter(kind="tool").order_by("turn__started_at"))
        )
        assert one.detail["arguments"] == ["a", "b"]
        assert "12345" not in json.dumps(one.detail)
        assert two.detail["sent"] == '{"a": 12345, "b": 2}'
        assert two.detail["got"] == "12347"


async def test_a_failed_turn_is_recorded_with_its_error(run_sync):
    async with gateway(run_sync) as gate:
        await gate.chat(messages=said("STATUS 401"))
        turn = await the_turn(gate, run_sync)
        assert (turn.status, turn.error_code) == ("error", "upstream_error")


async def test_the_trace_comes_in_comments_of_a_stream_and_last_in_a_plain_reply(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        request = {
            "messages": said('CALL add {"a": 1, "b": 2}'),
            "mcp_servers": [inline(url)],
            "orazaka_trace": True,
        }
        plain = (await gate.chat(**request)).json()
        assert list(plain)[-1] == "orazaka"
        kinds = [step["kind"] for step in plain["orazaka"]["trace"]]
        assert kinds == ["server", "model", "tool", "model"]
        reply = check_stream(await streamed(gate, **request), hidden=set())
        assert [step["kind"] for step in reply.trace] == kinds


async def test_odd_characters_in_results_are_recorded_and_answered(run_sync, settings):
    settings.ORAZAKA_RECORD_PAYLOADS = True
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:

        async def odd(asked: Any) -> Any:
            return asked.json(text_result("a\0b \ud83d\ude00"))

        server.on["tools/call"] = odd
        response = await gate.chat(messages=said("CALL ours {}"), mcp_servers=[inline(server.url)])
        assert response.status_code == 200
        turn = await the_turn(gate, run_sync)
        assert turn.status == "ok"


async def test_a_tool_that_never_answers_is_late_in_the_record_and_said_to_be_unknown(
    run_sync, monkeypatch
):
    monkeypatch.setattr("gateway.wiring.Endpoint", partial(Endpoint, call_timeout=0.2))
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = hang
        response = await gate.chat(messages=said("CALL ours {}"), mcp_servers=[inline(server.url)])
        (text,) = got(check_plain(response.json()).text)
        assert "its outcome is unknown" in text
        await gate.written()
        step = await run_sync(lambda: TurnStep.objects.get(kind="tool"))
        assert step.outcome == "late"
