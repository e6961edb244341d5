"""The first start, as the README tells it, from the project's files alone."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.end_to_end.processes import (
    ROOT,
    Child,
    child,
    clean_environment,
    done,
    free_port,
    run,
    until,
)

QUICKSTART = (sys.executable, "manage.py", "quickstart")


@pytest.fixture
def folder(tmp_path) -> Path:
    """The project's files as a clone has them, and nothing else."""
    # What is not committed yet is a part of the next clone; what is ignored never is.
    listed = done(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    clone = tmp_path / "clone"
    for name in filter(None, listed.split("\0")):
        if (source := ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, clone / name)
    return clone


def nobodys_environment() -> dict[str, str]:
    """Without settings, and without coverage: a copy's lines are not the project's."""
    clean = clean_environment()
    return {name: value for name, value in clean.items() if not name.startswith("COV")}


def quickstart(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return run([*QUICKSTART, *options], cwd=folder, env=nobodys_environment(), seconds=90)


def serving(folder: Path, log: Path, *options: str) -> AbstractContextManager[Child]:
    """The same, left running."""
    command = [*QUICKSTART, *options]
    return child(command, log=log, cwd=folder, env=nobodys_environment(), talks=True)


def secrets_in(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def started(serving: Child) -> list[str]:
    """What it says until it serves."""
    lines = [serving.line(90)]
    while "Ctrl-C" not in lines[-1]:
        lines.append(serving.line())
    return lines


def test_from_nothing_to_a_turn_and_then_quick_and_quiet(folder, tmp_path):
    port = str(free_port())
    first = quickstart(folder, "--port", port, "--no-serve")
    assert first.returncode == 0, first.stderr + first.stdout
    assert "weekday" in first.stdout
    assert "Sunday" in first.stdout, "the transcript holds what the tools gave"
    assert first.stderr == ""
    assert stat.S_IMODE((folder / ".env").stat().st_mode) == 0o600
    made = secrets_in(folder)
    assert len(made["SECRET_KEY"]) >= 50
    assert len(set(made.values())) == len(made) == 2
    with socket.create_server(("127.0.0.1", int(port))):
        pass  # nobody is left there

    with serving(folder, tmp_path / "log", "--port", port) as second:
        lines = started(second)
        family = psutil.Process(second.pid).children(recursive=True)
        second.signal(signal.SIGTERM)  # as a process manager ends it
        assert second.ended() in (143, -signal.SIGTERM)
        until(lambda: not any(process.is_running() for process in family))
        assert second.said == ""
    assert len(lines) <= 4, lines
    assert not any("ozk_" in line or "password" in line for line in lines)
    assert secrets_in(folder) == made


def test_it_serves_until_ctrl_c_and_the_printed_line_can_be_pasted(folder, tmp_path):
    port = str(free_port())
    with serving(folder, tmp_path / "log", "--port", port) as first:
        lines = started(first)
        [curl] = [line for line in lines if line.startswith("curl ")]
        pasted = done(["bash", "-c", curl], env={**os.environ, "no_proxy": "127.0.0.1"})
        assert "Sunday" in json.loads(pasted)["choices"][0]["message"]["content"]
        [key] = re.findall(r"API key\s+(ozk_\S+)", "\n".join(lines))
        assert key in curl

        family = psutil.Process(first.pid).children(recursive=True)
        assert len(family) >= 2, "the server and the sample"
        began = time.monotonic()
        first.signal(signal.SIGINT)
        assert first.ended() == 0, first.said
        assert time.monotonic() - began < 10
        until(lambda: not any(process.is_running() for process in family))
        assert first.said == ""


def test_a_port_in_use_is_said_plainly(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = quickstart(folder, "--port", str(port), "--no-serve")
    assert ran.returncode == 1
    assert f"port {port} is in use" in ran.stderr
    assert "Traceback" not in ran.stderr
