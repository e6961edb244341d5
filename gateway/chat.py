"""OpenAI chat completions as a wire over the loop (spec 3.3-3.5)."""

from collections.abc import Iterator, Sequence
from time import time
from typing import Any
from uuid import uuid4

from gateway import sse
from gateway.chat_body import (
    hinted,
    image_messages,
    only_among,
    relaxed,
    tool_message,
    tool_name,
)
from gateway.deltas import Draft, Drafts, Message, a_dict, a_list, spoken, text, together
from gateway.openai import envelope, message_of, usage_of
from gateway.sse import DONE, Event
from gateway.wire import Claims, Tail, UpstreamError, Usage, added
from orazaka.errors import OrazakaError
from tools.base import ToolCall, ToolResult

Json = Any

# Answers that were cut off: their calls may be half a call, so none of ours is run.
CUT = ("length", "model_length", "max_tokens", "content_filter")
# Text of a message that is shown as it comes; a blank line stands between two rounds of it.
TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
# What every chunk and choice has; members beside these are the provider's own.
CHUNK = ("id", "object", "created", "model", "choices", "usage")
CHOICE = ("index", "delta", "finish_reason", "logprobs")


class Chat:
    """One turn on `/v1/chat/completions`; see `gateway.wire.Wire`."""

    def __init__(
        self,
        body: dict[str, Json],
        *,
        tools: Sequence[Json] = (),
        claims: Claims | None = None,
        hints: str = "",
        images: bool = False,
    ) -> None:
        self.stream = bool(body.get("stream"))
        self.body = dict(body)
        self.usage: Json = None
        self._round_usage: Json = None
        self.tail = Tail()
        self._base = hinted(body["messages"], hints)
        self.body["messages"] = self._base
        self._own_tools = list(body.get("tools") or [])
        self._claims, self._images = claims, images
        self._texts: dict[str, list[str | list[Json]]] = {}  # of a plain reply: by member and round
        self._earlier: set[str] = set()  # members that the client has text of, from earlier rounds
        self._begun: set[str] = set()  # the same of this round
        self._head: dict[str, Json] = {}
        self._carried: dict[str, Json] = {}  # the provider's own members of chunks not shown
        self._role_shown, self._shown_calls = False, 0
        if tools:
            self.body["tools"] = [*self._own_tools, *tools]
        self._asked_usage = False
        if self.stream:
            options = body.get("stream_options") or {}
            self._asked_usage = options.get("include_usage") is True
            self.body["stream_options"] = {**options, "include_usage": True}
        self._structured = (body.get("response_format") or {}).get("type") in (
            "json_schema",
            "json_object",
        )
        # Several answers at once are the provider's alone: their chunks pass as they are.
        self._answers = max(1, body.get("n") or 1) if claims is None else 1

    # --- one model call

    def start(self, *, last: bool) -> None:
        self._drafts, self._decided = Drafts(self._known), 0
        self._message = Message()
        self._finish: Event | None = None
        self._finished: set[str] = set()  # the indexes of several answers
        self._whole: Event | None = None
        self._round_usage = None
        self._done = False
        self._held: list[Event] = []
        self._earlier |= self._begun
        self._begun = set()
        only_theirs = last and self.tail.hidden
        # Only the last round's text counts when the client parses it, and which is last is known
        # at its end.
        self._holds = self._structured and self._claims is not None and not only_theirs
        if self.tail.hidden and "tool_choice" in self.body:  # a forced one is for the first round
            self.body["tool_choice"] = relaxed(self.body["tool_choice"])
        if only_theirs:
            self._offer_only_theirs()

    def _offer_only_theirs(self) -> None:
        if not self._own_tools:
            self.body["tool_choice"] = "none"
            return
        self.body["tools"] = self._own_tools
        if "tool_choice" in self.body:
            names = {tool_name(tool) for tool in self._own_tools}
            self.body["tool_choice"] = only_among(self.body["tool_choice"], names)

    def feed(self, event: Event) -> Iterator[Event]:
        if event is DONE:
            self._done = True
        elif event.get("error"):
            raise UpstreamError(message_of(event))
        elif not self.stream:
            self._whole, self._round_usage = event, event.get("usage")
        else:
            yield from self._chunk(event)

    def _chunk(self, event: Event) -> Iterator[Event]:
        usage = event.get("usage")
        if usage:
            self._round_usage = usage
        if "usage" in event:
            event["usage"] = None
            if not self._asked_usage:
                del event["usage"]
        event["choices"] = choices = a_list(event.get("choices"))
        if choices or event.get("id") or self._head:  # some first chunks have neither
            self._identify(event)
        if not choices:
            if usage:
                self._carried |= _extras(event)
            else:
                yield event
        elif self._answers > 1:
            ended = [c for c in map(a_dict, choices) if text(c.get("finish_reason"))]
            self._finished |= {str(choice.get("index")) for choice in ended}
            yield event
        else:
            yield from self._delta(event, a_dict(choices[0]))

    def _identify(self, event: Event) -> None:
        """One id, time and model for the whole stream: those of the first chunk."""
        if not self._head:
            self._head = {
                "id": event.get("id") or f"chatcmpl-{uuid4().hex}",
                "object": "chat.completion.chunk",
                "created": event.get("created") or int(time()),
                "model": event.get("model") or self.body.get("model"),
            }
        event.update(self._head)

    def _delta(self, event: Event, choice: dict[str, Json]) -> Iterator[Event]:
        """Fold a delta, and show of it what the client may see."""
        # Asked for a stream, some providers answer whole.
        delta = a_dict(choice.pop("message", None) or choice.get("delta") or {})
        fragments = a_list(delta.pop("tool_calls", None))
        self._message.add(delta)
        delta.pop("role", None)
        for key in TEXTS:
            if key in delta and isinstance(piece := spoken(delta[key]), str) and piece:
                delta[key] = self._separated(key, piece)
        if fragments and (visible := self._visible(fragments)):
            delta["tool_calls"] = visible
        if fragments and self._claims is not None:
            choice.pop("logprobs", None)  # they would tell our calls
        ends = text(choice.get("finish_reason"))
        choice["index"], choice["delta"], choice["finish_reason"] = 0, delta, None
        seen = any(delta.values()) or bool(choice.get("logprobs"))
        if ends and (self._finish is None or ends != "stop"):
            self._finish = {**event, "choices": [_closing(choice, ends, again=seen)]}
        bare = not (fragments or ends)
        if seen or (bare and any(_extras(choice).values())):
            event["choices"] = [choice]
            yield from self._show(event)
        else:
            self._carried |= _extras(event)

    def _separated(self, key: str, piece: str) -> str:
        """The piece, after a blank line where a later round goes on with earlier text."""
        if self._holds or key in self._begun:
            return piece
        self._begun.add(key)
        return "\n\n" + piece if key in self._earlier else piece

    def _visible(self, fragments: list[Json]) -> list[Json]:
        """Of tool call fragments those of the client's own calls, under gapless indexes."""
        visible = []
        for fragment in fragments:
            draft = self._drafts.add(fragment)
            if draft.shown is not None:
                visible.append(draft.later(fragment))
        return visible + self._released()

    def _released(self, *, over: bool = False) -> list[Json]:
        """The client's own calls that it may get from now on, as far as they have come.

        In order of arrival, so that a plain reply has the same order: a call whose name may not be
        whole yet holds back those after it.
        """
        released: list[Json] = []
        for draft in self._drafts.all[self._decided :]:
            if not (draft.complete or over):
                break
            self._decided += 1
            if not self._ours(draft):
                draft.shown, self._shown_calls = self._shown_calls, self._shown_calls + 1
                released.append({"index": draft.shown, **draft.message()})
        return released

    def _show(self, event: Event) -> Iterator[Event]:
        choice = event["choices"][0]
        if not self._role_shown:
            self._role_shown = True
            if self._holds:
                yield self._made({"role": "assistant"})
            else:
                choice["delta"] = {"role": "assistant", **choice["delta"]}
        if self._carried:
            event, self._carried = {**self._carried, **event}, {}
        if self._holds:
            self._held.append(event)
        else:
            yield event

    # --- after a model call

    def calls(self) -> tuple[list[ToolCall], list[ToolCall]]:
        if self.stream:
            self._check_end()
        else:
            self._take_whole()
        self.usage, self._round_usage = added(self.usage, self._round_usage), None
        drafts = self._drafts.all
        theirs = [d.call() for d in drafts if not self._ours(d)]
        return [d.call() for d in drafts if self._ours(d) and not self._cut], theirs

    def _check_end(self) -> None:
        over = self._done or self._finish is not None or len(self._finished) == self._answers
        said = self._finish or self._finished or self._drafts.all or self._message.pieces
        if not over or not said:
            raise UpstreamError("the provider's stream ended before its answer did")

    def _take_whole(self) -> None:
        if self._whole is None:
            raise UpstreamError("the provider gave an empty answer")
        choices = a_list(self._whole.get("choices"))
        if not choices:
            raise UpstreamError("the provider gave an answer without choices")
        choice = a_dict(choices[0])
        text(choice.get("finish_reason"))
        message = dict(a_dict(choice.get("message")))
        for at, call in enumerate(a_list(message.pop("tool_calls", None))):
            self._drafts.add({**a_dict(call), "index": at})
        self._message = Message(members=message)
        for key in TEXTS:
            if said := spoken(message.get(key)):
                self._texts.setdefault(key, []).append(said)

    @property
    def _cut(self) -> bool:
        """Whether the answer was cut off: then none of our calls is run."""
        source = self._finish if self.stream else self._whole
        return source is not None and source["choices"][0].get("finish_reason") in CUT

    def extend(self, results: Sequence[tuple[ToolCall, ToolResult]]) -> None:
        tail = self.tail
        tail.hidden = tail.hidden or bool(results)
        answers = [tool_message(call, given, images=self._images) for call, given in results]
        tail.messages += [*tail.after, self._answer(), *answers]
        tail.after = image_messages(results) if self._images else []
        self.body["messages"] = [*self._base, *tail.messages, *tail.after]

    def _answer(self) -> dict[str, Json]:
        """The model's answer as the next request's history needs it: whole, without empty members
        (providers refuse some of the nulls that they send), and without calls that have no result
        for the answer was cut off."""
        whole = self._message.whole()
        kept = {k: v for k, v in whole.items() if v not in (None, [])}
        content = whole.get("content") or None
        calls = [d.message() for d in self._drafts.all if not (self._cut and self._ours(d))]
        answer = {**kept, "role": "assistant", "content": content}
        return {**answer, "tool_calls": calls} if calls else answer

    def ending(self) -> Iterator[Event]:
        if not self.stream:
            yield self._reply()
            return
        self._identify({})
        yield from self._held
        if self._answers == 1:
            yield from self._closing_chunks()
        if self._asked_usage and self.usage is not None:
            yield {**self._carried, **self._head, "choices": [], "usage": self.usage}
        yield DONE

    def _closing_chunks(self) -> Iterator[Event]:
        """Calls that came without arguments, so could not be told apart before; the finish."""
        if late := self._released(over=True):
            role = {} if self._role_shown else {"role": "assistant"}
            self._role_shown = True
            yield self._made({**role, "tool_calls": late})
        if not self._role_shown:
            yield self._made({"role": "assistant", "content": ""})
        if self._finish is not None:
            yield {**self._carried, **self._finish, **self._head}
        else:
            yield self._made({}, finish="tool_calls" if self._shown_calls else "stop")

    def _made(self, delta: dict[str, Json], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**self._head, "choices": [choice]}

    def _reply(self) -> Event:
        assert self._whole is not None
        if self._claims is None:
            return self._whole
        message = self._message.whole()
        if not self._structured:
            message |= {key: together(said) for key, said in self._texts.items()}
        if theirs := [d.message() for d in self._drafts.all if not self._ours(d)]:
            message["tool_calls"] = theirs
        choice = {**self._whole["choices"][0], "message": message}
        if "logprobs" in choice and any(map(self._ours, self._drafts.all)):
            choice["logprobs"] = None  # they would tell our calls
        whole = {**self._whole, "choices": [choice]}
        return whole if self.usage is None else {**whole, "usage": self.usage}

    # --- whose call

    def _ours(self, draft: Draft) -> bool:
        return self._claims is not None and not draft.custom and self._claims(draft.name)

    def _known(self, name: str) -> bool:
        return any(tool_name(tool) == name for tool in self.body.get("tools") or [])

    # --- words

    @staticmethod
    def error(error: OrazakaError, *, usage: Json = None) -> Event:
        return envelope(error, usage=usage)

    @staticmethod
    def encode(event: Event) -> bytes:
        return sse.encode(event)

    def totals(self) -> Usage:
        return usage_of(added(self.usage, self._round_usage))


def _extras(event: dict[str, Json]) -> dict[str, Json]:
    """The members of a chunk, or of one of its choices, that only its provider knows."""
    return {k: v for k, v in event.items() if k not in (*CHUNK, *CHOICE)}


def _closing(choice: dict[str, Json], reason: str, *, again: bool) -> dict[str, Json]:
    """The choice of the finish chunk. What is shown before it must not come a second time."""
    closing = {**choice, "delta": {}, "finish_reason": reason}
    return {**closing, "logprobs": None} if again and "logprobs" in closing else closing
