"""What the end-to-end tests share: the provider, the project's server, MCP servers, clients."""

import logging
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.asking import Answer, Client, Http, Sdk
from tests.end_to_end.deployment import Deployment, Server, deployed, loopback
from tests.end_to_end.processes import ROOT, child, free_port, until
from tests.end_to_end.servers.official import KINDS
from tests.wires.strict import StrictProvider

CLIENTS_PYTHON = ROOT / ".venv-clients" / "bin" / "python"
NODE_MODULES = Path(os.environ.get("ORAZAKA_TEST_NODE_MODULES", ROOT / ".venv-node"))
EVERYTHING = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request says nothing
PROVIDER_KEY = "sk-provider-0123456789abcdef"


class Mcp:
    """An MCP server of the tests: its URL, and what it has seen."""

    def __init__(self, kind: str, base: str) -> None:
        self.kind, self.base = kind, base
        self.url = base + ("/sse" if kind == "sse" else "/mcp")

    def inline(self, name: str = "", **more: Any) -> dict[str, Any]:
        """An entry of `mcp_servers`."""
        return {"name": name or self.kind, "url": self.url, **more}

    def fresh(self, **more: Any) -> dict[str, Any]:
        """The same, under a URL of which the gateway keeps nothing yet."""
        return self.inline(**more) | {"url": f"{self.url}?{uuid.uuid4().hex}"}

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The requests that came."""
        return list(self._ask("/seen")["requests"])

    def count(self, counter: str) -> int:
        return int(self._ask("/seen")["counters"].get(counter, 0))

    def reach(self, counter: str, count: int) -> None:
        """Wait until a counter is that high. Raises httpx.ReadTimeout."""
        self._ask(f"/until?counter={counter}&count={count}")

    def _ask(self, path: str) -> Any:
        with loopback(timeout=40) as client:
            return client.get(self.base + path).json()


@pytest.fixture(scope="session")
def strict() -> Iterator[StrictProvider]:
    with StrictProvider(key=PROVIDER_KEY) as provider:
        yield provider


@pytest.fixture
def provider(strict: StrictProvider) -> StrictProvider:
    """The model's side, with nothing seen yet."""
    strict.requests.clear()
    return strict


@pytest.fixture(scope="session")
def deployment(
    strict: StrictProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    where = {"OPENAI_BASE_URL": f"{strict.url}/v1", "OPENAI_API_KEY": PROVIDER_KEY}
    with deployed(folder, **where) as project:
        yield project


@pytest.fixture(scope="session")
def running(deployment: Deployment) -> Iterator[Server]:
    with deployment.serve() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def asked_early(request: pytest.FixtureRequest) -> None:
    """Ask at once what takes long to be answered; the other tests run meanwhile."""
    if any("silence" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("silence")


@pytest.fixture(scope="session")
def silence(running: Server) -> Iterator["Future[Answer]"]:
    """What comes of a turn with an MCP server that accepts a connection and never answers."""

    def ask() -> Answer:
        with socket.create_server(("127.0.0.1", 0)) as silent, running.http() as http:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
            return Http(http)("SAY Hello.", mcp_servers=[{"name": "silent", "url": url}])

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(ask)


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """The project's server. What it said during a test is shown when the test fails."""
    before = len(running.process.said)
    yield running
    said = running.process.said[before:]
    print(said, file=sys.stderr)
    assert "Traceback" not in said, "the server met an exception that it did not expect"
    assert "never retrieved" not in said
    assert PROVIDER_KEY not in said
    assert running.key not in said


@pytest.fixture(scope="session")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Mcp]]:
    """One server of each kind of the official SDK, in a process of their own."""
    log = tmp_path_factory.mktemp("mcp") / "log"
    command = [sys.executable, "-m", "tests.end_to_end.servers.official", *KINDS]
    with child(command, log=log, talks=True) as process:
        ports = process.line().split()
        yield {
            kind: Mcp(kind, f"http://127.0.0.1:{port}")
            for kind, port in zip(KINDS, ports, strict=True)
        }


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of npm's server-everything."""
    script, port = NODE_MODULES / EVERYTHING, free_port()
    env = {**os.environ, "PORT": str(port)}
    log = tmp_path_factory.mktemp("everything") / "log"
    with child(["node", str(script), "streamableHttp"], log=log, env=env) as process:
        until(lambda: "listening on port" in process.said, 30)
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """Plain HTTP to the project's server, with a key."""
    with server.http() as client:
        yield client


@pytest.fixture
def ask(http: httpx.Client) -> Client:
    """A client over plain HTTP that reads strictly."""
    return Http(http)


@pytest.fixture(scope="session")
def sdk_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("sdk") / "log"
    script = Path(__file__).parent / "clients" / "openai_chat.py"
    command = [str(CLIENTS_PYTHON), str(script)]
    with child(command, log=log, talks=True, stdin=True) as process:
        yield process


@pytest.fixture
def sdk(sdk_process: Any, server: Server) -> Sdk:
    """The official SDK as a client of the project's server."""
    return Sdk(sdk_process, base_url=server.url, api_key=server.key)


@pytest.fixture(params=["http", pytest.param("sdk", marks=pytest.mark.services)])
def client(request: pytest.FixtureRequest) -> Client:
    """Both clients, one after the other."""
    name = "ask" if request.param == "http" else "sdk"
    chosen: Client = request.getfixturevalue(name)
    return chosen
