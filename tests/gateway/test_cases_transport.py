"""Public fault cases (B…) on transport, sessions, secrets and tenancy, end to end."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from gateway.models import Turn, TurnStep
from mcp_servers.session import Limits
from orazaka.models import ApiKey
from tests.factories import UserFactory
from tests.gateway.case_talk import inline, told, turn
from tests.gateway.serving import gateway
from tests.gateway.talking import said
from tests.mcp_servers.scripted import (
    Answer,
    Asked,
    Scripted,
    close,
    hang,
    in_turn,
    status,
    tool,
    usual,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("provider")]

Json = Any


# --- transport and lifecycle ----------------------------------------------------------------------


async def test_a_forgotten_session_is_begun_anew_once_and_the_call_sent_once(run_sync, provider):
    """B66."""
    async with Scripted() as server, gateway(run_sync) as gate:

        async def forgets(asked: Asked) -> Any:
            old = asked.request.headers["Mcp-Session-Id"] == "session-1"
            return await (status(404) if old else usual)(asked)

        await turn(gate, "SAY hi", mcp_servers=[inline(server)])
        server.on["tools/call"] = forgets
        await turn(gate, 'CALL echo {"n": 1}', mcp_servers=[inline(server)])
        assert told(provider) == ['{"n": 1}']
        assert (server.counts["initialize"], len(server.calls)) == (2, 1)


@pytest.mark.parametrize("answer", [close, status(500)], ids=["dropped", "500"])
@pytest.mark.parametrize("hints", [{}, {"idempotentHint": True, "readOnlyHint": True}], ids=str)
async def test_a_call_that_may_have_run_is_not_sent_again(
    run_sync, provider, answer: Answer, hints: Json
):
    """B69: an inline server's hints are its own word, and not trusted."""
    issue = tool("create_issue", annotations=hints)
    async with Scripted(issue) as server, gateway(run_sync) as gate:
        server.on["tools/call"] = answer
        await turn(gate, "CALL create_issue", mcp_servers=[inline(server)])
        assert server.counts["tools/call"] == 1
        (text,) = told(provider)
        assert text.startswith("Error: ")
        assert "its outcome is unknown" in text


@pytest.mark.parametrize("code", [302, 307, 308])
async def test_a_redirect_is_not_followed_anywhere(run_sync, provider, code):
    """B70, B87, B89."""
    async with Scripted() as server, Scripted() as other, gateway(run_sync) as gate:
        leads = status(code, Location=other.url)
        server.on = dict.fromkeys(["initialize", "server/discover", "tools/list", "GET"], leads)
        response = await gate.chat(messages=said("SAY hi"), mcp_servers=[inline(server)])
        assert response.status_code == 502
        assert "redirect" in response.json()["error"]["message"]
        assert str(other.port) not in response.text
        assert other.log == []
        assert provider.bodies == []


async def test_of_three_servers_asked_at_once_the_silent_one_is_named(
    run_sync, provider, monkeypatch
):
    """B76: inline servers are required, so the turn ends."""
    monkeypatch.setattr("mcp_servers.sessions.Limits", partial(Limits, open=0.5, list=0.5))
    together = asyncio.Barrier(3)

    async def meet(asked: Asked) -> Any:
        async with asyncio.timeout(5):
            await together.wait()
        return await (hang if asked.server is c else usual)(asked)

    async with (
        Scripted(tool("a")) as a,
        Scripted(tool("b")) as b,
        Scripted(tool("c")) as c,
        gateway(run_sync) as gate,
    ):
        a.on["tools/list"] = b.on["tools/list"] = c.on["tools/list"] = meet
        servers = [inline(a, "a"), inline(b, "b"), inline(c, "c")]
        response = await gate.chat(messages=said("SAY hi"), mcp_servers=servers)
        assert response.status_code == 504
        error = response.json()["error"]
        assert error["param"] == "mcp_servers[2]"
        assert '"c"' in error["message"]
        assert provider.bodies == []
        a.on.clear()
        b.on.clear()
        await turn(gate, "CALL a", "CALL b", mcp_servers=servers[:2])
        assert told(provider) == ["{}", "{}"]


@pytest.mark.parametrize("stage", ["server/discover", "initialize", "tools/list"])
async def test_a_client_that_leaves_while_a_session_opens_ends_the_opening(
    run_sync, provider, stage
):
    """B81."""
    async with Scripted() as server, gateway(run_sync) as gate:
        server.on[stage] = in_turn(hang, usual)
        request = {"messages": said("CALL echo"), "mcp_servers": [inline(server)]}
        asking = asyncio.create_task(gate.chat(**request))
        async with asyncio.timeout(5):
            await server.held.wait()
        asking.cancel()
        async with asyncio.timeout(2):  # less than any limit of ours
            await server.gone.wait()
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        assert told(provider) == ["{}"]


async def test_each_request_of_the_new_era_names_its_method_in_a_header(run_sync):
    """B83."""
    async with Scripted(modern=True) as server, gateway(run_sync) as gate:
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        posts = [
            (name, headers)
            for name, headers in zip(server.log, server.headers, strict=True)
            if name not in ("GET", "DELETE")
        ]
        assert "tools/call" in [name for name, _ in posts]
        assert [headers.get("Mcp-Method") for _, headers in posts] == [name for name, _ in posts]
        called = [headers.get("Mcp-Name") for name, headers in posts if name == "tools/call"]
        assert called == ["echo"]


async def test_a_session_is_confirmed_before_anything_is_asked_in_it(run_sync):
    """B85."""
    async with Scripted() as server, gateway(run_sync) as gate:
        await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        order = [name for name in server.log if name not in ("GET", "server/discover")]
        assert order[:4] == ["initialize", "notifications/initialized", "tools/list", "tools/call"]


# --- secrets and tenancy --------------------------------------------------------------------------


@pytest.mark.parametrize("loopback", [False, True], ids=["closed", "open"])
async def test_no_spelling_of_an_address_gets_round_the_guard(
    run_sync, provider, settings, loopback
):
    """B88: 64:ff9b::, 2002: and the rest stay closed even where loopback is open."""
    settings.OTARI_MCP_ALLOW_LOOPBACK = loopback
    hosts = ["[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]", "0.0.0.0", "100.64.0.1", "[fec0::1]"]
    if not loopback:
        hosts += ["[::ffff:127.0.0.1]", "localhost.", "2130706433", "0x7f.1", "127.1", "[::1]"]
    async with Scripted() as server, gateway(run_sync) as gate:
        for host in hosts:
            servers = [{"name": "shop", "url": f"http://{host}:{server.port}/mcp"}]
            response = await gate.chat(messages=said("SAY hi"), mcp_servers=servers)
            assert response.status_code == 400, host
            assert response.json()["error"]["param"] == "mcp_servers[0].url"
        assert server.log == []
        assert provider.bodies == []


async def test_the_callers_key_and_cookies_never_reach_a_tool_server(run_sync):
    """B90."""
    async with Scripted() as server, gateway(run_sync) as gate:
        more = {"Cookie": "sessionid=c00kie", "X-Api-Key": gate.key, "Otari-Key": gate.key}
        body = {"messages": said("CALL echo"), "mcp_servers": [inline(server)]}
        response = await gate.client.post(
            "/v1/chat/completions", json={"model": "openai:strict-1", **body}, headers=more
        )
        assert response.status_code == 200
        assert server.calls
        everything = str([list(headers.items()) for headers in server.headers])
        assert "authorization" not in everything.lower()
        for secret in (gate.key, "c00kie", "sk-upstream"):
            assert secret not in everything


async def test_a_token_is_in_no_log_no_answer_and_no_record(run_sync, settings, caplog):
    """B92."""
    settings.ORAZAKA_RECORD_PAYLOADS = True
    token = "tok-5ecret-0123456789"
    caplog.set_level(logging.DEBUG)
    async with gateway(run_sync) as gate:
        # Nothing listens there; a secret may only go over https.
        server = {"name": "shop", "url": "https://127.0.0.1:9/mcp", "authorization_token": token}
        for more in ({}, {"allowed_tools": 5}, {"purpose_hint": [token]}):
            response = await gate.chat(messages=said("SAY hi"), mcp_servers=[{**server, **more}])
            assert response.status_code in (422, 502)
            assert token not in response.text
        await gate.written()
        rows = await run_sync(lambda: [*Turn.objects.values(), *TurnStep.objects.values()])
        assert rows
        assert token not in str(rows)
    assert token not in caplog.text


async def test_two_callers_of_one_server_share_neither_session_nor_list(run_sync):
    """B97."""
    async with Scripted() as server, gateway(run_sync) as gate:
        _, key = await run_sync(lambda: ApiKey.objects.issue(UserFactory(), name="another"))
        for one in (gate.key, key, gate.key):
            gate.client.headers["Authorization"] = f"Bearer {one}"
            await turn(gate, "CALL echo", mcp_servers=[inline(server)])
        assert server.counts["initialize"] == server.counts["tools/list"] == 2
        assert server.counts["tools/call"] == 3
