"""Servers that are down, slow, hostile or something else: one clear error each, never a hang."""

import asyncio
import json
import time
from typing import Any

import pytest

from mcp_servers import faults
from mcp_servers.faults import NotMCP, ServerBlocked, ServerError, ServerLate, ServerUnreachable
from tests.mcp_servers.scripted import (
    Asked,
    Scripted,
    body,
    close,
    hang,
    in_turn,
    status,
    text_result,
    usual,
)
from tests.mcp_servers.using import call, first, names, until, using
from tools.base import ToolError

SHORT = 0.3  # seconds of a limit that is meant to pass


def wrong_id(result: Any) -> Any:
    async def answer(asked: Asked) -> Any:
        asked.message["id"] = "other"
        return asked.json(result)

    return answer


async def closes_midway(asked: Asked) -> Any:
    response = await asked.open_stream()
    await response.write(b'data: {"jsonrpc": "2.0", "id": 1, "res')
    if asked.request.transport:
        asked.request.transport.close()
    return response


async def ends_without_answer(asked: Asked) -> Any:
    return await asked.stream({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


async def garbage_event(asked: Asked) -> Any:
    return await asked.stream(b"{not json")


async def endless_line(asked: Asked) -> Any:
    response = await asked.open_stream()
    await response.write(b"data: ")
    while True:
        await response.write(b"x" * 65536)


async def endless_events(asked: Asked) -> Any:
    response = await asked.open_stream()
    note = {"jsonrpc": "2.0", "method": "notifications/message"}
    event = json.dumps(note | {"params": {"level": "info", "data": "x" * 200_000}}).encode()
    while True:
        await response.write(b"data: " + event + b"\n\n")


UNUSABLE = [
    (status(401, **{"WWW-Authenticate": "Bearer"}), ServerUnreachable, "401"),
    (status(403), ServerUnreachable, "403"),
    (status(429), ServerUnreachable, "429"),
    (status(500, "boom"), ServerUnreachable, "500"),
    (status(503), ServerUnreachable, "503"),
    (status(307, Location="http://127.0.0.1:1/mcp/"), NotMCP, "redirect"),
    (status(302, Location="/login"), NotMCP, "redirect"),
    (body("<html>login</html>", "text/html"), NotMCP, "text/html"),
    (body("hello", "text/plain"), NotMCP, "text/plain"),
    (body("{not json"), NotMCP, "failed"),
    (body(""), NotMCP, "failed"),
    (body("[]"), NotMCP, "failed"),
    (body('"text"'), NotMCP, "failed"),
    (body('{"jsonrpc": "2.0"}'), NotMCP, "failed"),
    (body("[" * 5000), NotMCP, "failed"),
    (body("x" * (9 * 2**20)), NotMCP, "larger than"),
    (wrong_id({"tools": []}), NotMCP, "failed"),
    (close, ServerUnreachable, "connection"),
    (closes_midway, ServerUnreachable, "connection"),
    (ends_without_answer, ServerUnreachable, "connection"),
    (garbage_event, NotMCP, "not MCP"),
    (endless_line, NotMCP, "larger than"),
    (endless_events, NotMCP, "larger than"),
    (hang, ServerLate, "0.3 s"),
]
NAMES = [
    "401", "403", "429", "500", "503", "307", "302", "html", "text", "not JSON", "empty", "a list",
    "a string", "no answer", "too deep", "too large", "wrong id", "closes", "closes midway",
    "ends without answer", "garbage event", "endless line", "endless events", "hangs",
]  # fmt: skip


@pytest.mark.parametrize("stage", ["initialize", "tools/list"])
@pytest.mark.parametrize(("answer", "kind", "says"), UNUSABLE, ids=NAMES)
async def test_a_server_that_cannot_be_used_is_an_error_that_says_why(
    stage: str, answer: Any, kind: type[ServerError], says: str
):
    limit = SHORT if answer is hang else 15
    async with Scripted() as server, using(open=limit, list=limit) as servers:
        server.on[stage] = answer
        with pytest.raises(kind) as raised:
            await names(servers, server.endpoint())
        assert '"shop"' in raised.value.message
        assert says in raised.value.message
        assert raised.value.status == kind.status


@pytest.mark.parametrize(("answer", "kind", "says"), UNUSABLE, ids=NAMES)
async def test_a_call_that_goes_wrong_is_words_for_the_model(
    answer: Any, kind: type[ServerError], says: str
):
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = answer
        endpoint = server.endpoint(call_timeout=SHORT if answer is hang else 25)
        with pytest.raises(ToolError) as raised:
            await call(servers, endpoint)
        text = str(raised.value)
        assert 'Tool "echo" of MCP server "shop" failed after' in text
        assert says.replace("failed", "it answered") in text
        assert server.counts["tools/call"] == 1


@pytest.mark.parametrize(
    "answer",
    [close, closes_midway, ends_without_answer, status(500), hang],
    ids=["close", "close midway", "end", "500", "silence"],
)
async def test_a_call_that_may_have_run_is_not_sent_again_and_says_so(answer: Any):
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = answer
        with pytest.raises(ToolError, match="its outcome is unknown"):
            await call(servers, server.endpoint(call_timeout=SHORT))
        assert server.counts["tools/call"] == 1


@pytest.mark.parametrize(
    "answer", [status(401), status(429), status(307)], ids=["401", "429", "307"]
)
async def test_a_call_that_was_refused_did_not_run(answer: Any):
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = answer
        with pytest.raises(ToolError) as raised:
            await call(servers, server.endpoint())
        assert "unknown" not in str(raised.value)


async def test_a_servers_own_error_reaches_the_model_in_its_words():
    async def crash(asked: Asked) -> Any:
        return asked.error(-32603, "no such customer", data={"status": 404})

    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = crash
        with pytest.raises(ToolError) as raised:
            await call(servers, server.endpoint())
        assert 'it answered with an error: "no such customer" (-32603)' in str(raised.value)
        assert server.counts["tools/call"] == server.counts["initialize"] == 1


async def test_a_servers_endless_error_message_is_cut():
    async def crash(asked: Asked) -> Any:
        return asked.error(-32603, "x" * 100_000)

    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = crash
        with pytest.raises(ToolError) as raised:
            await call(servers, server.endpoint())
        assert len(str(raised.value)) < 1500


async def test_a_late_call_says_its_limit_and_what_passed():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = hang
        started = time.monotonic()
        with pytest.raises(
            ToolError, match=r"failed after 0\.\d s: it did not answer within 0.3 s"
        ):
            await call(servers, server.endpoint(call_timeout=SHORT))
        assert time.monotonic() - started < 1


async def test_a_server_that_is_not_there_is_unreachable():
    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint()
        await server.__aexit__()
        with pytest.raises(ServerUnreachable, match='MCP server "shop" failed: '):
            await names(servers, endpoint)


async def test_a_name_that_does_not_resolve_is_the_callers_error():
    async with Scripted() as server, using() as servers:
        with pytest.raises(ServerBlocked, match="shop") as raised:
            await names(servers, server.endpoint(url="http://nowhere.invalid/mcp"))
        assert (raised.value.status, raised.value.code) == (400, "unsafe_url")


@pytest.mark.parametrize("url", ["http://10.0.0.1/mcp", "http://169.254.169.254/", "ftp://a/"])
async def test_a_refused_address_is_the_callers_error_and_is_not_told(url: str):
    async with Scripted() as server, using() as servers:
        with pytest.raises(ServerBlocked, match="shop") as raised:
            await names(servers, server.endpoint(url=url))
        assert raised.value.status == 400
        assert "10.0.0.1" not in raised.value.message
        assert "169.254" not in raised.value.message


async def test_a_hanging_notification_does_not_hold_up_calls():
    async with Scripted() as server, using() as servers:
        server.on |= {
            "notifications/cancelled": hang,
            "tools/call": in_turn(hang, usual),
        }
        await names(servers, server.endpoint())
        with pytest.raises(ToolError):
            await call(servers, server.endpoint(call_timeout=SHORT))
        await until(lambda: server.counts["notifications/cancelled"])
        assert (await first(call(servers, server.endpoint(), a=1)))[0].text == '{"a": 1}'


async def test_one_hanging_session_does_not_hold_up_others():
    async with Scripted() as good, Scripted() as bad, using(open=1, list=1) as servers:
        bad.on["initialize"] = hang
        waiting = asyncio.create_task(names(servers, bad.endpoint()))
        await until(bad.held.is_set)
        assert await first(names(servers, good.endpoint())) == [["echo"]]
        with pytest.raises(ServerLate, match="1 s"):
            await waiting


async def test_a_server_that_hangs_at_the_end_of_a_session_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("mcp_servers.exchange.GOODBYE_LIMIT", 0.1)
    async with Scripted() as server:
        server.on["DELETE"] = hang
        async with using() as servers:
            await names(servers, server.endpoint())
            started = time.monotonic()
        assert time.monotonic() - started < 1
        assert server.counts["DELETE"] == 1


async def test_no_error_repeats_a_secret():
    secrets = {"secret": "Bearer s3cr3t-token", "headers": {"X-Api-Key": "k3y-v4lue"}}
    for answer, _, _ in UNUSABLE:
        async with Scripted() as server, using(open=SHORT, list=SHORT) as servers:
            server.on["initialize"] = answer
            endpoint = server.endpoint(**secrets)
            with pytest.raises(ServerError) as raised:
                await names(servers, endpoint)
            chain: BaseException | None = raised.value
            while chain:
                for words in (str(chain), repr(chain), repr(endpoint), str(endpoint.key)):
                    assert "s3cr3t" not in words
                    assert "k3y" not in words
                chain = chain.__cause__ or chain.__context__


async def test_an_odd_progress_note_harms_nobody():
    async def odd(asked: Asked) -> Any:
        token = asked.token
        notes = [
            {"progressToken": token, "progress": "half"},
            {"progressToken": [1], "progress": 1},
            {"progressToken": token, "progress": 1, "total": "x", "message": 3},
            None,
        ]
        method = "notifications/progress"
        events = [{"jsonrpc": "2.0", "method": method, "params": note} for note in notes]
        return await asked.stream(*events[:3], asked.reply(text_result("fine")))

    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = odd
        assert (await call(servers, server.endpoint())).text == "fine"


def test_every_fault_has_its_answer():
    for kind in faults.Fault.__subclasses__():
        error = faults.server_error("shop", kind("it is broken"))
        assert error.message == 'MCP server "shop" failed: it is broken.'
        assert error.status in (400, 502, 504)
