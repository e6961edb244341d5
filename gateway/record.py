"""What a turn leaves behind: its steps as they happen, its rows at the end (spec 3.7)."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson

from gateway.models import Turn, TurnStep
from gateway.wire import Usage
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from tools.names import Shown
from tools.toolbox import ToolRun

Json = Any
Status = Turn.Status


class Record:
    """A turn's record. `watch` gets each step when it is over, as JSON text, for the trace."""

    def __init__(self, caller: Caller, *, wire: str, model: str, streamed: bool) -> None:
        self.id = uuid4()
        self.watch: Callable[[bytes], None] | None = None
        self.steps: list[dict[str, Json]] = []
        self.offered: list[Json] = []
        self.rounds = self.tool_calls = 0
        self.first_output: float | None = None
        self._caller, self._wire, self._model, self._streamed = caller, wire, model, streamed
        self._began, self.at = time.perf_counter(), datetime.now(UTC)

    @property
    def request_id(self) -> str:
        return self._caller.request_id

    def now(self) -> float:
        """Milliseconds since the turn began."""
        return (time.perf_counter() - self._began) * 1000

    def output(self) -> None:
        """Something for the client has come."""
        if self.first_output is None:
            self.first_output = self.now()

    def step(
        self,
        kind: str,
        name: str,
        outcome: str,
        *,
        started: float,
        server: str = "",
        **detail: Json,
    ) -> None:
        """Note a step that began at `started` (of `now`) and is over."""
        step = {
            "kind": kind,
            "name": name,
            "server": server,
            "outcome": outcome,
            "started_ms": round(started, 2),
            "duration_ms": round(self.now() - started, 2),
            "detail": detail,
        }
        self.steps.append(step)
        if self.watch:
            self.watch(orjson.dumps(step))

    def offer(self, shown: Sequence[Shown]) -> None:
        """Note what the model is offered, and why."""
        self.offered = [
            {
                "name": s.name,
                "source": f"{s.offer.origin}:{s.offer.label}",
                "reason": s.offer.reason,
            }
            for s in shown
        ]

    def tool(self, run: ToolRun, *, payloads: bool) -> None:
        """Note a tool call: names and sizes, and values only when the operator wants them."""
        self.tool_calls += 1
        detail: dict[str, Json] = {
            "tool": run.tool,
            "origin": run.origin,
            "arguments": list(run.argument_names),
            "argument_bytes": run.argument_bytes,
            "result_chars": run.result_chars,
        }
        if payloads:
            detail |= {"sent": run.arguments, "got": run.result}
        started = self.now() - run.duration * 1000
        self.step("tool", run.name, run.outcome, started=started, server=run.server, **detail)

    def rows(self, status: str, usage: Usage, error: OrazakaError | None) -> list[Turn | TurnStep]:
        """The turn and its steps, ready to be written."""
        turn = Turn(
            id=self.id,
            request_id=self.request_id,
            user_id=self._caller.user_id,
            principal=self._caller.principal,
            key_id=self._caller.key_id,
            wire=self._wire,
            model=self._model[:255],
            streamed=self._streamed,
            status=status,
            error_code=error.code if error else "",
            error=error.message if error else "",
            rounds=self.rounds,
            tool_calls=self.tool_calls,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cached_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            reasoning_tokens=usage.reasoning,
            started_at=self.at,
            duration_ms=self.now(),
            first_output_ms=self.first_output,
            offered=self.offered,
        )
        ordered = sorted(self.steps, key=lambda step: step["started_ms"])
        steps = [TurnStep(turn=turn, position=at, **step) for at, step in enumerate(ordered)]
        return [turn, *steps]
