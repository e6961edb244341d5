"""Public fault cases (B…) on tools, arguments and the loop, end to end over real sockets.

What is asserted elsewhere already is not repeated here.
"""

import asyncio
import json
import re
from functools import partial
from typing import Any

import pytest

from gateway.models import Turn, TurnStep
from gateway.turns import TURNS
from mcp_servers.client import Endpoint
from tests.gateway.case_talk import BOTH_WAYS, IMAGE, PIXEL, inline, offered, told, turn
from tests.gateway.serving import gateway
from tests.gateway.talking import said
from tests.mcp_servers.scripted import (
    Asked,
    Scripted,
    hang,
    in_turn,
    results,
    status,
    text_result,
    tool,
    usual,
)
from tests.mcp_servers.using import until
from tests.wires.checker import check_stream

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("provider")]

Json = Any


# --- tool definitions -----------------------------------------------------------------------------


async def test_a_tool_without_properties_gets_empty_ones(run_sync, provider):
    """B01."""
    bare = tool("now", inputSchema={"type": "object"})
    async with Scripted(bare) as server, gateway(run_sync) as gate:
        await turn(gate, "CALL now", mcp_servers=[inline(server)])
        expected = {"type": "object", "properties": {}}
        assert offered(provider)["now"]["parameters"] == expected
        assert [call["arguments"] for call in server.calls] == [{}]


async def test_definitions_and_references_to_them_reach_the_model(run_sync, provider):
    """B03."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": node},
    }
    async with Scripted(tool("walk", inputSchema=schema)) as server, gateway(run_sync) as gate:
        asked = {"first": {"next": {"next": {}}}}
        await turn(gate, f"CALL walk {json.dumps(asked)}", mcp_servers=[inline(server)])
        assert offered(provider)["walk"]["parameters"] == schema
        assert [call["arguments"] for call in server.calls] == [asked]


async def test_one_tool_with_alternatives_at_the_top_leaves_the_other_nine_alone(
    run_sync, provider
):
    """B04."""
    odd = {"anyOf": [{"type": "object", "properties": {"id": {"type": "integer"}}}]}
    tools = [tool(f"t{n}") for n in range(9)]
    async with Scripted(*tools, tool("odd", inputSchema=odd)) as server, gateway(run_sync) as gate:
        await turn(gate, "CALL t8", 'CALL odd {"id": 7}', mcp_servers=[inline(server)])
        assert len(offered(provider)) == 10
        parameters = offered(provider)["odd"]["parameters"]
        assert parameters["properties"] == {"id": {"type": "integer"}}
        assert "anyOf" not in parameters
        assert [call["arguments"] for call in server.calls] == [{}, {"id": 7}]


async def test_a_name_that_providers_refuse_is_shown_otherwise_and_called_as_it_is(
    run_sync, provider
):
    """B07, B15: allow-lists and calls speak of the server's own names."""
    named = "repo.issues/list"
    async with Scripted(tool(named), tool("x")) as server, gateway(run_sync) as gate:
        servers = [inline(server, "git hub", allowed_tools=[named])]
        await turn(gate, "CALL git_hub__repo_issues_list", mcp_servers=servers)
        assert list(offered(provider)) == ["git_hub__repo_issues_list"]
        assert [call["name"] for call in server.calls] == [named]


@pytest.mark.parametrize("length", [65, 70])
async def test_a_long_name_is_shortened_the_same_way_each_time(run_sync, provider, length):
    """B08."""
    long, other = "x" * length, "x" * (length - 1) + "y"
    names = []
    for _ in range(2):
        async with Scripted(tool(long), tool(other)) as server, gateway(run_sync) as gate:
            await turn(gate, "SAY hi", mcp_servers=[inline(server)])
            names.append(list(offered(provider)))
            calls = [f"CALL {name}" for name in names[-1]]
            await turn(gate, *calls, mcp_servers=[inline(server)])
            assert sorted(call["name"] for call in server.calls) == [long, other]
    assert names[0] == names[1]
    assert all(len(name) <= 64 for name in names[0])


async def test_an_allowed_tool_on_the_second_page_is_found(run_sync, provider):
    """B13."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/list"] = results(
            {"tools": [tool(f"a{n}") for n in range(20)], "nextCursor": "2"},
            {"tools": [tool(f"b{n}") for n in range(20)], "nextCursor": "3"},
            {"tools": [tool(f"c{n}") for n in range(4)]},
        )
        await turn(gate, "CALL b7", mcp_servers=[inline(server, allowed_tools=["b7"])])
        assert list(offered(provider)) == ["b7"]
        assert [call["name"] for call in server.calls] == ["b7"]


async def test_a_tool_that_is_not_allowed_is_neither_listed_nor_called(run_sync, provider):
    """B17, B98."""
    async with Scripted(tool("read"), tool("write")) as server, gateway(run_sync) as gate:
        servers = [inline(server, allowed_tools=["read"])]
        await turn(gate, "CALL write", "CALL shop__write", "CALL read", mcp_servers=servers)
        assert list(offered(provider)) == ["read"]
        assert [call["name"] for call in server.calls] == ["read"]
        assert [text.startswith("Error: ") for text in told(provider)] == [True, True, False]


# --- tool results ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [], "structuredContent": {"n": 3}}, '{"n":3}'),  # B19
        (
            {"content": [{"type": "resource", "resource": {"uri": "mem://a", "text": "milk"}}]},
            "[resource mem://a]\nmilk",  # B25
        ),
        (
            {"content": [{"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}]},
            "[audio, audio/wav, 4 bytes: not shown]",  # B26
        ),
        (
            {"content": [{"type": "resource_link", "uri": "mem://b", "name": "note"}]},
            "[link to resource mem://b: note]",  # B26
        ),
        ({"content": [{"type": "hologram"}]}, "[hologram, 19 bytes: not shown]"),  # B26
    ],
    ids=["B19", "B25", "B26 audio", "B26 link", "B26 unknown"],
)
async def test_a_result_reaches_the_model_whatever_its_kind(run_sync, provider, result, text):
    """B19, B25, B26."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = results(result)
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        assert told(provider) == [text]


@pytest.mark.parametrize("modern", [False, True], ids=["session era", "2026-07-28"])
@pytest.mark.parametrize("events", [False, True], ids=["JSON", "events"])
async def test_a_result_is_the_same_however_it_comes(run_sync, provider, modern, events):
    """B23, B73: the stream that a GET asks for is never waited for."""
    done = {"resultType": "complete"} if modern else {}
    result = {"content": [], "structuredContent": {"n": 3}, **done}

    async def answer(asked: Asked) -> Any:
        return await asked.stream(asked.reply(result)) if events else asked.json(result)

    output = {"type": "object", "properties": {"n": {"type": "string"}}}
    count = tool("count", outputSchema=output)
    async with Scripted(count, modern=modern) as server, gateway(run_sync) as gate:
        server.on |= {"tools/call": answer, "GET": hang}
        await turn(gate, "CALL count", mcp_servers=[inline(server)])
        (text,) = told(provider)
        assert text.startswith('{"n":3}\n[note: ')  # the output schema came along


async def test_an_image_is_shown_to_a_model_that_sees_after_all_results(run_sync, provider):
    """B24, B53."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = results({"content": [IMAGE]}, text_result("second"))
        lines = ("CALL echo", "CALL echo")
        await turn(gate, *lines, model="openai:gpt-4o", mcp_servers=[inline(server)])
        first, second, shown = provider.bodies[-1]["messages"][-3:]
        assert (first["role"], second["role"], shown["role"]) == ("tool", "tool", "user")
        url = f"data:image/png;base64,{PIXEL}"
        assert {"type": "image_url", "image_url": {"url": url}} in shown["content"]


async def test_an_image_is_described_to_a_model_that_does_not_see(run_sync, provider):
    """B24."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = results({"content": [IMAGE]})
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        (text,) = told(provider)
        assert "image/png" in text
        assert "8 bytes" in text
        assert PIXEL not in json.dumps(provider.bodies)


@BOTH_WAYS
async def test_a_tools_own_error_is_marked_counted_and_answered(run_sync, provider, stream):
    """B27."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = results(text_result("refused", isError=True))
        request = {"messages": said("CALL echo"), "mcp_servers": [inline(server)]}
        assert (await gate.chat(stream=stream, **request)).status_code == 200
        assert told(provider) == ["Error: refused"]
        await gate.written()
        step = await run_sync(lambda: TurnStep.objects.get(kind="tool"))
        assert step.outcome == "error"
        assert (await run_sync(Turn.objects.get)).status == "ok"


async def test_a_huge_result_is_cut_or_refused_before_it_enters_the_conversation(
    run_sync, provider
):
    """B29."""
    async with Scripted() as server, gateway(run_sync) as gate:
        large, huge = text_result("x" * 300_000), text_result("x" * 10 * 2**20)
        server.on["tools/call"] = results(large, huge)
        await turn(gate, "CALL echo", "THEN", "CALL echo", mcp_servers=[inline(server)])
        cut, refused = told(provider)
        assert len(cut) == 100_000
        assert cut.endswith("[cut: the whole result has 300000 characters]")
        assert refused.startswith("Error: ")
        assert "larger than 8388608 bytes" in refused


async def test_nul_characters_wherever_a_server_puts_them_are_recorded(run_sync, settings):
    """B32."""
    settings.ORAZAKA_RECORD_PAYLOADS = True
    async with Scripted(tool("a\0b")) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = results(text_result("n\0l", structuredContent={"k\0": "\0"}))
        reply = await turn(
            gate, r'CALL s___a_b {"q": "\u0000"}', mcp_servers=[inline(server, "s\0")]
        )
        assert "n\ufffdl" in json.loads(reply.text.removeprefix("GOT "))
        await gate.written()
        step = await run_sync(lambda: TurnStep.objects.get(kind="tool"))
        assert step.outcome == "ok"
        assert "\0" not in json.dumps([step.name, step.detail], ensure_ascii=False)


async def test_a_late_call_names_tool_server_limit_and_time(run_sync, provider, monkeypatch):
    """B33."""
    monkeypatch.setattr("gateway.wiring.Endpoint", partial(Endpoint, call_timeout=0.2))
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = hang
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        (text,) = told(provider)
        assert 'Tool "echo" of MCP server "shop"' in text
        assert "within 0.2 s" in text
        assert re.search(r"after 0\.\d s", text)


# --- arguments and deltas -------------------------------------------------------------------------


@BOTH_WAYS
async def test_no_arguments_at_all_are_an_empty_object(run_sync, provider, stream):
    """B35."""
    async with Scripted() as server, gateway(run_sync) as gate:
        request = {"messages": said("EMPTYARGS", "CALL echo {}"), "mcp_servers": [inline(server)]}
        assert (await gate.chat(stream=stream, **request)).status_code == 200
        assert [call["arguments"] for call in server.calls] == [{}]
        assert told(provider) == ["{}"]


@BOTH_WAYS
@pytest.mark.parametrize("arguments", ['{"a": "cut off', "[1, 2]", '"text"', "{} {}", "null"])
async def test_arguments_that_are_no_object_are_never_run(run_sync, provider, arguments, stream):
    """B36."""
    async with Scripted() as server, gateway(run_sync) as gate:
        request = {"messages": said(f"RAW echo {arguments}"), "mcp_servers": [inline(server)]}
        assert (await gate.chat(stream=stream, **request)).status_code == 200
        assert server.calls == []
        (text,) = told(provider)
        assert text.startswith("Error: echo was not run: ")


@pytest.mark.parametrize("how", [("INTERLEAVE",), ("INTERLEAVE", "NOINDEX"), ("NOINDEX",)], ids=str)
async def test_fragments_of_several_calls_find_their_own(run_sync, provider, how):
    """B37, B39."""
    async with Scripted(tool("tool_1"), tool("tool_2")) as server, gateway(run_sync) as gate:
        calls = ('CALL tool_1 {"text": "a long argument"}', 'CALL tool_2 {"text": "another one"}')
        raw = await gate.chat(
            stream=True, messages=said(*how, *calls), mcp_servers=[inline(server)]
        )
        assert check_stream(raw.content, hidden={"tool_1", "tool_2"}).finish_reason == "stop"
        assert sorted((call["name"], call["arguments"]["text"]) for call in server.calls) == [
            ("tool_1", "a long argument"),
            ("tool_2", "another one"),
        ]


async def test_a_tool_that_nobody_offers_is_answered_with_near_names_and_not_sent(
    run_sync, provider
):
    """B43."""
    async with Scripted(tool("frobnicator")) as server, gateway(run_sync) as gate:
        await turn(gate, "CALL frobnicate", mcp_servers=[inline(server)])
        (text,) = told(provider)
        assert text.startswith("Error: ")
        assert "frobnicator" in text
        assert server.calls == []


# --- the loop -------------------------------------------------------------------------------------


async def test_a_stream_of_several_rounds_is_one_answer(run_sync, provider):
    """B45, B58, B63: one id, role and finish, summed usage, and nothing of what was run."""
    async with Scripted() as server, gateway(run_sync) as gate:
        lines = ("SAY One.", "CALL echo", "THEN", "SAY Two.", "CALL echo", "THEN", "SAY Three.")
        request = {"messages": said(*lines), "mcp_servers": [inline(server)]}
        options = {"include_usage": True}
        response = await gate.chat(stream=True, stream_options=options, **request)
        reply = check_stream(response.content, hidden={"echo"}, include_usage=True)
        assert reply.text == "One.\n\nTwo.\n\nThree."
        assert (reply.finish_reason, reply.calls) == ("stop", [])
        plain = await turn(gate, *lines, mcp_servers=[inline(server)])
        await gate.written()
        rows = await run_sync(lambda: list(Turn.objects.all()))
        for usage in (reply.usage, plain.usage):
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (600, 60)
            assert usage["prompt_tokens_details"]["cached_tokens"] == 30
            assert usage["completion_tokens_details"]["reasoning_tokens"] == 12
        assert {(row.prompt_tokens, row.cached_tokens, row.reasoning_tokens) for row in rows} == {
            (600, 30, 12)
        }


@BOTH_WAYS
async def test_every_round_has_the_tools(run_sync, provider, stream):
    """B57."""
    async with Scripted() as server, gateway(run_sync) as gate:
        lines = said("CALL echo", "THEN", "CALL echo")
        forced = {"type": "function", "function": {"name": "echo"}}
        await gate.chat(
            stream=stream, messages=lines, tool_choice=forced, mcp_servers=[inline(server)]
        )
        assert [len(body["tools"]) for body in provider.bodies] == [1, 1, 1]
        assert [body["tool_choice"] for body in provider.bodies] == [forced, "auto", "auto"]


@BOTH_WAYS
async def test_an_answer_is_never_made_when_the_list_failed(run_sync, provider, stream):
    """B60, B78: connected is not healthy, and the next turn tries anew."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/list"] = status(503)
        request = {"messages": said("CALL echo"), "mcp_servers": [inline(server)]}
        response = await gate.chat(stream=stream, **request)
        assert response.status_code == 502
        assert "shop" in response.json()["error"]["message"]
        assert provider.bodies == []
        del server.on["tools/list"]
        assert (await gate.chat(stream=stream, **request)).status_code == 200
        assert told(provider) == ["{}"]


@BOTH_WAYS
async def test_a_client_that_leaves_in_the_second_round_leaves_what_was_used(
    run_sync, provider, stream
):
    """B65, B82."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on["tools/call"] = in_turn(usual, hang, usual)
        lines = ("CALL echo", "THEN", "CALL echo", "THEN", "SAY never")
        servers = [inline(server)]
        asking = asyncio.create_task(
            gate.chat(stream=stream, messages=said(*lines), mcp_servers=servers)
        )
        async with asyncio.timeout(5):
            await server.held.wait()
        asking.cancel()
        async with asyncio.timeout(5):
            await server.gone.wait()
        await until(lambda: not gate.runtime[TURNS].running)
        await gate.written()
        row = await run_sync(Turn.objects.get)
        assert (row.status, row.rounds, row.prompt_tokens) == ("cancelled", 2, 300)
        assert len(provider.bodies) == 2
        await turn(gate, "CALL echo", mcp_servers=servers)  # the session lives on
        assert told(provider) == ["{}"]
        assert len(server.sessions) == 1
