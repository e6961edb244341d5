"""Turns under load: how many, how long each took, and whether its answer was the right one."""

import asyncio
import time
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Protocol

import aiohttp
import orjson
import psutil  # type: ignore[import-untyped]

from benchmarks.scenarios import Scenario, Turn
from benchmarks.upstream import USAGE
from tests.wires.checker import check_plain, check_stream

Json = Any

TURN_LIMIT = 30.0  # seconds after which a turn counts as failed
_markers = (f"m{n}m" for n in count(1))


class Failed(Exception):
    """The other side refused, or answered what is no answer."""


@dataclass(frozen=True)
class Answer:
    """The last reply of a turn as it came, and when its first text was there (perf_counter)."""

    raw: bytes
    first: float | None = None


class Player(Protocol):
    """Something that can play a turn: the server, or the same work without it.

    `pid` is the process whose CPU and memory count, if there is one. `sums` says that the usage in
    its answers is that of all rounds.
    """

    name: str
    pid: int | None
    sums: bool

    async def play(self, turn: Turn) -> Answer:
        """Play a turn to its end. Raises Failed, aiohttp.ClientError."""
        ...


@dataclass(kw_only=True)
class Cell:
    """One player, one scenario, one concurrency. Milliseconds, MiB; None where it has no meaning.

    `cpu_ms` is the server's processor time for a turn, of all its processes.
    """

    scenario: str
    concurrency: int
    player: str
    turns: int
    errors: int
    error: str | None
    seconds: float
    rate: float
    p50: float | None
    p95: float | None
    first_p50: float | None
    first_p95: float | None
    cpu_ms: float | None
    rss: float | None

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


@dataclass
class _Played:
    turn: Turn
    seconds: float
    first: float | None = None
    raw: bytes = b""
    error: str | None = None


async def complete(
    http: aiohttp.ClientSession, url: str, body: Json, *, headers: dict[str, str], marker: str
) -> Answer:
    """One chat completion; its first text is where the marker is. Raises Failed for a refusal."""
    async with http.post(url, data=orjson.dumps(body), headers=headers) as response:
        if response.status != 200:
            raise Failed(f"HTTP {response.status}: {(await response.text())[:300]}")
        if not body.get("stream"):
            return Answer(await response.read())
        raw, first, sought = b"", None, marker.encode()
        async for part in response.content.iter_any():
            raw += part
            if first is None and sought in raw:
                first = time.perf_counter()
        return Answer(raw, first)


async def measure(player: Player, scenario: Scenario, *, concurrency: int, seconds: float) -> Cell:
    """Play for so long, after one round of turns that only warm up; fails show in the cell.

    It takes `seconds` and at most two TURN_LIMITs more.
    """
    warm = await asyncio.gather(*(_played(player, scenario) for _ in range(concurrency)))
    if len(_faults(warm, player)) == len(warm):
        return _cell(player, scenario, concurrency, warm, wall=0.0, cpu=0.0)
    played: list[_Played] = []
    cpu, began = _cpu(player.pid), time.perf_counter()

    async def worker() -> None:
        while time.perf_counter() < began + seconds:
            played.append(await _played(player, scenario))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    wall = time.perf_counter() - began
    cpu = _cpu(player.pid) - cpu
    return _cell(player, scenario, concurrency, played, wall=wall, cpu=cpu)


async def _played(player: Player, scenario: Scenario) -> _Played:
    turn = scenario.turn(next(_markers))
    began = time.perf_counter()
    try:
        async with asyncio.timeout(TURN_LIMIT):
            answer = await player.play(turn)
    except (Failed, aiohttp.ClientError, TimeoutError, OSError) as error:
        return _Played(turn, 0.0, error=f"{type(error).__name__}: {error}")
    first = answer.first and answer.first - began
    return _Played(turn, time.perf_counter() - began, first, answer.raw)


def _faults(played: list[_Played], player: Player) -> list[str]:
    """What was wrong, for each turn of which something was. The clock has stopped by now."""
    faults, right = [], set[bytes]()
    for one in played:
        # Right answers differ only in their markers, so most need no second look.
        shape = one.raw.replace(one.turn.marker.encode(), b"*")
        if shape in right:
            continue
        if fault := one.error or _fault(one, player):
            faults.append(fault)
        else:
            right.add(shape)
    return faults


def _fault(played: _Played, player: Player) -> str | None:
    turn, scenario = played.turn, played.turn.scenario
    hidden = {tool for calls in scenario.calls for tool in calls}
    try:
        if scenario.stream:
            reply = check_stream(played.raw, hidden=hidden, include_usage=True)
        else:
            reply = check_plain(played.raw, hidden=hidden)
        assert not reply.error, f"an error: {reply.error}"
        assert reply.text == turn.answer, f"not the answer: {reply.text[:200]!r}"
        if player.sums:
            total = {name: tokens * (len(scenario.calls) + 1) for name, tokens in USAGE.items()}
            assert reply.usage == total, f"not the usage: {reply.usage}"
    except AssertionError as fault:
        return str(fault)
    return None


def _cell(
    player: Player,
    scenario: Scenario,
    concurrency: int,
    played: list[_Played],
    *,
    wall: float,
    cpu: float,
) -> Cell:
    faults = _faults(played, player)
    right = [one for one in played if not one.error]
    times = sorted(one.seconds for one in right)
    firsts = sorted(one.first for one in right if one.first is not None)
    known = player.pid is not None and wall > 0
    return Cell(
        scenario=scenario.name,
        concurrency=concurrency,
        player=player.name,
        turns=len(played),
        errors=len(faults),
        error=faults[0] if faults else None,
        seconds=wall,
        rate=(len(played) - len(faults)) / wall if wall else 0.0,
        p50=_quantile(times, 0.5),
        p95=_quantile(times, 0.95),
        first_p50=_quantile(firsts, 0.5),
        first_p95=_quantile(firsts, 0.95),
        cpu_ms=1000 * cpu / len(played) if known else None,
        rss=_rss(player.pid) / 2**20 if known else None,
    )


def _quantile(ordered: list[float], part: float) -> float | None:
    """Milliseconds."""
    if not ordered:
        return None
    return 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _processes(pid: int | None) -> list[psutil.Process]:
    if pid is None or not psutil.pid_exists(pid):
        return []
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu(pid: int | None) -> float:
    """Seconds of processor time so far, children included."""
    times = [process.cpu_times() for process in _processes(pid)]
    return float(sum(spent.user + spent.system for spent in times))


def _rss(pid: int | None) -> float:
    return float(sum(process.memory_info().rss for process in _processes(pid)))
