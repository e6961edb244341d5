"""What a server named in the request brings to a turn."""

from typing import Any

import pytest

from mcp_servers.faults import NoAllowedTool, ServerUnreachable
from mcp_servers.source import SESSIONS, Servers, ServerSource, open_offer, open_servers
from orazaka.http import HTTP
from orazaka.outbound import Outbound
from orazaka.urlsafety import Policy
from tests.mcp_servers.scripted import Scripted, results, text_result, tool
from tests.mcp_servers.using import ANN, call, using
from tools.base import ToolError


def runtime(servers: Servers) -> Any:
    return {SESSIONS: servers}


async def test_an_offer_holds_what_the_endpoint_lets_through():
    tools = [tool(name) for name in ("find", "buy", "sell")]
    async with Scripted(*tools) as server, using() as servers:
        endpoint = server.endpoint(allowed_tools=frozenset({"sell", "find", "rob"}), hint="A shop.")
        offer, asked = await open_offer(endpoint, runtime=runtime(servers))
        assert [spec.name for spec in offer.specs] == ["find", "sell"]
        assert (offer.origin, offer.label, offer.hint) == ("inline", "shop", "A shop.")
        assert (offer.context, offer.reason) == ("", "named in the request")
        assert (asked.label, asked.outcome, asked.notes) == ("shop", "listed", ())
        assert asked.ms > 0
        result = await offer.source.call(offer.specs[0], {"q": "tea"}, caller=ANN)
        assert result.text == '{"q": "tea"}'


async def test_the_second_offer_brings_the_same_objects_without_a_request():
    async with Scripted() as server, using() as servers:
        before, _ = await open_offer(server.endpoint(), runtime=runtime(servers))
        requests = len(server.log)
        after, asked = await open_offer(server.endpoint(label="b"), runtime=runtime(servers))
        assert after.specs[0] is before.specs[0]
        assert (after.label, asked.outcome) == ("b", "kept")
        assert len(server.log) == requests


async def test_allowed_tools_that_match_nothing_are_the_callers_error():
    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint(allowed_tools=frozenset({"rob"}))
        with pytest.raises(NoAllowedTool, match="shop") as raised:
            await open_offer(endpoint, runtime=runtime(servers))
        assert raised.value.status == 400


async def test_no_allowed_tools_are_no_tools():
    async with Scripted() as server, using() as servers:
        endpoint = server.endpoint(allowed_tools=frozenset())
        offer, _ = await open_offer(endpoint, runtime=runtime(servers))
        assert list(offer.specs) == []


async def test_what_is_not_offered_cannot_be_called():
    async with Scripted(tool("find"), tool("buy")) as server, using() as servers:
        whole = await ServerSource(server.endpoint(), servers).list()
        source = ServerSource(server.endpoint(allowed_tools=frozenset({"find"})), servers)
        with pytest.raises(ToolError, match="not allowed"):
            await source.call(whole[1], {}, caller=ANN)
        assert server.calls == []


async def test_what_was_left_out_is_told_each_time():
    async with Scripted(tool("a"), tool("bad", inputSchema=3)) as server, using() as servers:
        for outcome in ("listed", "kept"):
            _, asked = await open_offer(server.endpoint(), runtime=runtime(servers))
            assert (asked.outcome, len(asked.notes)) == (outcome, 1)


async def test_a_server_that_refuses_our_token_is_named_and_401_is_said():
    async with Scripted(token="right") as server, using() as servers:
        with pytest.raises(ServerUnreachable) as raised:
            await open_offer(server.endpoint(secret="wr0ng"), runtime=runtime(servers))
        assert raised.value.status == 502
        expected = 'MCP server "shop" failed: it refused our credentials (HTTP 401).'
        assert raised.value.message == expected
        good, _ = await open_offer(server.endpoint(secret="right"), runtime=runtime(servers))
        assert good.specs


async def test_output_that_breaks_its_schema_is_passed_on_with_a_note():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with Scripted(tool("count", outputSchema=schema)) as server, using() as servers:
        server.on["tools/call"] = results(
            {"content": [], "structuredContent": {"n": "three"}},
            text_result("refused", isError=True),
            text_result("none"),
        )
        misfit = await call(servers, server.endpoint())
        assert misfit.text.startswith('{"n":"three"}\n[note: ')
        assert not misfit.is_error
        failed = await call(servers, server.endpoint())
        assert (failed.text, failed.is_error) == ("refused", True)
        assert "declares structured output" in (await call(servers, server.endpoint())).text
        assert server.counts["tools/list"] == 1


async def test_what_the_sdk_would_refuse_is_passed_on():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = results(
            {"content": [{"type": "hologram"}], "structuredContent": 10**30},
            {"content": "words", "isError": 3},
        )
        assert "hologram" in (await call(servers, server.endpoint())).text
        assert (await call(servers, server.endpoint())).text == ""


async def test_a_result_of_8_mib_comes_and_is_cut_for_the_model():
    async with Scripted() as server, using() as servers:
        server.on["tools/call"] = results(text_result("x" * (8 * 2**20 - 1000)))
        result = await call(servers, server.endpoint())
        assert len(result.text) == 100_000
        assert result.text.endswith("[cut: the whole result has 8387608 characters]")
        server.on["tools/call"] = results(text_result("x" * (8 * 2**20)))
        with pytest.raises(ToolError, match="larger than 8388608 bytes"):
            await call(servers, server.endpoint())


async def test_the_runtimes_servers_are_closed_with_it():
    async with Scripted() as server, Outbound(policy=Policy()) as outbound:
        held: Any = {HTTP: outbound}
        async with open_servers(held) as servers:
            assert await ServerSource(server.endpoint(), servers).list()
        assert server.counts["DELETE"] == 1
        assert servers.pool.alive == 0
