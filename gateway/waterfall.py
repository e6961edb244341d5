"""A turn's steps as bars over its time, for a page."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.models import Turn, TurnStep

Json = Any
GOOD = frozenset({"ok", "kept", "listed"})
LEAST_WIDTH = 0.4  # per cent: a bar that can be seen
TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One step: where its bar begins and how wide it is, in per cent of the turn."""

    kind: str
    title: str
    server: str
    outcome: str
    good: bool
    left: str
    width: str
    started: str
    took: str
    detail: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """All bars and the scale above them."""

    bars: tuple[Bar, ...]
    ticks: tuple[str, ...]


def waterfall(turn: Turn) -> Waterfall:
    """The steps in the order of their starts."""
    steps = list(turn.steps.order_by("position"))
    whole = max(_end(turn, steps), 0.001)
    ticks = tuple(duration(whole * at / TICKS) for at in range(TICKS + 1))
    return Waterfall(bars=tuple(_bar(step, whole) for step in steps), ticks=ticks)


def _end(turn: Turn, steps: Iterable[TurnStep]) -> float:
    """The turn's milliseconds; a step's own clock may be a little past it."""
    return max([turn.duration_ms, *(step.started_ms + step.duration_ms for step in steps)])


def _bar(step: TurnStep, whole: float) -> Bar:
    left = min(100 - LEAST_WIDTH, 100 * max(0.0, step.started_ms) / whole)
    width = min(100 - left, max(LEAST_WIDTH, 100 * step.duration_ms / whole))
    return Bar(
        kind=step.kind,
        title=_title(step),
        server=step.server,
        outcome=step.outcome.replace("_", " "),
        good=step.outcome in GOOD,
        left=f"{left:.2f}",  # not localised: it goes into attributes
        width=f"{width:.2f}",
        started=duration(step.started_ms),
        took=duration(step.duration_ms),
        detail=tuple(_details(step.detail)),
    )


def _title(step: TurnStep) -> str:
    if step.kind == TurnStep.Kind.MODEL:
        return f"call {step.detail.get('round', '')} of {step.name}"
    return step.name


def _details(detail: Json) -> Iterable[tuple[str, str]]:
    """What else is known of a step, in words; nested values one level down."""
    for name, value in detail.items() if isinstance(detail, dict) else ():
        label = str(name).replace("_", " ")
        if isinstance(value, dict):
            words = ", ".join(f"{key} {inner}" for key, inner in value.items())
        elif isinstance(value, list):
            words = ", ".join(map(str, value))
        else:
            words = str(value)
        if words and value is not None:
            yield label, words


def duration(ms: float) -> str:
    """Milliseconds for people."""
    if ms >= 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 or ms == 0 else f"{ms:.1f} ms"
