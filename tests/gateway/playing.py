"""A turn of the chat wire without a network: scripted answers in, what the client gets out."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway import loop
from gateway.chat import Chat
from gateway.sse import DONE, Event
from gateway.wire import Tail
from orazaka.errors import OrazakaError
from tools.base import ToolCall, ToolResult

Json = Any
ASKED = [{"role": "user", "content": "What is the answer?"}]
FRAME = {"object": "chat.completion.chunk", "created": 1_790_000_000, "model": "model-1"}


@dataclass
class Played:
    """What came of a turn. `bodies` are those of the model calls, as they were then."""

    wire: Chat
    bodies: list[Json] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    ran: list[ToolCall] = field(default_factory=list)
    kept: list[tuple[Tail, Sequence[ToolCall]]] = field(default_factory=list)
    error: OrazakaError | None = None

    @property
    def raw(self) -> bytes:
        shown = self.events + ([self.wire.error(self.error)] if self.error else [])
        return b"".join(map(self.wire.encode, shown))

    @property
    def reply(self) -> Json:
        """A plain turn's only event."""
        assert self.error is None, self.error
        (reply,) = self.events
        return reply

    @property
    def message(self) -> Json:
        return self.reply["choices"][0]["message"]

    @property
    def appended(self) -> Json:
        """What the last model call holds after the client's own messages."""
        return self.bodies[-1]["messages"][len(self.bodies[0]["messages"]) :]


async def play(
    body: Json,
    rounds: Iterable[Iterable[Event]],
    *,
    owned: Collection[str] = ("lookup", "search"),
    results: Callable[[ToolCall], ToolResult] = lambda call: ToolResult(f"<{call.id}>"),
    limit: int = 10,
    **more: Any,
) -> Played:
    """Run a turn over rounds of upstream events. `owned` are our tools; empty: none of ours."""
    body = {"model": "model-1", "messages": ASKED, **body}
    theirs = {tool_name(tool) for tool in body.get("tools") or []}
    claims = (lambda name: name not in theirs) if owned else None
    wire = Chat(body, tools=[tool(name) for name in owned], claims=claims, **more)
    played, answers = Played(wire), iter(rounds)

    async def upstream(sent):
        played.bodies.append(dict(sent))
        for event in next(answers):
            yield [event]

    async def run(calls):
        played.ran += calls
        return [results(call) for call in calls]

    async def keep(tail, calls):
        played.kept.append((tail, calls))

    try:
        async for batch in loop.run(wire, upstream, run, limit=limit, keep=keep):
            played.events += batch
    except OrazakaError as error:
        played.error = error
    return played


def tool(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def tool_name(entry: Json) -> Json:
    return (entry.get("function") or entry.get("custom"))["name"]


def call(id: str, name: str, arguments: str = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(
    content: Json = None, *calls: Json, finish: str = "", usage: Json = None, **message: Json
) -> list[Event]:
    """A plain answer, as the one event of its round."""
    said = {"role": "assistant", "content": content, **message}
    if calls:
        said["tool_calls"] = list(calls)
    ends = finish or ("tool_calls" if calls else "stop")
    answer = {**FRAME, "id": "chatcmpl-1", "object": "chat.completion"}
    answer["choices"] = [{"index": 0, "message": said, "logprobs": None, "finish_reason": ends}]
    return [answer if usage is None else {**answer, "usage": usage}]


def chunk(delta: Json = None, finish: str | None = None, *, id="chatcmpl-1", **more: Json) -> Event:
    """One chunk of a stream; without a delta one without choices."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    choices = [] if delta is None else [choice]
    return {"id": id, **FRAME, "choices": choices, **more}


def stream(
    *deltas: Json, finish: str = "stop", usage: Json = None, id: str = "chatcmpl-1"
) -> list[Event]:
    """A streamed answer: the role, the deltas, the finish, the usage, `[DONE]`."""
    events = [chunk({"role": "assistant", "content": ""}, id=id)]
    events += [chunk(delta, id=id) for delta in deltas]
    events.append(chunk({}, finish, id=id))
    if usage is not None:
        events.append(chunk(usage=usage, id=id))
    return [*events, DONE]


def calls(*given: Json) -> Json:
    """A delta with whole calls."""
    return {"tool_calls": [{"index": at, **one} for at, one in enumerate(given)]}
