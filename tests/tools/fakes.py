"""A source of tools that does what a test says."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from orazaka.caller import Caller
from tools.base import Offer, ToolCall, ToolResult, ToolSpec

ANYONE = Caller(principal="user:1", request_id="req-1")

Act = Callable[[ToolSpec, Mapping[str, Any]], Awaitable[ToolResult]]


class FakeSource:
    """Runs `act` for each call and keeps what was called."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.called: list[tuple[str, dict[str, Any]]] = []

    async def list(self) -> Sequence[ToolSpec]:
        raise NotImplementedError

    async def call(
        self, spec: ToolSpec, arguments: Mapping[str, Any], *, caller: Caller
    ) -> ToolResult:
        self.called.append((spec.name, dict(arguments)))
        return await self._act(spec, arguments)


async def say_name(spec: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult(f"{spec.name} ran")


def failing(error: BaseException) -> Act:
    """A tool that raises."""

    async def act(spec: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
        raise error

    return act


def giving(result: ToolResult) -> Act:
    """A tool that always gives the same."""

    async def act(spec: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
        return result

    return act


def offer(
    *names: str, origin: str = "inline", label: str = "srv", act: Act = say_name, **spec: Any
) -> Offer:
    """An offer of tools with these names, all alike otherwise."""
    specs = [ToolSpec(name=name, **spec) for name in names]
    return Offer(source=FakeSource(act), specs=specs, origin=origin, label=label)


def call(name: str, arguments: str = "{}", *, id: str = "call_1") -> ToolCall:
    return ToolCall(id, name, arguments)
