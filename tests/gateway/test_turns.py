"""Whole turns on chat completions: a strict provider, real MCP servers, real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from django.test import override_settings
from mcp.server.mcpserver import MCPServer

from gateway import views
from gateway.models import Tail, Turn, TurnStep
from gateway.turns import TURNS
from mcp_servers.client import Endpoint
from mcp_servers.source import SESSIONS
from tests.gateway.serving import Gateway, gateway
from tests.mcp_servers.scripted import (
    Scripted,
    body,
    hang,
    in_turn,
    status,
    text_result,
    tool,
    usual,
)
from tests.mcp_servers.using import served, until
from tests.wires.checker import check_plain, check_stream
from tests.wires.strict import StrictProvider

pytestmark = pytest.mark.django_db

Json = Any
OWN = {
    "type": "function",
    "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture(autouse=True)
def provider(settings) -> Iterator[StrictProvider]:
    with StrictProvider(key="sk-upstream") as provider:
        settings.OPENAI_API_KEY = "sk-upstream"
        settings.OPENAI_BASE_URL = provider.url + "/v1"
        settings.ORAZAKA_DRAIN_SECONDS = 1
        yield provider


@asynccontextmanager
async def official() -> AsyncIterator[str]:
    """A server made with the official SDK, session era, answers as event streams."""
    server = MCPServer("tests", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool()
    def fail() -> str:
        """Always fail."""
        raise ValueError("out of order")

    async with served(server.streamable_http_app()) as url:
        yield url + "/mcp"


def said(*lines: str) -> list[Json]:
    return [{"role": "user", "content": "\n".join(lines)}]


def inline(url: str, name: str = "tests", **more: Json) -> Json:
    return {"name": name, "url": url, **more}


async def streamed(gate: Gateway, **request: Json) -> bytes:
    response = await gate.chat(stream=True, **request)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    return response.content


def got(text: str) -> list[str]:
    """The results that the strict provider says it got."""
    return json.loads(text.removeprefix("GOT "))


async def the_turn(gate: Gateway, run_sync) -> Turn:
    await gate.written()
    return await run_sync(lambda: Turn.objects.get())


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


# --- servers that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (status(401), 502, "401"),
        (status(500), 502, "500"),
        (body("<html>hello</html>", "text/html"), 502, ""),
        (body("not json"), 502, ""),
        (status(307, Location="http://127.0.0.1:1/"), 502, "redirect"),
    ],
)
async def test_an_inline_server_that_fails_is_named_and_the_model_is_not_called(
    run_sync, provider, answer, code, words
):
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on = dict.fromkeys(["initialize", "server/discover", "tools/list", "GET"], answer)
        response = await gate.chat(
            messages=said("SAY hi"), mcp_servers=[inline(server.url, "shop")]
        )
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (code, "mcp_servers[0]")
        assert "shop" in error["message"]
        assert words in error["message"]
        assert provider.bodies == []


async def test_a_server_that_is_not_there_is_named(run_sync, provider):
    async with Scripted() as live, Scripted() as dead, gateway(run_sync) as gate:
        await dead._runner.cleanup()
        response = await gate.chat(
            messages=said("SAY hi"), mcp_servers=[inline(live.url, "a"), inline(dead.url, "b")]
        )
        assert (response.status_code, response.json()["error"]["param"]) == (502, "mcp_servers[1]")
        assert provider.bodies == []


async def test_a_server_that_dies_between_rounds_is_an_error_result(run_sync):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = in_turn(usual, status(500))
        response = await gate.chat(
            messages=said("CALL ours {}", "THEN", "CALL ours {}"), mcp_servers=[inline(server.url)]
        )
        first, second = got(check_plain(response.json()).text)
        assert first == "{}"
        assert second.startswith("Error: ")


async def test_allowed_tools_limit_what_is_listed_and_none_that_match_is_400(run_sync, provider):
    async with Scripted(tool("a"), tool("b")) as server, gateway(run_sync) as gate:
        some = inline(server.url, allowed_tools=["b"])
        await gate.chat(messages=said("SAY hi"), mcp_servers=[some])
        assert [t["function"]["name"] for t in provider.bodies[0]["tools"]] == ["b"]
        none = inline(server.url, allowed_tools=["c"])
        response = await gate.chat(messages=said("SAY hi"), mcp_servers=[none])
        assert (response.status_code, len(provider.bodies)) == (400, 1)
        assert response.json()["error"]["param"] == "mcp_servers[0].allowed_tools"


async def test_an_empty_allow_list_allows_nothing(run_sync, provider):
    async with Scripted() as server, gateway(run_sync) as gate:
        response = await gate.chat(
            messages=said("SAY hi"), mcp_servers=[inline(server.url, allowed_tools=[])]
        )
        assert response.status_code == 200
        assert "tools" not in provider.bodies[0]


# --- silence and departures -----------------------------------------------------------------------


@override_settings(ORAZAKA_KEEPALIVE_SECONDS=0.05)
async def test_silence_is_filled_also_while_a_tool_runs(run_sync):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = hang
        request = {
            "model": "openai:strict-1",
            "stream": True,
            "messages": said("SAY wait", "CALL ours {}"),
            "mcp_servers": [inline(server.url)],
        }
        async with gate.client.stream("POST", "/v1/chat/completions", json=request) as response:
            async for line in response.aiter_lines():
                if line == ": keep-alive":
                    break
            else:
                pytest.fail("no sign of life")


async def test_a_failure_after_the_headers_is_an_event_of_the_stream(run_sync, monkeypatch):
    monkeypatch.setattr(views, "FIRST_EVENT_SECONDS", 0.05)
    async with gateway(run_sync) as gate:
        raw = await streamed(gate, messages=said("FIRST 0.3", "STATUS 500"))
        assert check_stream(raw).error["code"] == "upstream_error"


async def test_an_error_in_the_middle_of_a_stream_is_an_event(run_sync):
    async with gateway(run_sync) as gate:
        reply = check_stream(await streamed(gate, messages=said("SAY a b c", "ERROR no more")))
        assert reply.error["message"] == "no more"
        cut = check_stream(await streamed(gate, messages=said("SAY a b c", "CUT 2")))
        assert cut.error["code"] == "upstream_error"


async def test_a_client_that_leaves_ends_the_model_call_and_leaves_a_record(run_sync, provider):
    async with gateway(run_sync) as gate:
        request = {"model": "openai:strict-1", "messages": said("SAY hi", "FIRST 20")}
        for stream in (False, True):
            asking = asyncio.create_task(
                gate.client.post("/v1/chat/completions", json={**request, "stream": stream})
            )
            await asyncio.to_thread(provider.wait_until, lambda: provider.in_flight == 1)
            asking.cancel()
            await asyncio.to_thread(provider.wait_until, lambda: provider.in_flight == 0)
        await until(lambda: not gate.runtime[TURNS].running)
        await gate.written()
        rows = await run_sync(lambda: list(Turn.objects.values_list("status", "rounds")))
        assert rows == [("cancelled", 1)] * 2


async def test_a_client_that_leaves_ends_the_tools_in_flight_and_keeps_the_session(run_sync):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = in_turn(hang, usual)
        request = {"messages": said("CALL ours {}"), "mcp_servers": [inline(server.url)]}
        asking = asyncio.create_task(gate.chat(**request))
        async with asyncio.timeout(5):
            await server.held.wait()
        asking.cancel()
        await until(lambda: not gate.runtime[TURNS].running)
        response = await gate.chat(**request)
        assert got(check_plain(response.json()).text) == ["{}"]
        assert len(server.sessions) == 1
        await gate.written()
        steps = await run_sync(
            lambda: list(TurnStep.objects.filter(kind="tool").values_list("outcome"))
        )
        assert sorted(steps) == [("cancelled",), ("ok",)]


def ours() -> list[str]:
    """The tasks of this loop but those of its test servers and their connections."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [n for n in names if not n.startswith(("RequestHandler.", "RequestResponseCycle."))]


async def test_250_turns_that_are_left_leave_nothing_behind(run_sync, provider):
    async with Scripted(tool("ours")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = hang
        request = {"mcp_servers": [inline(server.url)], "model": "openai:strict-1"}
        kinds = [
            {**request, "messages": said("CALL ours {}"), "stream": True},
            {**request, "messages": said("SAY a", "TOKENS 50", "GAP 0.1"), "stream": True},
            {**request, "messages": said("FIRST 20"), "stream": True},
            {**request, "messages": said("FIRST 20")},
        ]
        await gate.chat(messages=said("SAY hi"), **request)
        before = len(ours())

        async def leave(number: int) -> None:
            sent = kinds[number % len(kinds)]
            try:
                async with asyncio.timeout(0.05 + number % 10 / 40):
                    await gate.client.post("/v1/chat/completions", json=sent)
            except TimeoutError:
                pass

        for start in range(0, 250, 25):
            await asyncio.gather(*(leave(n) for n in range(start, start + 25)))
        server.released.set()
        await until(lambda: not gate.runtime[TURNS].running)
        await asyncio.to_thread(provider.wait_until, lambda: provider.in_flight == 0)
        await until(lambda: gate.runtime[SESSIONS].pool.busy == 0)
        await until(lambda: len(ours()) <= before)
        assert gate.runtime[SESSIONS].pool.kept <= 1
        await gate.written()
        assert await run_sync(Turn.objects.count) == gate.runtime[TURNS].begun > 0


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
