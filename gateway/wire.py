"""What every wire is to the loop, and how usage adds up.

A wire holds one turn's conversation in its API's own JSON. Per model call the loop asks it to
`start`, feeds it the events (a whole answer is one event), asks for the `calls`, and lets it
`extend` the conversation by their results; `ending` gives what closes the reply.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.sse import Event
from orazaka.errors import OrazakaError
from tools.base import ToolCall, ToolResult

Json = Any


class UpstreamError(OrazakaError):
    """The provider failed, or answered what its API does not allow."""

    status = 502
    code = "upstream_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a turn, all rounds summed, in one vocabulary for records and metrics.

    `prompt` includes what was read from (`cached`) and written to (`cache_write`) the provider's
    prompt cache; `completion` includes `reasoning`.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def since(self, before: "Usage") -> dict[str, int]:
        """What was used after `before`, without what is 0."""
        pairs = ((name, getattr(self, name) - getattr(before, name)) for name in self.__slots__)
        return {name: number for name, number in pairs if number}


@dataclass(slots=True)
class Tail:
    """What a turn appended after the client's last message: the client never saw most of it.

    `messages` ends with the model's last answer and our results; the client's own results follow,
    then `after` (images of our results, which must not stand between the results of one answer).
    """

    messages: list[Json] = field(default_factory=list)
    after: list[Json] = field(default_factory=list)
    hidden: bool = False


class Wire(Protocol):
    """One turn on one API, made from the client's body without the gateway's own members.

    `tools` are our definitions, `claims` says whether a called name is ours to run (None: no tools
    of ours, answers pass). `hints` goes before the conversation's system text. `images` is whether
    the model takes images.
    """

    def __init__(
        self,
        body: dict[str, Json],
        *,
        tools: Sequence[Json] = (),
        claims: "Claims | None" = None,
        hints: str = "",
        images: bool = False,
    ) -> None: ...

    body: dict[str, Json]
    usage: Json
    tail: Tail
    stream: bool

    def start(self, *, last: bool) -> None:
        """Begin a model call; on the last permitted one no tool of ours may be asked for."""
        ...

    def feed(self, event: Event) -> Iterable[Event]:
        """Take an upstream event; what the client may see of it. Raises UpstreamError."""
        ...

    def calls(self) -> tuple[Sequence[ToolCall], Sequence[ToolCall]]:
        """The calls of the round that is over: ours to run, and the client's own."""
        ...

    def extend(self, results: Sequence[tuple[ToolCall, ToolResult]]) -> None:
        """Append the model's answer whole, and our results."""
        ...

    def ending(self) -> Iterable[Event]:
        """What closes the reply; for a plain call the reply itself."""
        ...

    @staticmethod
    def error(error: OrazakaError, *, usage: Json = None) -> Event:
        """An error in this API's own words, with what had been used by then."""
        ...

    @staticmethod
    def encode(event: Event) -> bytes:
        """A visible event as it goes over the wire of a stream."""
        ...

    def totals(self) -> Usage:
        """The usage so far, that of the running model call included as far as it is known."""
        ...


Claims = Callable[[str], bool]


def added(left: Json, right: Json) -> Json:
    """Two usage objects as one: numbers add up, objects merge, of the rest the later one counts."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: added(left.get(key), right.get(key)) for key in left | right}
    if _number(left) and _number(right):
        total = left + right
        return total if abs(total) < 2**63 else float(total)  # JSON's writer takes no more
    return left if right is None else right


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
