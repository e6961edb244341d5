"""Several workers as `manage.py serve` runs them, each within reach of its own."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import psutil  # type: ignore[import-untyped]

from tests.end_to_end.deployment import Deployment, Server
from tests.end_to_end.processes import child, free_port, until

STOP_SECONDS = 35.0  # spec 5: 30 for the turns that run, and some for records and sessions


class Workers(Server):
    """A running `manage.py serve`."""

    @property
    def pids(self) -> set[int]:
        """The workers that have the socket; a new one may still be loading."""
        port = int(self.url.rpartition(":")[2])
        return {
            process.pid
            for process in psutil.Process(self.process.pid).children()
            if _listens(process, port)
        }

    @contextmanager
    def each(self) -> Iterator[dict[int, httpx.Client]]:
        """A client with the deployment's key for each worker: its one connection is kept there."""
        with ExitStack() as stack:
            clients: dict[int, httpx.Client] = {}

            def all_reached() -> bool:
                client = stack.enter_context(self._one_connection())
                with client.stream("GET", "/healthz") as response:
                    stream = response.extensions["network_stream"]
                    mine = stream.get_extra_info("client_addr")[1]
                    response.read()
                clients.setdefault(self._holder(mine), client)
                return clients.keys() >= self.pids

            until(all_reached, 60)
            yield clients

    def _one_connection(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        limits = httpx.Limits(max_connections=1, keepalive_expiry=None)
        return httpx.Client(
            base_url=self.url, headers=headers, limits=limits, trust_env=False, timeout=30
        )

    def _holder(self, port: int) -> int:
        """The worker at the other end of a connection from this port."""
        for process in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):
                if any(c.raddr and c.raddr.port == port for c in process.net_connections("tcp")):
                    return int(process.pid)
        raise AssertionError("no worker has this connection")


def _listens(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        connections = process.net_connections("tcp")
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
    return False


@contextmanager
def workers(deployment: Deployment, count: int, **env: str) -> Iterator[Workers]:
    """Serve with so many workers, one ready when the block begins. Who is left is killed."""
    port = free_port()
    command = [sys.executable, "manage.py", "serve", "--port", str(port), "--workers", str(count)]
    log = deployment.folder / f"workers-{port}.log"
    own = {"TMPDIR": str(deployment.folder), **env}  # a supervisor that is killed leaves files
    with child(command, log=log, env={**deployment.env, **own}) as process:
        server = Workers(f"http://127.0.0.1:{port}", process, deployment)
        try:
            until(
                lambda: process.process.poll() is not None or len(server.pids) == count,
                60,
                shown=lambda: process.said,
            )
            assert process.process.poll() is None, process.said
            until(lambda: server.ready, 60, shown=lambda: process.said)
            yield server
        finally:
            _kill(process.pid)
        assert "Traceback" not in process.said, process.said


def _kill(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
