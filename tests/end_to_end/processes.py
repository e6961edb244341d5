"""Child processes of the tests: each has a limit to start and to stop, and what it said is kept."""

import os
import queue
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 20.0


class Stuck(AssertionError):
    """A process did not do in time what it should; the message has its last words."""


class Child:
    """A running process. Standard error goes to `log`, and so does standard output unless it
    `talks`: then it is read with `line`."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process, self.log = process, log
        self._lines: queue.Queue[str | None] = queue.Queue()  # None: no more will come
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def name(self) -> str:
        return repr(self.process.args)

    @property
    def said(self) -> str:
        """What it has written to `log`."""
        return self.log.read_text(errors="replace")

    def line(self, seconds: float = START_SECONDS) -> str:
        """The next line of standard output, without its end. Raises Stuck."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            line = None
        if line is None:
            raise Stuck(f"{self.name} said no line in {seconds:g} s:\n{self.said[-3000:]}")
        return line

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code, once it has ended by itself. Raises Stuck."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Stuck(
                f"{self.name} did not end within {seconds:g} s:\n{self.said[-3000:]}"
            ) from None

    def end(self) -> None:
        """End it at once, if it still runs, and let go of its pipes."""
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """End it with SIGTERM; its exit code. Raises Stuck."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.ended(seconds)


@contextmanager
def child(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    talks: bool = False,
    stdin: bool = False,
) -> Iterator[Child]:
    """Run it while the block lasts. `talks`: its output is read line by line; `stdin`: it listens.

    Whatever happens, no process of it stays.
    """
    with log.open("a") as words:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            text=True,
            bufsize=1 if stdin else -1,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else words,
            stderr=words,
        )
    running = Child(process, log)
    try:
        yield running
    finally:
        running.end()


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    seconds: float = START_SECONDS,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end. Raises Stuck if that takes too long."""
    try:
        return subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise Stuck(f"{command} took over {seconds:g} s:\n{error.stderr!r}") from None


def done(command: Sequence[str], **how: object) -> str:
    """The standard output of a command that must succeed."""
    ran = run(command, **how)  # type: ignore[arg-type]
    assert ran.returncode == 0, f"{command} failed:\n{ran.stderr[-3000:]}"
    return ran.stdout


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def clean_environment() -> dict[str, str]:
    """This process's environment without any setting of the project."""
    ours = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    ours.append("DJANGO_SETTINGS_MODULE")  # the tests' own
    return {name: value for name, value in os.environ.items() if name not in ours}


def until[T](
    holds: Callable[[], T], seconds: float = 5.0, *, shown: Callable[[], object] | None = None
) -> T:
    """Wait until this gives something true, which is returned: for what gives no sign of itself.

    Raises Stuck, with what is to be `shown` then.
    """
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise Stuck(f"not within {seconds:g} s: {shown() if shown else holds}")
        time.sleep(0.01)
    return value
