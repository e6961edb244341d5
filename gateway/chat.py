"""OpenAI chat completions as a wire over the loop (spec 3.3-3.5)."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from gateway import sse
from gateway.deltas import Draft, Drafts, Message, a_dict, a_list, text
from gateway.openai import envelope, message_of
from gateway.sse import DONE, Event
from gateway.wire import Claims, Tail, UpstreamError, Usage, added
from tools.base import ToolCall, ToolResult

Json = Any

# Answers that were cut off: their calls may be half a call, so none of ours is run.
CUT = ("length", "content_filter")
# Text of a message that is shown as it comes; a blank line stands between two rounds of it.
TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


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
        self._base = _hinted(body["messages"], hints)
        self.body["messages"] = self._base
        self._own_tools = list(body.get("tools") or [])
        self._claims, self._images = claims, images
        self._texts: dict[str, list[str]] = {}  # of a plain reply: each round's, by member
        self._earlier: set[str] = set()  # members that the client has text of, from earlier rounds
        self._begun: set[str] = set()  # the same of this round
        self._head: dict[str, Json] = {}
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

    # --- one model call

    def start(self, *, last: bool) -> None:
        self._drafts = Drafts(self._known)
        self._message = Message()
        self._finish: Event | None = None
        self._whole: Event | None = None
        self._round_usage: Json = None
        self._done = False
        self._held: list[Event] = []
        self._earlier |= self._begun
        self._begun = set()
        only_theirs = last and self.tail.hidden
        # Only the last round's text counts when the client parses it, and which is last is known
        # at its end.
        self._holds = self._structured and self._claims is not None and not only_theirs
        if self.tail.hidden:
            self._relax_tool_choice()
        if only_theirs and self._own_tools:
            self.body["tools"] = self._own_tools
        elif only_theirs:
            self.body["tool_choice"] = "none"

    def _relax_tool_choice(self) -> None:
        """A forced choice holds for the first round only; its other members stay."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict) and isinstance(inner := choice.get("allowed_tools"), dict):
            self.body["tool_choice"] = {**choice, "allowed_tools": {**inner, "mode": "auto"}}
        elif choice not in (None, "auto", "none"):
            self.body["tool_choice"] = "auto"

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
        self._identify(event)
        usage = event.get("usage")
        if usage:
            self._round_usage = usage
        if "usage" in event:
            event["usage"] = None
            if not self._asked_usage:
                del event["usage"]
        choices = a_list(event.get("choices"))
        if not choices:
            if not usage:
                yield event
            return
        choice = a_dict(choices[0])
        if self._claims is None and choice.get("index"):
            self._done = self._done or bool(choice.get("finish_reason"))
            yield event  # n > 1: the others of several answers
            return
        seen = self._delta(event, choice)
        if choice.get("finish_reason"):
            self._finish = {**event, "choices": [{**choice, "delta": {}}]}
            choice["finish_reason"] = None
        if seen:
            yield from self._show(event, choice)

    def _identify(self, event: Event) -> None:
        """One id, time and model for the whole stream: those of the first chunk."""
        if not self._head:
            self._head = {
                "id": event.get("id") or f"chatcmpl-{uuid4().hex}",
                "object": "chat.completion.chunk",
                "created": event.get("created") or 0,
                "model": event.get("model") or self.body.get("model"),
            }
        event.update(self._head)

    def _delta(self, event: Event, choice: dict[str, Json]) -> bool:
        """Fold a delta, and leave of it what the client may see. Whether anything is left."""
        delta = a_dict(choice.get("delta") or {})
        fragments = a_list(delta.pop("tool_calls", None))
        self._message.add(delta)
        delta.pop("role", None)
        for key in TEXTS:
            if piece := text(delta.get(key)):
                delta[key] = self._separated(key, piece)
        if fragments and (visible := self._visible(fragments)):
            delta["tool_calls"] = visible
        choice["delta"] = delta
        return any(value not in (None, "", []) for value in delta.values()) or bool(
            choice.get("logprobs")
        )

    def _separated(self, key: str, piece: str) -> str:
        """The piece, after a blank line where a later round goes on with earlier text."""
        if (key == "content" and self._holds) or key in self._begun:
            return piece
        self._begun.add(key)
        return "\n\n" + piece if key in self._earlier else piece

    def _visible(self, fragments: list[Json]) -> list[Json]:
        """Of tool call fragments those of the client's own calls, under gapless indexes."""
        visible = []
        for fragment in fragments:
            draft = self._drafts.add(fragment)
            if draft.shown is not None:
                visible.append({**fragment, "index": draft.shown})
                continue
            draft.held.append(fragment)
            # The name is complete when the arguments begin.
            if draft.pieces or draft.custom:
                visible += self._release(draft)
        return visible

    def _release(self, draft: Draft) -> list[Json]:
        if self._ours(draft):
            return []
        draft.shown, self._shown_calls = self._shown_calls, self._shown_calls + 1
        held, draft.held = draft.held, []
        whole = {"index": draft.shown, **draft.message()}
        return [whole] if held else []

    def _show(self, event: Event, choice: dict[str, Json]) -> Iterator[Event]:
        if not self._role_shown:
            self._role_shown = True
            if self._holds:
                yield {**event, "choices": [{**choice, "delta": {"role": "assistant"}}]}
            else:
                choice["delta"] = {"role": "assistant", **choice["delta"]}
        if self._holds:
            self._held.append(event)
        else:
            yield event

    # --- after a model call

    def calls(self) -> tuple[list[ToolCall], list[ToolCall]]:
        if self.stream:
            if self._finish is None and not self._done:
                raise UpstreamError("the provider's stream ended before its answer did")
        else:
            self._take_whole()
        self.usage, self._round_usage = added(self.usage, self._round_usage), None
        drafts = self._drafts.all
        theirs = [_call(d) for d in drafts if not self._ours(d)]
        if self._reason() in CUT or self._claims is None:
            return [], theirs
        return [_call(d) for d in drafts if self._ours(d)], theirs

    def _take_whole(self) -> None:
        if self._whole is None:
            raise UpstreamError("the provider gave an empty answer")
        choices = a_list(self._whole.get("choices"))
        if not choices:
            raise UpstreamError("the provider gave an answer without choices")
        message = dict(a_dict(a_dict(choices[0]).get("message")))
        for at, call in enumerate(a_list(message.pop("tool_calls", None))):
            self._drafts.add({**a_dict(call), "index": at})
        self._message = Message(members=message)
        for key in TEXTS:
            if piece := text(message.get(key)):
                self._texts.setdefault(key, []).append(piece)

    def _reason(self) -> Json:
        source = self._finish if self.stream else self._whole
        return source["choices"][0].get("finish_reason") if source else None

    def extend(self, results: Sequence[tuple[ToolCall, ToolResult]]) -> None:
        tail = self.tail
        tail.hidden = tail.hidden or bool(results)
        tail.messages += [*tail.after, self._answer(), *(_tool_message(c, r) for c, r in results)]
        tail.after = self._image_messages(results)
        self.body["messages"] = [*self._base, *tail.messages, *tail.after]
        self._held = []

    def _answer(self) -> dict[str, Json]:
        """The model's answer as the next request's history needs it: whole, without empty members
        (providers refuse some of the nulls that they send)."""
        kept = {
            k: v for k, v in self._message.whole().items() if v not in (None, []) or k == "content"
        }
        calls = [draft.message() for draft in self._drafts.all]
        return {"content": None, **kept, "role": "assistant"} | (
            {"tool_calls": calls} if calls else {}
        )

    def _image_messages(self, results: Sequence[tuple[ToolCall, ToolResult]]) -> list[Json]:
        """Chat's tool messages hold text only: images follow as the user's (B53)."""
        parts: list[Json] = []
        for call, result in results:
            if result.images and self._images:
                parts.append({"type": "text", "text": f"Images that {call.name} returned:"})
                parts += [
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:{i.media_type};base64,{i.data}"},
                    }
                    for i in result.images
                ]
        return [{"role": "user", "content": parts}] if parts else []

    def ending(self) -> Iterator[Event]:
        if not self.stream:
            yield self._reply()
            return
        self._identify({})
        yield from self._held
        yield from self._late_calls()
        if not self._role_shown:
            yield self._made({"role": "assistant", "content": ""})
        if self._finish is not None:
            self._finish.update(self._head)
            yield self._finish
        elif self._claims is not None or not self._done:
            yield self._made({}, finish="stop")
        if self._asked_usage and self.usage is not None:
            yield {**self._head, "choices": [], "usage": self.usage}
        yield DONE

    def _late_calls(self) -> Iterator[Event]:
        """The client's own calls that came without arguments, so could not be told apart before."""
        late = [part for d in self._drafts.all if d.shown is None for part in self._release(d)]
        if late:
            role = {} if self._role_shown else {"role": "assistant"}
            self._role_shown = True
            yield self._made({**role, "tool_calls": late})

    def _made(self, delta: dict[str, Json], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**self._head, "choices": [choice]}

    def _reply(self) -> Event:
        assert self._whole is not None
        if self._claims is None:
            return self._whole
        first = a_dict(self._whole["choices"][0])
        last = self._message.whole()
        message = {**last, **{key: "\n\n".join(parts) for key, parts in self._texts.items()}}
        if self._structured:
            message["content"] = last.get("content")
        if theirs := [d.message() for d in self._drafts.all if not self._ours(d)]:
            message["tool_calls"] = theirs
        whole = {**self._whole, "choices": [{**first, "message": message}]}
        return whole if self.usage is None else {**whole, "usage": self.usage}

    # --- whose call

    def _ours(self, draft: Draft) -> bool:
        return self._claims is not None and not draft.custom and self._claims(draft.name)

    def _known(self, name: str) -> bool:
        return any(
            (tool.get(kind) or {}).get("name") == name
            for tool in self.body.get("tools") or []
            if isinstance(tool, dict)
            for kind in ("function", "custom")
        )

    # --- words

    error = staticmethod(envelope)
    encode = staticmethod(sse.encode)

    def totals(self) -> Usage:
        return totals(added(self.usage, self._round_usage))


def _hinted(messages: list[Json], hints: str) -> list[Json]:
    """The conversation with the hints before its first system (or developer) text (spec 3.4)."""
    if not hints:
        return messages
    for at, message in enumerate(messages):
        if message["role"] in ("system", "developer"):
            content = message.get("content")
            if isinstance(content, list):
                content = [{"type": "text", "text": hints}, *content]
            else:
                content = f"{hints}\n\n{content}" if content else hints
            return [*messages[:at], {**message, "content": content}, *messages[at + 1 :]]
    return [{"role": "system", "content": hints}, *messages]


def _call(draft: Draft) -> ToolCall:
    return ToolCall(draft.id, draft.name, draft.arguments)


def _tool_message(call: ToolCall, result: ToolResult) -> Json:
    """A result as chat has it: there is no member that marks a failure, so its text says it."""
    content = f"Error: {result.text}" if result.is_error else result.text
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def totals(usage: Json) -> Usage:
    """OpenAI's chat usage in our vocabulary; what is missing or not a number counts as 0."""
    if not isinstance(usage, dict):
        return Usage()
    given = usage.get("prompt_tokens_details")
    prompt: dict[str, Json] = given if isinstance(given, dict) else {}
    given = usage.get("completion_tokens_details")
    completion: dict[str, Json] = given if isinstance(given, dict) else {}
    return Usage(
        prompt=_int(usage.get("prompt_tokens")),
        completion=_int(usage.get("completion_tokens")),
        cached=_int(prompt.get("cached_tokens")),
        cache_write=_int(prompt.get("cache_creation_tokens")),
        reasoning=_int(completion.get("reasoning_tokens")),
    )


def _int(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
