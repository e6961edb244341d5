"""Whole turns on chat completions: a strict provider, real MCP servers, real sockets."""

import asyncio
import json
from typing import Any

import pytest

from gateway.models import Tail
from tests.gateway.serving import gateway
from tests.gateway.talking import OWN, got, inline, official, said, streamed
from tests.mcp_servers.scripted import (
    Scripted,
    tool,
    usual,
)
from tests.wires.checker import check_plain, check_stream

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("provider")]

Json = Any


# --- one turn ---


async def test_a_plain_turn_calls_a_tool_and_answers_with_what_it_gave(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said('CALL add {"a": 1, "b": 2}'), mcp_servers=[inline(url)]
        )
        reply = check_plain(response.json())
        assert got(reply.text) == ["3"]
        assert reply.finish_reason == "stop"
        assert reply.usage["prompt_tokens"] == 300
        assert reply.usage["completion_tokens"] == 30
        assert response.headers["X-Orazaka-Rounds"] == "2"
        assert response.headers["X-Orazaka-Tool-Calls"] == "1"
        assert response.headers["X-Request-ID"]


async def test_a_streamed_turn_shows_no_trace_of_our_calls(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        raw = await streamed(
            gate,
            messages=said("SAY Let me see.", 'CALL add {"a": 1, "b": 2}'),
            mcp_servers=[inline(url)],
            stream_options={"include_usage": True},
        )
        reply = check_stream(raw, include_usage=True, hidden={"add", "fail"})
        assert reply.text == 'Let me see.\n\nGOT ["3"]'
        assert reply.usage["total_tokens"] == 330


async def test_usage_is_not_shown_to_who_did_not_ask_but_always_asked_upstream(run_sync, provider):
    async with gateway(run_sync) as gate:
        reply = check_stream(await streamed(gate, messages=said("SAY hi")))
        assert reply.usage is None
        assert provider.bodies[0]["stream_options"] == {"include_usage": True}


async def test_calls_of_one_round_run_at_once_on_two_servers(run_sync):
    async with Scripted(tool("one")) as a, Scripted(tool("two")) as b, gateway(run_sync) as gate:
        together = asyncio.Barrier(2)

        async def meet(asked: Any) -> Any:
            async with asyncio.timeout(5):
                await together.wait()
            return await usual(asked)

        a.on["tools/call"] = b.on["tools/call"] = meet
        response = await gate.chat(
            messages=said("CALL one {}", "CALL two {}"),
            mcp_servers=[inline(a.url, "a"), inline(b.url, "b")],
        )
        assert got(check_plain(response.json()).text) == ["{}", "{}"]


async def test_two_tools_of_one_name_are_both_callable(run_sync, provider):
    async with Scripted(tool("go")) as a, Scripted(tool("go")) as b, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said('CALL go {"n": 1}', 'CALL b__go {"n": 2}'),
            mcp_servers=[inline(a.url, "a"), inline(b.url, "b")],
        )
        assert got(check_plain(response.json()).text) == ['{"n": 1}', '{"n": 2}']
        assert (len(a.calls), len(b.calls)) == (1, 1)
        assert [t["function"]["name"] for t in provider.bodies[0]["tools"]] == ["go", "b__go"]


async def test_a_tools_failure_is_text_for_the_model(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(messages=said("CALL fail {}"), mcp_servers=[inline(url)])
        (text,) = got(check_plain(response.json()).text)
        assert text.startswith("Error: ")


async def test_arguments_that_do_not_fit_are_not_run(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said('CALL add {"a": "one", "b": 2}', "RAW add [1", "RAW add [1]"),
            mcp_servers=[inline(url)],
        )
        results = got(check_plain(response.json()).text)
        assert len(results) == 3
        assert all("was not run" in text for text in results)


async def test_a_name_that_nobody_has_is_answered_with_near_names(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(messages=said("CALL ad {}"), mcp_servers=[inline(url)])
        (text,) = got(check_plain(response.json()).text)
        assert "no tool named ad" in text
        assert "add" in text


async def test_hints_go_before_the_system_text_and_headers_lead_them(run_sync, provider):
    async with official() as url, gateway(run_sync) as gate:
        await gate.chat(
            messages=[{"role": "system", "content": "Be brief."}, *said("SAY hi")],
            mcp_servers=[inline(url, purpose_hint="for sums")],
            tools_header="You have:",
        )
        assert (
            provider.bodies[0]["messages"][0]["content"]
            == "You have:\n- tests: for sums\n\nBe brief."
        )


async def test_the_gateways_own_members_never_go_upstream_and_all_others_do(run_sync, provider):
    async with official() as url, gateway(run_sync) as gate:
        await gate.chat(
            messages=said("SAY hi"),
            mcp_servers=[inline(url)],
            max_tool_iterations=3,
            orazaka_trace=True,
            orazaka_tools="auto",
            orazaka_servers="none",
            orazaka_commit="manual",
            temperature=0.5,
            metadata={"a": "b"},
            some_extension={"x": [1]},
        )
        sent = provider.bodies[0]
        assert {k: sent[k] for k in ("temperature", "metadata", "some_extension")} == {
            "temperature": 0.5,
            "metadata": {"a": "b"},
            "some_extension": {"x": [1]},
        }
        assert set(sent) == {
            "model",
            "messages",
            "tools",
            "temperature",
            "metadata",
            "some_extension",
        }


async def test_the_gateways_key_goes_upstream_and_the_callers_never(run_sync, provider):
    async with gateway(run_sync) as gate:
        response = await gate.client.post(
            "/v1/chat/completions",
            json={"model": "openai/strict-1", "messages": said("SAY hi")},
            headers={"OpenAI-Organization": "org-1", "OpenAI-Beta": "x=1", "Otari-Key": gate.key},
        )
        assert response.status_code == 200
        headers = provider.requests[0].headers
        assert headers["authorization"] == "Bearer sk-upstream"
        assert headers["openai-beta"] == "x=1"
        assert "openai-organization" not in headers
        assert gate.key not in str(headers)


# --- rounds ---


async def test_the_last_permitted_call_is_made_without_our_tools_so_that_there_is_an_answer(
    run_sync, provider
):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said('CALL add {"a": 1, "b": 2}', "LOOP"),
            mcp_servers=[inline(url)],
            max_tool_iterations=2,
        )
        assert response.status_code == 200
        assert [b.get("tool_choice") for b in provider.bodies] == [None, "none"]
        assert got(check_plain(response.json()).text) == ["3"]


async def test_a_model_that_asks_on_is_ended_with_422_and_the_usage_so_far(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        request = {
            "messages": said('CALL add {"a": 1, "b": 2}', "LOOP", "STUBBORN"),
            "mcp_servers": [inline(url)],
            "max_tool_iterations": 2,
        }
        error = (plain := await gate.chat(**request)).json()["error"]
        assert plain.status_code == 422
        assert error["code"] == "max_tool_iterations"
        assert error["usage"]["prompt_tokens"] == 300
        response = await gate.chat(stream=True, **request)
        assert response.status_code == 422


async def test_a_forced_tool_choice_holds_for_the_first_round_only(run_sync, provider):
    async with official() as url, gateway(run_sync) as gate:
        await gate.chat(
            messages=said('CALL add {"a": 1, "b": 2}'),
            mcp_servers=[inline(url)],
            tool_choice={"type": "function", "function": {"name": "add"}},
        )
        choices = [body["tool_choice"] for body in provider.bodies]
        assert choices == [{"type": "function", "function": {"name": "add"}}, "auto"]


async def test_several_answers_at_once_pass_without_our_tools_and_are_refused_with_them(run_sync):
    async with official() as url, gateway(run_sync) as gate:
        response = await gate.chat(messages=said("SAY hi"), n=2, mcp_servers=[inline(url)])
        assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


# --- the caller's own tools -----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_mixed_turn_goes_on_with_nothing_lost_and_nothing_run_twice(
    run_sync, provider, stream
):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        request = {"mcp_servers": [inline(server.url)], "tools": [OWN], "stream": stream}
        asking = said('CALL ours {"n": 1}', "THEN", 'CALL ours {"n": 2}', 'CALL mine {"q": [1, 2]}')
        first = await gate.chat(messages=asking, **request)
        reply = (
            check_stream(first.content, hidden={"ours"}) if stream else check_plain(first.json())
        )
        (call,) = reply.calls
        assert (call.name, json.loads(call.arguments)) == ("mine", {"q": [1, 2]})
        assert reply.finish_reason == "tool_calls"

        # The client writes its arguments anew, in another order of members and with other spaces.
        again = {
            "role": "assistant",
            "content": reply.text or None,
            "tool_calls": [
                {
                    "function": {"arguments": '{ "q" : [1,2] }', "name": "mine"},
                    "type": "function",
                    "id": call.id,
                }
            ],
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "my own"}
        second = await gate.chat(messages=[*asking, again, result], **request)
        text = check_stream(second.content).text if stream else check_plain(second.json()).text
        assert got(text) == ['{"n": 1}', '{"n": 2}', "my own"]
        assert len(server.calls) == 2


async def test_someone_elses_tail_is_never_used(run_sync):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        request = {"mcp_servers": [inline(server.url)], "tools": [OWN]}
        asking = said("CALL ours {}", "CALL mine {}")
        (call,) = check_plain((await gate.chat(messages=asking, **request)).json()).calls
        await run_sync(lambda: Tail.objects.update(principal="user:0"))
        function = {"name": call.name, "arguments": call.arguments}
        again = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "my own"}
        second = await gate.chat(messages=[*asking, again, result], **request)
        assert got(check_plain(second.json()).text) == ["my own"]
