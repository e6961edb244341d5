"""The figures for people: one line for each cell, beside the same work without a gateway."""

import os
import platform
from collections.abc import Sequence
from typing import Any

from benchmarks.load import Cell

Json = Any

HEAD = (
    "scenario",
    "at once",
    "who",
    "turns/s",
    "p50 ms",
    "p95 ms",
    "first ms",
    "CPU ms/turn",
    "RSS MiB",
    "x floor",
    "errors",
)


def machine() -> dict[str, Json]:
    """What the figures depend on beside the code."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def table(rows: Sequence[tuple[Cell, Cell | None]]) -> str:
    """Rows of (floor, server); `x floor` is the ratio of their p50, the first text's in a stream
    that follows a round."""
    lines: list[Sequence[str]] = [HEAD]
    for floor, server in rows:
        lines.append(_line(floor, None))
        if server:
            lines.append(_line(server, floor))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    shown = [_row(line, widths) for line in lines]
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])


def _line(cell: Cell, floor: Cell | None) -> tuple[str, ...]:
    return (
        cell.scenario,
        str(cell.concurrency),
        cell.player,
        f"{cell.rate:.1f}",
        _number(cell.p50),
        _number(cell.p95),
        _number(cell.first_p50),
        _number(cell.cpu_ms, digits=2),
        _number(cell.rss, digits=0),
        _number(_ratio(cell, floor), digits=2) if floor else "",
        f"{cell.errors}/{cell.turns}",
    )


def _ratio(cell: Cell, floor: Cell) -> float | None:
    if cell.scenario == "first-token":
        above, below = cell.first_p50, floor.first_p50
    else:
        above, below = cell.p50, floor.p50
    return above / below if above and below else None


def _row(line: Sequence[str], widths: Sequence[int]) -> str:
    words, numbers = line[:3], line[3:]
    left = [word.ljust(width) for word, width in zip(words, widths, strict=False)]
    right = [number.rjust(width) for number, width in zip(numbers, widths[3:], strict=True)]
    return "  ".join([*left, *right])


def _number(value: float | None, *, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"
