"""The sample server, as the first start runs it and as the client sees it."""

import asyncio
import logging
import sys

import pytest

from mcp_servers.client import Endpoint
from mcp_servers.sample import build
from mcp_servers.source import ServerSource
from tests.mcp_servers.using import call, served, using


async def test_the_sample_server_answers_in_both_eras():
    async with served(build().streamable_http_app()) as url, using() as servers:
        for era in ("auto", "legacy"):
            endpoint = Endpoint(label="sample", url=f"{url}/mcp", principal="ann", era=era)
            assert (await call(servers, endpoint, "weekday", day="2026-11-30")).text == "Monday"
            inches = await call(servers, endpoint, "convert", value=1, unit="m", into="inch")
            assert inches.text == "39.37007874"
            rolled = await call(servers, endpoint, "roll", count=3)
            assert len(rolled.structured["dice"]) == 3
            assert rolled.structured["total"] == sum(rolled.structured["dice"])


async def test_the_sample_servers_error_is_readable():
    async with served(build().streamable_http_app()) as url, using() as servers:
        endpoint = Endpoint(label="sample", url=f"{url}/mcp", principal="ann")
        result = await call(servers, endpoint, "convert", value=1, unit="m", into="parsec")
        assert result.is_error
        assert "no unit 'parsec'. The units are mm, cm" in result.text


async def test_the_sample_servers_tools_are_described():
    async with served(build().streamable_http_app()) as url, using() as servers:
        endpoint = Endpoint(label="sample", url=f"{url}/mcp", principal="ann")
        specs = await ServerSource(endpoint, servers).list()
        assert [spec.name for spec in specs] == ["weekday", "convert", "roll"]
        assert [spec.read_only for spec in specs] == [True, True, False]
        assert all(spec.description for spec in specs)


def test_building_it_leaves_the_root_logger_alone():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    build()
    assert (root.handlers[:], root.level) == before


async def test_it_says_where_it_listens_and_stops_when_told():
    arguments = ("-m", "mcp_servers.sample", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env={"PATH": ""}
    )
    try:
        assert process.stdout
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        url = line.decode().split()[-1]
        async with using() as servers:
            endpoint = Endpoint(label="sample", url=url, principal="ann")
            assert (await call(servers, endpoint, "weekday", day="2024-02-29")).text == "Thursday"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


@pytest.mark.parametrize("day", ["2026-13-01", "tomorrow", 3])
async def test_a_date_that_is_none_is_an_error_result(day: object):
    async with served(build().streamable_http_app()) as url, using() as servers:
        endpoint = Endpoint(label="sample", url=f"{url}/mcp", principal="ann")
        assert (await call(servers, endpoint, "weekday", day=day)).is_error
