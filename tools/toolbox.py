"""The one choke point (design, decision 8): every call of a tool goes through `Toolbox.call`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from traceback import format_tb
from typing import Any, Literal

from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from tools.base import Json, Offer, ToolCall, ToolError, ToolResult
from tools.names import Shown, assign, doubles, ordered
from tools.schema import arguments_of

logger = logging.getLogger(__name__)

Provider = Callable[[Caller, Any], Awaitable[list[Offer]]]
Outcome = Literal["ok", "error", "late", "refused", "unknown", "cached", "cancelled"]

providers: list[Provider] = []

# Their owner named them in the request: leaving one out silently would break what was asked for.
REQUIRED = frozenset({"caller", "inline", "resolved"})
LONGEST_NAME_ECHOED = 100


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
        if (len(taken) > limit) or any(one.offer.origin in REQUIRED for one in everything[room:]):
            raise TooManyTools(_too_many(everything, taken, limit))
        self.shown: Sequence[Shown] = everything[:room]
        self.notes: Sequence[str] = [
            *(_doubled(offer, name) for offer, name in doubles(ordered(offers))),
            *(_over(one, limit) for one in everything[room:]),
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
            name=call.name[:LONGEST_NAME_ECHOED],
            argument_bytes=len(call.arguments.encode(errors="surrogatepass")),
            arguments=call.arguments,
        )
        try:
            result = self._fit(await self._run(call, run, caller))
            run.result, run.result_chars = result.text, len(result.text)
            return result
        finally:
            run.duration = time.monotonic() - run.began
            if self._observe:
                self._observe(run)

    async def _run(self, call: ToolCall, run: ToolRun, caller: Caller) -> ToolResult:
        one = self._by_name.get(call.name)
        if one is None:
            run.outcome = "unknown"
            return ToolResult(self._unknown(call.name), is_error=True)
        run.tool, run.server, run.origin = one.spec.name, one.offer.label, one.offer.origin
        try:
            arguments = arguments_of(call.arguments, one.spec)
        except ToolError as error:
            run.outcome = "refused"
            return ToolResult(f"{one.name} was not run: {error}", is_error=True)
        run.argument_names = tuple(arguments)
        return await self._execute(one, arguments, run, caller)

    async def _execute(
        self, one: Shown, arguments: Mapping[str, Json], run: ToolRun, caller: Caller
    ) -> ToolResult:
        limit = self._default_timeout if one.spec.timeout is None else one.spec.timeout
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                result = await one.offer.source.call(one.spec, arguments, caller=caller)
            run.outcome = "error" if result.is_error else "cached" if result.cached else "ok"
            return result
        except ToolError as error:
            run.outcome = "error"
            return ToolResult(str(error), is_error=True)
        except OrazakaError as error:
            run.outcome = "late" if error.status == 504 else "error"
            return ToolResult(error.message, is_error=True)
        except Exception as error:
            if deadline.expired():
                run.outcome = "late"
                return ToolResult(_late(one, limit, run), is_error=True)
            run.outcome = "error"
            _log(one, error, caller)
            return ToolResult(f"{one.name} failed because of a fault on our side.", is_error=True)

    def _unknown(self, name: str) -> str:
        name = name[:LONGEST_NAME_ECHOED]
        near = get_close_matches(name, self._by_name, n=3, cutoff=0)
        nearest = f" The nearest names are: {', '.join(near)}." if near else ""
        return f"There is no tool named {name}.{nearest}"

    def _fit(self, result: ToolResult) -> ToolResult:
        text = result.text.encode(errors="replace").decode().replace("\0", "\ufffd")
        if len(text) > self._max_chars:
            text = f"{text[: self._max_chars]}\n[cut: {len(text)} characters in all]"
        return result if text == result.text else replace(result, text=text)


def _late(one: Shown, limit: float, run: ToolRun) -> str:
    elapsed = time.monotonic() - run.began
    return (
        f"{one.spec.name} of {one.offer.label} did not answer within {limit:g} s "
        f"({elapsed:.1f} s elapsed). Whether it took effect is not known."
    )


def _log(one: Shown, error: Exception, caller: Caller) -> None:
    # The message of an exception may hold arguments; its type and where it was raised do not.
    logger.error(
        "tool %s of %s failed: %s, request %s\n%s",
        one.spec.name,
        one.offer.label,
        type(error).__name__,
        caller.request_id,
        "".join(format_tb(error.__traceback__)),
    )


def _too_many(everything: Sequence[Shown], taken: Collection[str], limit: int) -> str:
    named = len(taken) + sum(one.offer.origin in REQUIRED for one in everything)
    return f"the request names {named} tools; a turn may have {limit}"


def _doubled(offer: Offer, name: str) -> str:
    return f"{name} of {offer.label}: listed twice, the first is used"


def _over(one: Shown, limit: int) -> str:
    return f"{one.spec.name} of {one.offer.label}: left out, a turn may have {limit} tools"
