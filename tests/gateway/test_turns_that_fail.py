"""Turns whose server, provider or client fails or falls silent."""

import asyncio
from typing import Any

import pytest
from django.test import override_settings

from gateway import views
from gateway.models import Turn, TurnStep
from gateway.turns import TURNS
from mcp_servers.source import SESSIONS
from tests.gateway.serving import gateway
from tests.gateway.talking import got, inline, said, streamed
from tests.mcp_servers.scripted import (
    Scripted,
    body,
    hang,
    in_turn,
    status,
    tool,
    usual,
)
from tests.mcp_servers.using import until
from tests.wires.checker import check_plain, check_stream

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("provider")]

Json = Any


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
