"""The server's processes: one, or several that share a socket under uvicorn's supervisor."""

import math
import signal
import socket
import tempfile
import time

import uvicorn
from django.conf import settings
from django.db import connection
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from orazaka.settings import hand_down

APPLICATION = "orazaka.asgi:application"
KEEP_ALIVE_SECONDS = 75  # longer than a proxy's (nginx: 60), which must be the one that hangs up
AFTER_DRAIN_SECONDS = 3  # for the last bytes of turns that the drain has cut
HEALTH_SECONDS = 30  # without an answer a worker counts as hung; its start keeps it busy for some


def configuration(*, host: str, port: int, workers: int) -> uvicorn.Config:
    """How uvicorn serves. Logs are Django's to configure (`orazaka.logs`)."""
    return uvicorn.Config(
        APPLICATION,
        host=host,
        port=port,
        workers=workers,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.ORAZAKA_DRAIN_SECONDS) + AFTER_DRAIN_SECONDS,
        timeout_worker_healthcheck=HEALTH_SECONDS,
    )


def serve(*, host: str, port: int, workers: int) -> int:
    """Serve until SIGTERM or SIGINT; the exit code: 0 after a stop in order.

    Raises SystemExit if the address can't be had.
    """
    config = configuration(host=host, port=port, workers=workers)
    listening = config.bind_socket()
    # What checks opened would stay with the supervisor for as long as it lives.
    connection.close()
    getattr(connection, "close_pool", lambda: None)()
    if workers == 1:
        return _alone(config, listening)
    hand_down("WEB_CONCURRENCY", str(workers))
    with tempfile.TemporaryDirectory(prefix="orazaka-metrics-") as measurements:
        hand_down("PROMETHEUS_MULTIPROC_DIR", measurements)
        return Workers(config, [listening]).serve()


def _alone(config: uvicorn.Config, listening: socket.socket) -> int:
    # uvicorn puts these back when it has stopped, and raises the signal again.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server = uvicorn.Server(config)
    server.run([listening])
    return 0 if server.started else STARTUP_FAILURE


class Workers(Multiprocess):
    """uvicorn's supervisor, which starts a new worker for one that died; SIGHUP replaces all.

    Other than there, a connection that comes after the stop began is refused at once instead of
    waiting for the end, and the wait has a limit.
    """

    def serve(self) -> int:
        """Run until stopped. The exit code: not 0 if the workers could not start."""
        self.run()
        failed = any(process.exitcode == STARTUP_FAILURE for process in self.processes)
        return STARTUP_FAILURE if failed else 0

    def terminate_all(self) -> None:
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def join_all(self) -> None:
        # The drain, the writer's last rows and the goodbyes to MCP servers have limits of theirs.
        limit = (self.config.timeout_graceful_shutdown or 0) + 20
        end = time.monotonic() + limit
        for process in self.processes:
            process.process.join(max(0.0, end - time.monotonic()))
            if process.process.is_alive():
                process.process.kill()
        super().join_all()
