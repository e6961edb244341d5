"""Tool lists: read to the end, what is left out, and how long they are kept."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from mcp_servers.client import Endpoint, Listing
from mcp_servers.faults import NotMCP
from mcp_servers.source import Servers, ServerSource
from tests.mcp_servers.scripted import Asked, Scripted, hang, in_turn, results, tool, usual
from tests.mcp_servers.using import call, first, names, until, using


def pages(*sizes: int, loop: bool = False) -> Any:
    """Pages of these sizes, cursors "1", "2", …; a looping list gives the first cursor again."""

    async def answer(asked: Asked) -> Any:
        number = int(asked.params.get("cursor", 0))
        tools = [tool(f"t{number}_{index}") for index in range(sizes[number])]
        more = number + 1 < len(sizes)
        cursor = {"nextCursor": str(number + 1)} if more else {"nextCursor": "1"} if loop else {}
        return asked.json({"tools": tools} | cursor)

    return answer


async def test_a_list_is_read_to_its_last_page():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = pages(20, 20, 4)
        assert len(await names(servers, server.endpoint())) == 44
        assert server.counts["tools/list"] == 3


async def test_tools_are_filtered_after_all_pages_are_read():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = pages(20, 20, 4)
        endpoint = server.endpoint(allowed_tools=frozenset({"t1_3"}))
        assert await names(servers, endpoint) == ["t1_3"]


async def test_a_repeated_cursor_ends_the_list_and_is_reported():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = pages(2, 2, loop=True)
        kept, asked = await ServerSource(server.endpoint(), servers).ask()
        assert [spec.name for spec in kept.specs] == ["t0_0", "t0_1", "t1_0", "t1_1"]
        assert asked.notes == ("the list repeats a cursor: what follows is left out",)
        assert server.counts["tools/list"] == 2


async def test_an_endless_list_is_read_for_50_pages():
    async def endless(asked: Asked) -> Any:
        number = int(asked.params.get("cursor", 0))
        return asked.json({"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)})

    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = endless
        kept, asked = await ServerSource(server.endpoint(), servers).ask()
        assert len(kept.specs) == server.counts["tools/list"] == 50
        assert "over 50 pages" in asked.notes[0]


async def test_a_huge_list_is_cut_at_1000_tools():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = pages(600, 600, 600)
        kept, asked = await ServerSource(server.endpoint(), servers).ask()
        assert len(kept.specs) == 1000
        assert "over 1000 tools" in asked.notes[0]
        assert server.counts["tools/list"] == 2


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("just a string", "not an object"),
        ({"inputSchema": {"type": "object"}}, "name"),
        (tool(""), "name"),
        (tool("x" * 300), "name"),
        (tool("bad", inputSchema="string"), "schema is not an object"),
        ({"name": "bad"}, "schema is not an object"),
        (tool("bad", inputSchema=None), "schema is not an object"),
        (tool("bad", inputSchema={"type": "object", "properties": 3}), "bad: left out"),
        (tool("bad", inputSchema={"type": "nonsense"}), "bad: left out"),
        (tool("bad", inputSchema={"$ref": "http://127.0.0.1:1/x.json"}), "bad: left out"),
        (tool("bad", inputSchema={"type": "object", "minimum": 10**30}), "bad: left out"),
        (tool("bad", inputSchema=deep(120)), "bad: left out"),
        (tool("bad", inputSchema={"type": "object", "title": "x" * 70_000}), "bad: left out"),
        (tool("good"), "listed twice"),
    ],
    ids=str,
)
async def test_a_tool_that_cannot_be_used_is_left_out_and_reported(broken: Any, why: str):
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = results({"tools": [tool("good"), broken, tool("fine")]})
        kept, asked = await ServerSource(server.endpoint(), servers).ask()
        assert [spec.name for spec in kept.specs] == ["good", "fine"]
        assert len(asked.notes) == 1
        assert why in asked.notes[0]
        assert len(asked.notes[0]) < 400


async def test_a_tool_comes_as_its_server_describes_it():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "$defs": {"p": {"type": "number", "maximum": 2**40}},
        "properties": {"x": {"$ref": "#/$defs/p"}},
    }
    output = {"type": "object", "properties": {"y": {"type": "string"}}}
    annotations = {"title": "Shop search", "readOnlyHint": True, "odd": [1]}
    whole = tool("find", inputSchema=schema, outputSchema=output, annotations=annotations, extra=1)
    async with Scripted(whole) as server, using() as servers:
        (spec,) = await ServerSource(server.endpoint(), servers).list()
        assert (spec.name, spec.description, spec.title) == ("find", "The find.", "Shop search")
        assert (spec.schema, spec.output_schema, spec.annotations) == (schema, output, annotations)
        assert spec.read_only


def abyss(levels: int) -> bytes:
    """A list of three tools, the second with a schema of so many levels, as text."""
    good, fine = (json.dumps(tool(name)).encode() for name in ("good", "fine"))
    deep = b'{"properties":{"a":' * (levels // 2) + b"{}" + b"}}" * (levels // 2)
    bad = b'{"name":"bad","inputSchema":' + deep + b"}"
    return b'{"tools":[' + b",".join([good, bad, fine]) + b"]}"


@pytest.mark.parametrize("levels", [66, 120, 200, 600, 3000, 100_000])
@pytest.mark.parametrize("streamed", [False, True], ids=["JSON", "SSE"])
async def test_however_deep_a_schema_is_only_its_tool_is_left_out(levels: int, streamed: bool):
    async def answer(asked: Asked) -> Any:
        text = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (asked.id, abyss(levels))
        if streamed:
            return await asked.stream(b"event: message\ndata: " + text + b"\n\n")
        return web.Response(body=text, content_type="application/json")

    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = answer
        kept, asked = await ServerSource(server.endpoint(), servers).ask()
        assert [spec.name for spec in kept.specs] == ["good", "fine"]
        assert asked.notes[0].startswith("bad: left out")


@pytest.mark.parametrize("odd", [{}, {"tools": None}, {"tools": {"a": 1}}, {"tool": []}], ids=str)
async def test_a_list_that_is_none_is_not_mcp(odd: Any):
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = results(odd)
        with pytest.raises(NotMCP, match="shop"):
            await names(servers, server.endpoint())


async def test_a_server_without_tools_has_none():
    async def no_tools(asked: Asked) -> Any:
        capabilities: dict[str, Any] = {"prompts": {}}
        info = {"name": "x", "version": "1"}
        return asked.json(
            {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        )

    async def unknown(asked: Asked) -> Any:
        return asked.error(-32601, "Method not found")

    async with Scripted() as server, using() as servers:
        server.on |= {"initialize": no_tools, "tools/list": unknown}
        assert await names(servers, server.endpoint()) == []


async def test_a_kept_list_costs_no_request_and_keeps_its_objects():
    async with Scripted() as server, using() as servers:
        source = ServerSource(server.endpoint(), servers)
        before, asked = await source.ask()
        assert asked.outcome == "listed"
        log = list(server.log)
        after, asked = await source.ask()
        assert after is before
        assert (asked.label, asked.outcome) == ("shop", "kept")
        assert asked.ms < 5
        assert server.log == log


async def test_a_list_without_time_to_live_is_listed_every_turn_if_the_setting_says_so():
    async with Scripted() as server, using(ttl=0) as servers:
        for _ in range(3):
            await names(servers, server.endpoint())
        assert server.counts["tools/list"] == 3
        assert server.counts["initialize"] == 1


@pytest.mark.parametrize(("ttl_ms", "listed"), [(60_000, 1), (0, 2), (-5, 2)])
async def test_a_servers_own_time_to_live_counts_before_the_setting(ttl_ms: int, listed: int):
    async with Scripted() as server, using(ttl=0 if listed == 1 else 60) as servers:
        server.on["tools/list"] = results({"tools": [tool("a")], "ttlMs": ttl_ms})
        await names(servers, server.endpoint())
        await names(servers, server.endpoint())
        assert server.counts["tools/list"] == listed


async def test_the_shortest_time_to_live_of_all_pages_counts():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = results(
            {"tools": [tool("a")], "ttlMs": 60_000, "nextCursor": "2"},
            {"tools": [tool("b")], "ttlMs": 0},
            {"tools": [tool("c")]},
        )
        assert await names(servers, server.endpoint()) == ["a", "b"]
        assert await names(servers, server.endpoint()) == ["c"]


async def test_a_new_listing_keeps_the_objects_of_tools_that_did_not_change():
    async with Scripted() as server, using(ttl=0) as servers:
        source = ServerSource(server.endpoint(), servers)
        server.on["tools/list"] = results(
            {"tools": [tool("same"), tool("other")]},
            {"tools": [tool("other", description="New."), tool("same"), tool("more")]},
        )
        same, other = await source.list()
        new = {spec.name: spec for spec in await source.list()}
        assert new["same"] is same
        assert new["other"] is not other
        assert list(new) == ["other", "same", "more"]


async def test_list_changed_drops_the_list_at_once():
    async def changes(asked: Asked) -> Any:
        response = await asked.open_stream()
        await asked.server.released.wait()
        note = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
        await response.write(note)
        asked.server.held.set()
        return response

    async with Scripted() as server, using() as servers:
        server.on["GET"] = in_turn(changes, hang)
        endpoint = server.endpoint()
        assert await names(servers, endpoint) == ["echo"]
        await until(lambda: server.counts["GET"])
        server.tools.append(tool("new"))
        server.released.set()
        await until(lambda: servers.catalog.kept(endpoint.key) is None)
        assert await names(servers, endpoint) == ["echo", "new"]


async def test_a_list_that_changes_while_it_is_listed_is_not_kept():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = in_turn(hang, usual)
        endpoint = server.endpoint()
        listing = asyncio.create_task(names(servers, endpoint))
        await until(server.held.is_set)
        servers.catalog.drop(endpoint.key)
        assert await names(servers, endpoint) == ["echo"]
        listing.cancel()
        await asyncio.wait({listing})
        assert servers.catalog.kept(endpoint.key)


class SlowLists:
    """Lists when it is told to, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def fetch(self, _: Endpoint) -> Listing:
        self.asked += 1
        await self.go.wait()
        return Listing([tool("echo")])


def with_slow_lists(slow: SlowLists) -> Servers:
    servers = Servers(None, ttl=60)  # type: ignore[arg-type]
    servers.catalog._fetch = slow.fetch
    return servers


async def test_first_listings_at_the_same_time_share_one_request():
    slow = SlowLists()
    servers = with_slow_lists(slow)
    endpoint = Endpoint(label="a", url="http://a/", principal="ann")
    asking = [asyncio.create_task(names(servers, endpoint)) for _ in range(50)]
    await asyncio.sleep(0)
    slow.go.set()
    assert await first(*asking) == [["echo"]] * 50
    assert slow.asked == 1


async def test_the_one_that_began_a_listing_may_leave_without_the_others():
    slow = SlowLists()
    servers = with_slow_lists(slow)
    endpoint = Endpoint(label="a", url="http://a/", principal="ann")
    leader = asyncio.create_task(names(servers, endpoint))
    await asyncio.sleep(0)
    follower = asyncio.create_task(names(servers, endpoint))
    await asyncio.sleep(0)
    leader.cancel()
    await asyncio.wait({leader})
    slow.go.set()
    assert await first(follower) == [["echo"]]
    assert slow.asked == 1


async def test_lists_belong_to_one_principal_and_one_credential():
    async with Scripted() as server, using() as servers:
        for fields in ({}, {"principal": "bob"}, {"headers": {"X-Key": "k"}}, {"label": "same"}):
            await names(servers, server.endpoint(**fields))
        assert server.counts["tools/list"] == 3


async def test_a_failed_listing_is_not_kept():
    async with Scripted() as server, using() as servers:
        server.on["tools/list"] = in_turn(results({"tools": 3}), usual)
        with pytest.raises(NotMCP):
            await names(servers, server.endpoint())
        assert await names(servers, server.endpoint()) == ["echo"]


async def test_the_lists_of_a_process_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mcp_servers.catalog.KEPT_MAX", 1000)
    async with Scripted(tool("big", description="x" * 400)) as server, using() as servers:
        for name in "abcd":
            await names(servers, server.endpoint(principal=name))
        assert servers.catalog.size <= 1000
        assert servers.catalog.kept(server.endpoint(principal="d").key)
        assert not servers.catalog.kept(server.endpoint(principal="a").key)


async def test_a_kept_list_and_a_call_need_no_second_listing():
    async with Scripted() as server, using() as servers:
        for number in range(3):
            result = await call(servers, server.endpoint(), n=number)
            assert result.text == f'{{"n": {number}}}'
        assert server.counts["tools/list"] == 1
        assert server.counts["initialize"] == 1
