"""Servers of every era and transport, real ones made with the official SDK and scripted ones."""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

from mcp_servers.client import Endpoint
from mcp_servers.faults import NotMCP, ServerError, ServerUnreachable
from tests.mcp_servers.scripted import (
    Asked,
    Scripted,
    body,
    hang,
    send,
    status,
    text_result,
    tool,
    usual,
)
from tests.mcp_servers.using import call, first, names, served, until, using
from tools.base import ToolError


class Sure(BaseModel):
    sure: bool


def shop() -> MCPServer:
    """A real server: a structured result, progress, a failure and questions to the client."""
    handlers = logging.getLogger().handlers[:]
    server = MCPServer("shop")
    logging.getLogger().handlers[:] = handlers  # the SDK puts its own there

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def slow(context: Context) -> str:
        """Report progress, then answer."""
        for step in range(4):
            await context.report_progress(step, 4)
            await asyncio.sleep(0.15)
        return "done"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("no such order")

    @server.tool()
    async def ask(context: Context) -> str:
        """Ask the person."""
        answer = await context.elicit("Sure?", Sure)
        return answer.action

    @server.tool()
    async def roots(context: Context) -> str:
        """Ask for the roots."""
        with warnings.catch_warnings(action="ignore"):  # deprecated, and still in use
            return str((await context.session.list_roots()).roots)

    return server


APPS: dict[str, tuple[Callable[[MCPServer], Any], str]] = {
    "sessions, SSE": (lambda server: server.streamable_http_app(), "/mcp"),
    "sessions, JSON": (lambda server: server.streamable_http_app(json_response=True), "/mcp"),
    "stateless, SSE": (lambda server: server.streamable_http_app(stateless_http=True), "/mcp"),
    "stateless, JSON": (
        lambda server: server.streamable_http_app(stateless_http=True, json_response=True),
        "/mcp",
    ),
    "legacy SSE": (lambda server: server.sse_app(), "/sse"),
}


@asynccontextmanager
async def real(kind: str, *, era: str = "auto", **fields: Any) -> AsyncIterator[Endpoint]:
    make, path = APPS[kind]
    async with served(make(shop())) as url:
        yield Endpoint(label="shop", url=url + path, principal="ann", era=era, **fields)


EVERY = [
    (kind, era) for kind in APPS for era in ("auto", "legacy", "modern")
    if (kind, era) != ("legacy SSE", "modern")
]  # fmt: skip


@pytest.mark.parametrize(("kind", "era"), EVERY)
async def test_a_real_server_is_listed_and_called(kind: str, era: str):
    async with real(kind, era=era) as endpoint, using() as servers:
        assert await names(servers, endpoint) == ["add", "slow", "fail", "ask", "roots"]
        result = await call(servers, endpoint, a=1, b=2)
        assert (result.text, result.structured, result.is_error) == ("3", {"result": 3}, False)
        failed = await call(servers, endpoint, "fail")
        assert failed.is_error
        assert servers.pool.opened == 1


@pytest.mark.parametrize("kind", APPS)
async def test_calls_at_once_share_one_session_of_a_real_server(kind: str):
    async with real(kind) as endpoint, using() as servers:
        results = await asyncio.gather(*(call(servers, endpoint, a=n, b=1) for n in range(60)))
        assert [result.text for result in results] == [str(n + 1) for n in range(60)]
        assert servers.pool.opened == 1


@pytest.mark.parametrize(
    ("kind", "era"), [(kind, era) for kind, era in EVERY if "JSON" not in kind]
)
async def test_a_real_servers_progress_extends_its_call(kind: str, era: str):
    async with real(kind, era=era, call_timeout=0.4) as endpoint, using() as servers:
        await names(servers, endpoint)
        assert (await call(servers, endpoint, "slow")).text == "done"


@pytest.mark.parametrize("kind", ["sessions, SSE", "legacy SSE"])
async def test_what_a_server_asks_is_declined(kind: str):
    async with real(kind, era="legacy") as endpoint, using() as servers:
        assert (await call(servers, endpoint, "ask")).text == "decline"
        assert (await call(servers, endpoint, "roots")).text == "[]"


async def test_a_question_within_a_result_is_declined():
    handlers = logging.getLogger().handlers[:]
    server = MCPServer("shop")
    logging.getLogger().handlers[:] = handlers

    async def sure() -> Elicit[Sure]:
        return Elicit("Sure?", Sure)

    @server.tool()
    def order(answer: Annotated[Any, Resolve(sure)]) -> str:
        """Order something."""
        accepted = isinstance(answer, AcceptedElicitation)
        return "ordered" if accepted else f"not ordered: {answer.action}"

    async with served(server.streamable_http_app()) as url, using() as servers:
        endpoint = Endpoint(label="shop", url=f"{url}/mcp", principal="ann")
        result = await call(servers, endpoint)
        assert "decline" in result.text


def question(method: str, **more: Any) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": method, "params": {"message": "?"}}},
        **more,
    }


async def test_declining_goes_back_with_the_state_as_it_came():
    async def asks(asked: Asked) -> Any:
        if "inputResponses" not in asked.params:
            return asked.json(question("elicitation/create", requestState="x/y=="))
        assert asked.params["requestState"] == "x/y=="
        return asked.json(
            text_result(asked.params["inputResponses"]["q"]["action"], resultType="complete")
        )

    async with Scripted(modern=True) as server, using() as servers:
        server.on["tools/call"] = asks
        assert (await call(servers, server.endpoint())).text == "decline"


async def test_roots_within_a_result_are_none():
    async def asks(asked: Asked) -> Any:
        if "inputResponses" not in asked.params:
            return asked.json(question("roots/list"))
        roots = asked.params["inputResponses"]["q"]["roots"]
        return asked.json(text_result(str(roots), resultType="complete"))

    async with Scripted(modern=True) as server, using() as servers:
        server.on["tools/call"] = asks
        assert (await call(servers, server.endpoint())).text == "[]"


async def test_sampling_within_a_result_is_refused():
    async def asks(asked: Asked) -> Any:
        return asked.json(question("sampling/createMessage"))

    async with Scripted(modern=True) as server, using() as servers:
        server.on["tools/call"] = asks
        with pytest.raises(ToolError, match="sampling/createMessage, which is refused"):
            await call(servers, server.endpoint())


@pytest.mark.parametrize("more", [{}, {"inputRequests": {}}, {"requestState": "s"}], ids=str)
async def test_a_server_that_never_stops_asking_is_left(more: dict[str, Any]):
    async def asks(asked: Asked) -> Any:
        return asked.json(question("elicitation/create") | more)

    async with Scripted(modern=True) as server, using() as servers:
        server.on["tools/call"] = asks
        with pytest.raises(ToolError, match="asked for input more than 10 times"):
            await call(servers, server.endpoint())
        assert server.counts["tools/call"] == 10


async def test_sampling_in_the_session_era_is_refused():
    async def asks(asked: Asked) -> Any:
        response = await asked.open_stream()
        params = {"messages": [], "maxTokens": 1}
        request = {"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage"}
        await send(response, request | {"params": params})
        await until(lambda: asked.server.answers)
        await send(response, asked.reply(text_result(str(asked.server.answers[0]["error"]))))
        return response

    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = asks
        assert "not supported" in (await call(servers, server.endpoint())).text


async def test_a_result_without_its_type_is_read_as_complete():
    async def untyped(asked: Asked) -> Any:
        return asked.json(text_result("fine"))

    async with Scripted(modern=True) as server, using() as servers:
        server.on["tools/call"] = untyped
        assert (await call(servers, server.endpoint())).text == "fine"


async def test_arguments_that_a_schema_wants_in_headers_are_sent_there():
    schema = {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Order"}}}
    bad = {"type": "object", "properties": {"id": {"type": "array", "x-mcp-header": "Order"}}}
    tools = tool("order", inputSchema=schema), tool("bad", inputSchema=bad)
    async with Scripted(*tools, modern=True) as server, using() as servers:
        await call(servers, server.endpoint(), "order", id="7")
        assert server.headers[-1]["Mcp-Param-Order"] == "7"
        assert server.headers[-1]["Mcp-Method"] == "tools/call"
        assert server.headers[-1]["Mcp-Name"] == "order"
        (kept,) = servers.catalog._kept.values()
        assert [spec.name for spec in kept.specs] == ["order"]
        assert kept.notes[0].startswith("bad: left out")


async def test_a_call_refused_for_a_header_is_sent_once_more_with_it():
    schema = {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Order"}}}

    async def strict(asked: Asked) -> Any:
        if "Mcp-Param-Order" not in asked.request.headers:
            return asked.error(-32020, "Header mismatch", status=400)
        return await usual(asked)

    async with Scripted(tool("order"), modern=True) as server, using() as servers:
        endpoint = server.endpoint()
        await names(servers, endpoint)
        server.tools[:] = [tool("order", inputSchema=schema)]
        server.on["tools/call"] = strict
        assert (await call(servers, endpoint, id="7")).text == '{"id": "7"}'
        assert server.counts["tools/call"] == 2


async def test_changes_are_heard_without_a_back_channel_and_after_its_stream_was_lost():
    def note(asked: Asked, method: str, **params: Any) -> dict[str, Any]:
        meta = {"io.modelcontextprotocol/subscriptionId": asked.id}
        return {"jsonrpc": "2.0", "method": method, "params": {"_meta": meta, **params}}

    async def listens(asked: Asked) -> Any:
        response = await asked.open_stream()
        honoured = {"toolsListChanged": True}
        acknowledged = "notifications/subscriptions/acknowledged"
        await send(response, note(asked, acknowledged, notifications=honoured))
        await asked.server.released.wait()
        await send(response, note(asked, "notifications/tools/list_changed"))
        asked.server.held.set()
        await hang(asked)
        return response

    async with Scripted(modern=True) as server, using() as servers:
        server.on["subscriptions/listen"] = listens
        endpoint = server.endpoint()
        await names(servers, endpoint)
        await until(lambda: server.counts["subscriptions/listen"])
        assert servers.catalog.kept(endpoint.key)
        server.released.set()
        await until(lambda: servers.catalog.kept(endpoint.key) is None)


async def test_a_server_without_a_stream_of_changes_is_not_asked_again():
    async with Scripted(modern=True) as server, using() as servers:
        server.on["subscriptions/listen"] = status(404)
        await names(servers, server.endpoint())
        await until(lambda: server.counts["subscriptions/listen"])
        assert (await first(call(servers, server.endpoint())))[0].text == "{}"
        assert server.counts["subscriptions/listen"] == 1


async def test_the_new_era_is_tried_first_and_what_worked_is_remembered():
    async with Scripted() as server, using() as servers:
        for principal in "ab":
            await names(servers, server.endpoint(principal=principal))
        assert server.counts["server/discover"] == 1
        assert server.log[:2] == ["server/discover", "initialize"]


@pytest.mark.parametrize(
    "answer",
    [status(400), status(404), status(405), status(500), body("{}"), hang],
    ids=["400", "404", "405", "500", "garbage", "silence"],
)
async def test_any_answer_to_the_new_eras_question_but_a_refusal_means_the_older_era(answer: Any):
    async with Scripted() as server, using(probe_limit=0.2) as servers:
        server.on["server/discover"] = answer
        assert await names(servers, server.endpoint()) == ["echo"]


@pytest.mark.parametrize("code", [401, 403, 429, 307])
async def test_a_refusal_is_no_verdict_on_the_era(code: int):
    async with Scripted() as server, using() as servers:
        server.on["server/discover"] = status(code, Location="/elsewhere")
        with pytest.raises((ServerUnreachable, NotMCP), match=str(code)):
            await names(servers, server.endpoint())
        assert server.log == ["server/discover"]


async def test_a_server_that_left_the_remembered_era_is_found_again():
    async def only_modern(asked: Asked) -> Any:
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        return asked.error(-32022, "Unsupported protocol version", status=400, data=data)

    async with Scripted() as server, using() as servers:
        await names(servers, server.endpoint(principal="a"))
        server._modern = True
        server.on["initialize"] = only_modern
        assert await names(servers, server.endpoint(principal="b")) == ["echo"]


async def test_an_era_that_is_set_is_the_only_one_tried():
    async with Scripted() as server, using() as servers:
        with pytest.raises(ServerError):
            await names(servers, server.endpoint(era="modern"))
        assert server.log == ["server/discover"]
        assert await names(servers, server.endpoint(era="legacy")) == ["echo"]
        assert server.log[1] == "initialize"


async def test_a_server_of_the_oldest_transport_is_found_once_and_remembered():
    async with real("legacy SSE") as endpoint, using() as servers:
        await names(servers, endpoint)
        again = Endpoint(label="shop", url=endpoint.url, principal="bob")
        assert (await call(servers, again, a=1, b=1)).text == "2"


async def test_a_url_that_is_no_mcp_server_at_all_says_what_it_answered():
    async with served(shop().streamable_http_app()) as url, using() as servers:
        endpoint = Endpoint(label="shop", url=f"{url}/nothing", principal="ann")
        with pytest.raises(ServerUnreachable, match="HTTP 404"):
            await names(servers, endpoint)
