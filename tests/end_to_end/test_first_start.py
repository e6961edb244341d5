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
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.processes import ROOT, child, clean_environment, done, free_port, run, until

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


def quickstart(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return run([*QUICKSTART, *options], cwd=folder, env=clean_environment(), seconds=90)


def secrets_in(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_from_nothing_to_a_turn_and_a_second_time_at_once(folder):
    port = str(free_port())
    first = quickstart(folder, "--port", port, "--no-serve")
    assert first.returncode == 0, first.stderr + first.stdout
    assert "Sunday" in first.stdout, "the transcript holds what the tools gave"
    assert "weekday" in first.stdout
    assert stat.S_IMODE((folder / ".env").stat().st_mode) == 0o600
    made = secrets_in(folder)
    assert len(made["SECRET_KEY"]) >= 50
    assert len(set(made.values())) == len(made) == 2

    second = quickstart(folder, "--port", port, "--no-serve")
    assert second.returncode == 0, second.stderr + second.stdout
    assert secrets_in(folder) == made
    assert "password" not in second.stdout
    assert len(second.stdout.splitlines()) <= len(first.stdout.splitlines())
    assert first.stderr == second.stderr == ""


def test_it_serves_until_ctrl_c_and_the_printed_line_can_be_pasted(folder, tmp_path):
    port = str(free_port())
    command = [*QUICKSTART, "--port", port]
    with child(
        command, log=tmp_path / "log", cwd=folder, env=clean_environment(), talks=True
    ) as serving:
        lines = [serving.line(90)]
        while "Ctrl-C" not in lines[-1]:
            lines.append(serving.line())
        [curl] = [line for line in lines if line.startswith("curl ")]
        pasted = done(["bash", "-c", curl], env={**os.environ, "no_proxy": "127.0.0.1"})
        assert "Sunday" in json.loads(pasted)["choices"][0]["message"]["content"]
        [key] = re.findall(r"API key\s+(ozk_\S+)", "\n".join(lines))
        assert key in curl

        family = psutil.Process(serving.pid).children(recursive=True)
        assert len(family) >= 2, "the server and the sample"
        began = time.monotonic()
        serving.signal(signal.SIGINT)
        assert serving.ended(20) == 0, serving.said
        assert time.monotonic() - began < 10
        gone, alive = psutil.wait_procs(family, timeout=5)
        assert not alive
        assert "Traceback" not in serving.said
        assert key not in serving.said


def test_a_second_start_that_serves_is_quick_and_quiet(folder, tmp_path):
    port = str(free_port())
    assert quickstart(folder, "--port", port, "--no-serve", "--no-turn").returncode == 0
    began = time.process_time(), time.monotonic()
    command = [*QUICKSTART, "--port", port]
    with child(
        command, log=tmp_path / "log", cwd=folder, env=clean_environment(), talks=True
    ) as serving:
        lines = [serving.line(60)]
        while "Ctrl-C" not in lines[-1]:
            lines.append(serving.line())
        took = time.monotonic() - began[1]
        serving.signal(signal.SIGTERM)  # as a process manager ends it
        serving.ended(20)
    assert len(lines) <= 4, lines
    assert not any("ozk_" in line or "password" in line for line in lines)
    assert took < 5 or os.getloadavg()[0] > os.cpu_count(), f"{took:.1f} s"


def test_a_port_in_use_is_said_plainly(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = quickstart(folder, "--port", str(port), "--no-serve")
    assert ran.returncode == 1
    assert f"port {port} is in use" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_no_process_stays_when_it_is_killed_by_a_process_manager(folder, tmp_path):
    port = str(free_port())
    command = [*QUICKSTART, "--port", port, "--no-turn"]
    with child(
        command, log=tmp_path / "log", cwd=folder, env=clean_environment(), talks=True
    ) as serving:
        while "Ctrl-C" not in serving.line(90):
            pass
        family = psutil.Process(serving.pid).children(recursive=True)
        serving.signal(signal.SIGTERM)
        assert serving.ended(20) in (143, -signal.SIGTERM)
        until(lambda: not any(process.is_running() for process in family), 5)
