"""The reference server of the protocol's own authors (npm), over both of its HTTP transports."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_servers.client import Endpoint
from mcp_servers.faults import ServerUnreachable
from mcp_servers.source import ServerSource
from tests.mcp_servers.using import call, names, until, using
from tools.base import ToolError

pytestmark = pytest.mark.services

WHERE = Path(os.environ.get("ORAZAKA_TEST_NODE_MODULES", ".venv-node"))
SCRIPT = "@modelcontextprotocol/server-everything/dist/index.js"
BOTH = pytest.mark.parametrize("transport", ["streamableHttp", "sse"])


def script() -> Path:
    """npm's directory may be named itself or by its parent."""
    inside = WHERE / "node_modules" / SCRIPT
    return inside if inside.exists() else WHERE / SCRIPT


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def everything(transport: str, port: int = 0) -> AsyncIterator[Endpoint]:
    port = port or free_port()
    process = await asyncio.create_subprocess_exec(
        "node",
        str(script()),
        transport,
        env={"PORT": str(port), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: listens(port))
        path = "sse" if transport == "sse" else "mcp"
        url = f"http://127.0.0.1:{port}/{path}"
        yield Endpoint(label="everything", url=url, principal="ann")
    finally:
        process.kill()
        await process.wait()


@BOTH
async def test_everything_is_listed_and_called(transport: str):
    async with everything(transport) as endpoint, using() as servers:
        kept, asked = await ServerSource(endpoint, servers).ask()
        assert {"echo", "get-sum", "get-tiny-image"} <= {spec.name for spec in kept.specs}
        assert asked.notes == ()
        assert (await call(servers, endpoint, "echo", message="hi")).text == "Echo: hi"
        weather = await call(servers, endpoint, "get-structured-content", location="New York")
        assert weather.structured["temperature"]
        image = await call(servers, endpoint, "get-tiny-image")
        assert image.images[0].media_type == "image/png"
        links = await call(servers, endpoint, "get-resource-links", count=2)
        assert "[link to resource " in links.text
        assert servers.pool.opened == 1


@BOTH
async def test_everythings_progress_extends_a_call(transport: str):
    async with everything(transport) as endpoint, using() as servers:
        hasty = Endpoint(label="everything", url=endpoint.url, principal="ann", call_timeout=0.8)
        await names(servers, hasty)
        name = "trigger-long-running-operation"
        result = await call(servers, hasty, name, duration=2, steps=8)
        assert "completed" in result.text


@BOTH
async def test_what_everything_asks_is_declined_or_refused(transport: str):
    async with everything(transport) as endpoint, using() as servers:
        offered = await names(servers, endpoint)
        assert "trigger-sampling-request" not in offered  # not a capability of ours
        declined = await call(servers, endpoint, "trigger-elicitation-request")
        assert "declined" in declined.text.lower()


@BOTH
async def test_a_restarted_everything_is_used_again(transport: str):
    async with using() as servers:
        async with everything(transport) as endpoint:
            await call(servers, endpoint, "echo", message="hi")
        # It may have announced a change of its list, which is then listed anew first.
        with pytest.raises((ToolError, ServerUnreachable), match="everything"):
            await call(servers, endpoint, "echo", message="hi")
        port = int(endpoint.url.split(":")[2].split("/")[0])
        async with everything(transport, port=port):
            assert (await call(servers, endpoint, "echo", message="hi")).text == "Echo: hi"


async def test_everything_restarted_between_two_calls_is_not_noticed():
    async with using() as servers:
        async with everything("streamableHttp") as endpoint:
            await call(servers, endpoint, "echo", message="hi")
        port = int(endpoint.url.split(":")[2].split("/")[0])
        async with everything("streamableHttp", port=port):
            assert (await call(servers, endpoint, "echo", message="hi")).text == "Echo: hi"
            assert servers.pool.opened == 2
