"""The processes of a run, each with an end: the fakes, the relay, and the project's server."""

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 60.0  # seconds for a server to be ready, or a command to end
STOP_LIMIT = 10.0


class CannotStart(Exception):
    """A process did not get ready, or a command failed; the message holds its last words."""


@dataclass(frozen=True)
class Running:
    """A server on loopback; `key` opens it, if it takes keys."""

    url: str
    pid: int | None
    key: str = ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def fake(app: str, *, port: int = 0) -> Iterator[Running]:
    """Serve one of our own applications, `module:name`."""
    port = port or free_port()
    with TemporaryDirectory() as folder:
        options = ["--lifespan", "off", "--timeout-keep-alive", "600"]
        log = Path(folder, "log")
        with _uvicorn(app, port, *options, log=log, env=dict(os.environ)) as process:
            _wait(lambda: _accepts(port), process, log)
            yield Running(f"http://127.0.0.1:{port}", process.pid)


@contextmanager
def gateway(*, upstream: str, log: Path | None = None) -> Iterator[Running]:
    """The project's server as one worker: a fresh SQLite database, and the fake as `openai`.

    What it logs goes to `log`.
    """
    port = free_port()
    with TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "DEBUG": "false",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "ORAZAKA_SECRET_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "ALLOWED_HOSTS": "127.0.0.1",
            "ORAZAKA_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "DATABASE_URL": f"sqlite:///{folder}/bench.sqlite3",
            "CACHE_URL": "locmemcache://",
            "WEB_CONCURRENCY": "1",
            "OPENAI_BASE_URL": f"{upstream}/v1",
            "OPENAI_API_KEY": "sk-bench",
            "ANTHROPIC_API_KEY": "",
            "OTARI_AI_TOKEN": "",
            "ORAZAKA_HTTP_PROXY": "",
            "OTARI_MCP_ALLOW_LOOPBACK": "true",
        }
        _manage("migrate", "--no-input", "--verbosity=0", env=env)
        key = json.loads(_manage("createkey", "bench", "--create", "--json", env=env))["key"]
        log = log or Path(folder, "log")
        with _uvicorn("orazaka.asgi:application", port, log=log, env=env) as process:
            url = f"http://127.0.0.1:{port}"
            _wait(lambda: _answers(f"{url}/readyz"), process, log)
            yield Running(url, process.pid, key)


def _manage(*arguments: str, env: dict[str, str]) -> str:
    command = [sys.executable, "manage.py", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=START_LIMIT
        )
    except subprocess.TimeoutExpired:
        raise CannotStart(f"manage.py {arguments[0]} took over {START_LIMIT:g} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout)[-2000:]
        raise CannotStart(f"manage.py {arguments[0]} ended with {done.returncode}:\n{words}")
    return done.stdout


@contextmanager
def _uvicorn(
    app: str, port: int, *options: str, log: Path, env: dict[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    where = ["--host", "127.0.0.1", "--port", str(port), "--no-access-log"]
    command = [sys.executable, "-m", "uvicorn", app, *where, *options]
    with log.open("wb") as words:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=words, stderr=words)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_LIMIT
    while not ready():
        if process.poll() is not None or time.monotonic() > until:
            last = log.read_text(errors="replace")[-2000:]
            raise CannotStart(f"a server did not get ready:\n{last}")
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
