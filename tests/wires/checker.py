"""What a client must get on `/v1/chat/completions` (spec 3.5), as code: a sentence for each fault.

    checker = StreamChecker(hidden={"lookup"}, include_usage=True)
    checker.feed(raw)          # any cut of the bytes
    reply = checker.close()    # .text .calls .finish_reason .usage .error .trace

A fault is an AssertionError. An error event ends a stream: nothing follows it, not even `[DONE]`,
which would say that the reply is complete. Comments (a sign of life, `: trace {json}`) may stand
between any two events before the end.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
ENVELOPE = {"message", "type", "param", "code"}


@dataclass
class Call:
    """A tool call that the client is asked to make."""

    id: str
    name: str
    arguments: str


@dataclass
class Choice:
    """One of the reply's choices, put together."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[Call] = field(default_factory=list)
    finish_reason: str | None = None
    role: str | None = None


@dataclass
class Reply:
    """What a client makes of a reply, plain or streamed. `text` and such are the first choice's."""

    id: str = ""
    created: int = 0
    model: str = ""
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Json = None
    error: Json = None
    trace: list[Json] = field(default_factory=list)

    @property
    def _first(self) -> Choice:
        return self.choices.get(0) or Choice()

    @property
    def text(self) -> str:
        return self._first.text

    @property
    def reasoning(self) -> str:
        return self._first.reasoning

    @property
    def refusal(self) -> str:
        return self._first.refusal

    @property
    def calls(self) -> list[Call]:
        return self._first.calls

    @property
    def finish_reason(self) -> str | None:
        return self._first.finish_reason


def need(holds: object, fault: str, shown: Json = "") -> None:
    """Raises AssertionError with this sentence, and what it is about, unless it holds."""
    if not holds:
        about = shown.decode(errors="replace") if isinstance(shown, bytes) else str(shown)
        raise AssertionError(f"{fault}: {about[:500]}" if about else fault)


class SseReader:
    """Bytes to blocks: `feed` gives a comment's text as str, an event's data as bytes.

    Of an event only one `data:` line is taken: this is our own output, which needs no other form.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, raw: bytes) -> Iterator[str | bytes]:
        *blocks, self._rest = (self._rest + raw).split(b"\n\n")
        for block in blocks:
            if block.startswith(b":"):
                for line in block.split(b"\n"):
                    need(line.startswith(b":"), "a comment and a field in one block", block)
                    yield line[1:].strip().decode()
            else:
                need(block.startswith(b"data: "), "an event that is not one data line", block)
                need(b"\n" not in block and b"\r" not in block, "an event of several lines", block)
                yield block[6:]

    def close(self) -> None:
        need(not self._rest, "the stream ends within an event", self._rest)


class StreamChecker:
    """Reads a chat stream and raises at the first fault.

    `hidden`: names of tools that the client must never see, not even in part; `callers`: names of
    its own tools. `include_usage`: whether it asked for usage. `n`: the choices it asked for.
    """

    def __init__(
        self,
        *,
        hidden: Collection[str] = (),
        callers: Collection[str] = (),
        include_usage: bool = False,
        n: int = 1,
    ) -> None:
        self.reply = Reply()
        self._hidden, self._callers = frozenset(hidden), frozenset(callers)
        self._include_usage, self._n = include_usage, n
        self._reader = SseReader()
        self._done = False

    @property
    def over(self) -> bool:
        """Whether the last event has come."""
        return self._done or self.reply.error is not None

    def feed(self, raw: bytes) -> None:
        """Take some of the stream's bytes, cut anywhere."""
        for block in self._reader.feed(raw):
            need(not self.over, "something follows the end of the stream", block)
            if isinstance(block, str):
                self._comment(block)
            elif block == b"[DONE]":
                self._end()
            else:
                self._event(block)

    def close(self) -> Reply:
        """The reply, once the stream has ended."""
        self._reader.close()
        need(self.over, "the stream has no end: neither [DONE] nor an error")
        return self.reply

    def _comment(self, text: str) -> None:
        if text.startswith("trace "):
            self.reply.trace.append(_parsed(text.removeprefix("trace ").encode()))

    def _event(self, data: bytes) -> None:
        for name in self._hidden:
            need(name.encode() not in data, f"the client sees our tool {name}", data)
        event = _parsed(data)
        need(isinstance(event, dict), "an event that is not an object", data)
        if "error" in event:
            self.reply.error = _checked_error(event)
            return
        need(event.get("object") == "chat.completion.chunk", "an event that is not a chunk", data)
        self._same(event)
        need(isinstance(event.get("choices"), list), "a chunk without a list of choices", data)
        need(self.reply.usage is None, "a chunk follows the usage", data)
        for choice in event["choices"]:
            self._choice(choice)
        self._usage(event)

    def _same(self, event: Json) -> None:
        """One id, one time, one model. Azure's first chunk has none of them and no choices."""
        if event.get("id") == "" and not event.get("choices"):
            return
        for name, kind in (("id", str), ("created", int), ("model", str)):
            value = event.get(name)
            need(isinstance(value, kind) and value != "", f"a chunk without {name}", event)
            known = getattr(self.reply, name) or value
            need(value == known, f"a second {name}, {value!r} after {known!r}")
            setattr(self.reply, name, value)

    def _usage(self, event: Json) -> None:
        usage = event.get("usage")
        if usage is None:
            return
        need(self._include_usage, "usage that was not asked for", event)
        need(isinstance(usage, dict), "usage that is not an object", event)
        need(not event["choices"], "usage in a chunk with choices", event)
        need(self._finished(), "usage before the end of every choice", event)
        self.reply.usage = usage

    def _finished(self) -> bool:
        chosen = self.reply.choices
        ended = all(choice.finish_reason is not None for choice in chosen.values())
        return ended and set(chosen) == set(range(self._n))

    def _end(self) -> None:
        need(self._finished(), "[DONE] before every choice has its finish_reason")
        for choice in self.reply.choices.values():
            _check_calls(choice.calls, hidden=self._hidden, callers=self._callers)
        self._done = True

    def _choice(self, chunk: Json) -> None:
        need(isinstance(chunk, dict), "a choice that is not an object", chunk)
        index, delta = chunk.get("index"), chunk.get("delta")
        need(index in range(self._n), f"no choice {index!r} was asked for", chunk)
        need(isinstance(delta, dict), "a choice without a delta", chunk)
        choice = self.reply.choices.setdefault(index, Choice())
        need(choice.finish_reason is None, "a delta after the finish_reason", chunk)
        self._delta(choice, delta)
        need("finish_reason" in chunk, "a choice without finish_reason, not even null", chunk)
        choice.finish_reason = chunk["finish_reason"]
        ended = choice.finish_reason
        need(ended is None or (isinstance(ended, str) and ended), "no finish_reason", chunk)

    def _delta(self, choice: Choice, delta: Json) -> None:
        if "role" in delta:
            need(choice.role is None, "a second role delta", delta)
            need(delta["role"] == "assistant", "a role that is not the assistant's", delta)
            choice.role = "assistant"
        need(choice.role, "a delta before the role", delta)
        choice.text += _text(delta, "content")
        choice.refusal += _text(delta, "refusal")
        choice.reasoning += _text(delta, "reasoning_content") or _text(delta, "reasoning")
        for fragment in delta.get("tool_calls") or []:
            self._fragment(choice.calls, fragment)

    def _fragment(self, calls: list[Call], fragment: Json) -> None:
        index, function = fragment.get("index"), fragment.get("function") or {}
        need(isinstance(index, int), "a tool call delta without index", fragment)
        if index < len(calls):
            need(not function.get("name"), "a call's name a second time", fragment)
            same = fragment.get("id") in (None, "", calls[index].id)
            need(same, "a call's id changes", fragment)
            calls[index].arguments += _text(function, "arguments")
            return
        need(index == len(calls), f"tool index {index} where {len(calls)} is next", fragment)
        need(fragment.get("id") and isinstance(fragment["id"], str), "a call without id", fragment)
        need(fragment.get("type") == "function", "a call without its type", fragment)
        need(isinstance(function.get("name"), str), "a call without its name", fragment)
        call = Call(fragment["id"], function["name"], _text(function, "arguments"))
        _check_calls([call], hidden=self._hidden, callers=self._callers)
        calls.append(call)


def check_stream(raw: bytes, **expected: Any) -> Reply:
    """A whole stream at once; `expected` as StreamChecker takes it."""
    checker = StreamChecker(**expected)
    checker.feed(raw)
    return checker.close()


def check_plain(
    body: bytes | Json,
    *,
    hidden: Collection[str] = (),
    callers: Collection[str] = (),
    n: int = 1,
) -> Reply:
    """The reply of a plain call, or its error: the same rules where they have a meaning."""
    whole = _parsed(body) if isinstance(body, bytes) else body
    need(isinstance(whole, dict), "a reply that is not an object", whole)
    visible = json.dumps({name: value for name, value in whole.items() if name != "orazaka"})
    for name in hidden:
        need(name not in visible, f"the client sees our tool {name}", visible)
    if "error" in whole:
        return Reply(error=_checked_error(whole))
    need(whole.get("object") == "chat.completion", "a reply that is not a completion", whole)
    for name in ("id", "created", "model", "choices"):
        need(whole.get(name), f"a reply without {name}", whole)
    choices = {choice.get("index"): _plain_choice(choice) for choice in whole["choices"]}
    need(list(choices) == list(range(n)), f"{n} choices were asked for", sorted(map(str, choices)))
    for choice in choices.values():
        _check_calls(choice.calls, hidden=hidden, callers=callers)
    reply = Reply(whole["id"], whole["created"], whole["model"], choices, whole.get("usage"))
    if "orazaka" in whole:
        need(list(whole)[-1] == "orazaka", "the trace is not the last member", list(whole))
        reply.trace = whole["orazaka"]["trace"]
    return reply


def _plain_choice(whole: Json) -> Choice:
    message, finish = whole.get("message"), whole.get("finish_reason")
    need(isinstance(message, dict), "a choice without a message", whole)
    need(message.get("role") == "assistant", "a role that is not the assistant's", message)
    need(finish and isinstance(finish, str), "a choice without finish_reason", whole)
    need("content" in message, "a message without content, not even null", message)
    need(message.get("tool_calls") != [], "an empty list of tool calls", message)
    calls = []
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        need(call.get("type") == "function", "a call without its type", call)
        parts = [call.get("id"), function.get("name"), function.get("arguments")]
        need(all(isinstance(part, str) for part in parts), "an incomplete call", call)
        calls.append(Call(*parts))
    reasoning = _text(message, "reasoning_content") or _text(message, "reasoning")
    texts = (_text(message, "content"), reasoning, _text(message, "refusal"))
    return Choice(*texts, calls=calls, finish_reason=finish, role="assistant")


def _check_calls(calls: list[Call], *, hidden: Collection[str], callers: Collection[str]) -> None:
    need(len({call.id for call in calls}) == len(calls), "two calls with one id", calls)
    for call in calls:
        need(call.name, "a call without its name", call)
        ours = [name for name in hidden if name.startswith(call.name)]
        need(call.name in callers or not ours, f"the client sees our tool {ours}", call)


def _checked_error(event: Json) -> Json:
    error = event["error"]
    need(isinstance(error, dict), "an error that is not an object", event)
    need(error.keys() >= ENVELOPE, f"an error without {ENVELOPE - error.keys()}", event)
    for name in ("message", "type"):
        need(error[name] and isinstance(error[name], str), f"an error without {name}", event)
    return error


def _text(fields: Mapping[str, Json], name: str) -> str:
    value = fields.get(name)
    need(value is None or isinstance(value, str), f"{name} that is not text", fields)
    return value or ""


def _parsed(data: bytes) -> Json:
    try:
        return json.loads(data)
    except ValueError:
        raise AssertionError(f"not JSON: {data[:500]!r}") from None
