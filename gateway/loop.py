"""The tool loop, once, for plain and streamed turns of every wire (design, decision 1)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

from gateway.sse import Event
from gateway.wire import Tail, UpstreamError, Wire
from orazaka.errors import OrazakaError
from tools.base import ToolCall, ToolResult

Upstream = Callable[[dict[str, object]], AsyncIterator[list[Event]]]
Tools = Callable[[Sequence[ToolCall]], Awaitable[Sequence[ToolResult]]]
Keep = Callable[[Tail, Sequence[ToolCall]], Awaitable[None]]


class TooManyRounds(OrazakaError):
    """The model asked for our tools on the last model call that the turn may make."""

    status = 422
    code = "max_tool_iterations"


async def run(
    wire: Wire, upstream: Upstream, tools: Tools, *, limit: int, keep: Keep
) -> AsyncIterator[list[Event]]:
    """What the client may see, as it comes. `limit` is the most model calls (spec 3.4).

    `keep` stores what a turn that ends in the client's own calls has appended, before it ends.
    Raises what the upstream raises, and TooManyRounds.
    """
    for left in range(limit - 1, -1, -1):
        wire.start(last=left == 0)
        async with aclosing(upstream(wire.body)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                seen, failure = _shown(wire, batch)
                if seen:
                    yield seen
                if failure:
                    raise failure
        ours, theirs = wire.calls()
        if ours and left == 0:
            raise TooManyRounds(
                f"the model still asked for tools after {limit} calls (max_tool_iterations)"
            )
        if ours or (theirs and wire.tail.hidden):
            wire.extend(list(zip(ours, await tools(ours), strict=True)))
        if theirs or not ours:
            if theirs and wire.tail.hidden:
                await keep(wire.tail, theirs)
            yield list(wire.ending())
            return


def _shown(wire: Wire, batch: Sequence[Event]) -> tuple[list[Event], UpstreamError | None]:
    """What the client may see of a batch; an event that ends the turn, and what came before it."""
    seen: list[Event] = []
    try:
        for event in batch:
            seen += wire.feed(event)
    except UpstreamError as error:
        return seen, error
    return seen, None
