"""The one choke point (design, decision 8): every call of a tool goes through `Toolbox.call`."""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import groupby, islice
from traceback import format_tb
from typing import Any, Literal

from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from tools.base import Json, Offer, ToolCall, ToolError, ToolLate, ToolResult
from tools.names import Shown, assign
from tools.problems import cut
from tools.schema import arguments_of

logger = logging.getLogger(__name__)

Provider = Callable[[Caller, Any], Coroutine[Any, Any, list[Offer]]]
Outcome = Literal["ok", "error", "late", "refused", "unknown", "cached", "cancelled"]

providers: list[Provider] = []

# Their owner named them in the request: leaving one out silently would break what was asked for.
REQUIRED = frozenset({"caller", "inline", "resolved"})
MOST_NAMES = 50
NOT_TEXT = re.compile("[\0\ud800-\udfff]")


def register(provider: Provider) -> None:
    """Let an app bring tools to turns (design, decision 7); called in `AppConfig.ready()`.

    `provider(caller, turn)` gives one offer per server, and reports its own servers' failures.
    """
    if provider not in providers:
        providers.append(provider)


class TooManyTools(OrazakaError):
    """The tools that the request itself names are more than a turn may have."""

    status = 400
    code = "too_many_tools"


@dataclass(slots=True, kw_only=True)
class ToolRun:
    """What is known of one call, for the turn's record.

    `outcome`: ok, cached, error (the tool failed), late (over its deadline), refused (arguments
    that do not fit; not run), unknown (no such tool), cancelled. `began` is on the monotonic clock,
    `duration` in seconds. `arguments` and `result` are private: ORAZAKA_RECORD_PAYLOADS decides.
    """

    call_id: str
    name: str
    tool: str = ""
    server: str = ""
    origin: str = ""
    outcome: Outcome = "cancelled"
    began: float = field(default_factory=time.monotonic)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    duration: float = 0.0
    argument_names: tuple[str, ...] = ()
    argument_bytes: int = 0
    result_chars: int = 0
    arguments: str = field(default="", repr=False)
    result: str = field(default="", repr=False)


class Toolbox:
    """The tools of one turn: what the model is shown, and how one of them is called.

    `taken` are the names of the caller's own tools; with them there are at most `limit`. Raises
    TooManyTools when those that the request names are more. `max_chars` bounds a result's text,
    `default_timeout` (seconds) a call whose tool sets none. `observe` gets one ToolRun per call.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        *,
        taken: Collection[str] = (),
        limit: int,
        max_chars: int,
        default_timeout: float = 30,
        observe: Callable[[ToolRun], None] | None = None,
    ) -> None:
        everything = assign(taken, offers)
        room = max(0, limit - len(taken))
        left_out = everything[room:]
        if len(taken) > limit or any(one.offer.origin in REQUIRED for one in left_out):
            raise TooManyTools(f"the request names more than {limit} tools")
        self.shown: Sequence[Shown] = everything[:room]
        doubled = len(everything) < sum(len(offer.specs) for offer in offers)
        self.notes: Sequence[str] = [
            *(_doubled(offers) if doubled else ()),
            *_over(left_out, limit),
        ]
        self._by_name = {one.name: one for one in self.shown}
        self._max_chars = max_chars
        self._default_timeout = default_timeout
        self._observe = observe

    def owns(self, name: str) -> bool:
        """Whether a shown name is one of these tools."""
        return name in self._by_name

    async def call_all(self, calls: Sequence[ToolCall], *, caller: Caller) -> list[ToolResult]:
        """Run calls at once, each with its own deadline; results in the order of the calls."""
        if len(calls) == 1:
            return [await self.call(calls[0], caller=caller)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.call(call, caller=caller)) for call in calls]
        return [task.result() for task in tasks]

    async def call(self, call: ToolCall, *, caller: Caller) -> ToolResult:
        """Run one call. Whatever goes wrong is an error result; only cancellation is raised."""
        run = ToolRun(
            call_id=call.id,
            name=cut(call.name),
            argument_bytes=len(call.arguments.encode(errors="replace")),
            arguments=call.arguments,
        )
        try:
            result = await self._run(call, run, caller)
            run.result, run.result_chars = result.text, len(result.text)
            return result
        finally:
            run.duration = time.monotonic() - run.began
            if self._observe:
                self._observe(run)

    async def _run(self, call: ToolCall, run: ToolRun, caller: Caller) -> ToolResult:
        one = self._by_name.get(call.name)
        if one is None:
            return self._failed(run, "unknown", self._unknown(call.name))
        run.tool, run.server, run.origin = one.spec.name, one.offer.label, one.offer.origin
        try:
            arguments = arguments_of(call.arguments, one.spec)
        except ToolError as error:
            return self._failed(run, "refused", f"{one.name} was not run: {error}")
        run.argument_names = tuple(map(cut, islice(arguments, MOST_NAMES)))
        return await self._execute(one, arguments, run, caller)

    async def _execute(
        self, one: Shown, arguments: Mapping[str, Json], run: ToolRun, caller: Caller
    ) -> ToolResult:
        limit = self._default_timeout if one.spec.timeout is None else one.spec.timeout
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                result = await one.offer.source.call(one.spec, arguments, caller=caller)
            return self._taken(one, result, run)
        except asyncio.CancelledError as error:
            if _cancelled():
                raise
            failure: BaseException = error  # its own: a session that died takes its calls along
        except Exception as error:
            failure = error
        if deadline.expired():
            return self._failed(run, "late", _late(one, limit, run))
        return self._failed(run, *_fate(one, failure, caller))

    def _taken(self, one: Shown, result: ToolResult, run: ToolRun) -> ToolResult:
        """A tool's own result, in a form that can be sent and stored."""
        if result.is_error and not result.text:
            result = replace(result, text=f"{_named(one)} failed and did not say why.")
        run.outcome = "error" if result.is_error else "cached" if result.cached else "ok"
        text = self._fit(result.text)
        return result if text is result.text else replace(result, text=text)

    def _failed(self, run: ToolRun, outcome: Outcome, text: str) -> ToolResult:
        run.outcome = outcome
        return ToolResult(self._fit(text), is_error=True)

    def _unknown(self, name: str) -> str:
        near = get_close_matches(cut(name), self._by_name, n=3, cutoff=0)
        nearest = f" The nearest names are: {', '.join(near)}." if near else ""
        return f"There is no tool named {cut(name)}.{nearest}"

    def _fit(self, text: str) -> str:
        if not text.isascii() or "\0" in text:  # what JSON or a database would refuse
            text = NOT_TEXT.sub("\ufffd", text)
        if len(text) <= self._max_chars:
            return text
        marker = f"\n[cut: the whole has {len(text)} characters]"
        return text[: max(0, self._max_chars - len(marker))] + marker


def _fate(one: Shown, error: BaseException, caller: Caller) -> tuple[Outcome, str]:
    """What an error means for the record and for the model (design, decision 10)."""
    if isinstance(error, ToolError):
        outcome: Outcome = "late" if isinstance(error, ToolLate) else "error"
        return outcome, str(error) or f"{_named(one)} failed and did not say why."
    if isinstance(error, OrazakaError):
        return "late" if error.status == 504 else "error", error.message
    # The message of an exception may hold arguments; its type and where it was raised do not.
    logger.error(
        "%s failed: %s (request %s)\n%s",
        _named(one),
        type(error).__name__,
        caller.request_id,
        "".join(format_tb(error.__traceback__)),
    )
    return "error", f"{_named(one)} failed because of a fault on our side, not of the arguments."


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _named(one: Shown) -> str:
    return f"{one.name} of {one.offer.label}"


def _late(one: Shown, limit: float, run: ToolRun) -> str:
    elapsed = time.monotonic() - run.began
    return (
        f"{_named(one)} did not answer within {limit:g} s ({elapsed:.1f} s passed). "
        "Whether it took effect is not known."
    )


def _doubled(offers: Sequence[Offer]) -> Iterator[str]:
    for offer in offers:
        names = Counter(spec.name for spec in offer.specs)
        if double := [name for name, count in names.items() if count > 1]:
            yield f"{offer.label}: listed more than once, the first is used: {_listed(double)}"


def _over(left_out: Sequence[Shown], limit: int) -> Iterator[str]:
    for label, group in groupby(left_out, key=lambda one: one.offer.label):
        names = [one.spec.name for one in group]
        yield f"{label}: left out, a turn may have {limit} tools: {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(map(cut, names[:MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
