"""`demo:demo`: a built-in model for machines without a key. Small, deterministic, plainly not
intelligent: it calls the tools that a user's words ask for, so that the whole path runs offline.

A message may hold lines `CALL tool {json}` (several = parallel calls), `THEN` (what follows is the
next round) and `SAY text`; or it just names a tool in plain words, and the rest is taken for its
arguments where that can be. After its calls it tells what they gave.
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.sse import DONE, Event

Json = Any

LINE = re.compile(r"^\s*(CALL|THEN|SAY)\b[ \t]*(.*)$")


@dataclass(slots=True)
class Round:
    """What the model does in one answer."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


async def answer(body: Json) -> AsyncIterator[list[Event]]:
    """The answer to a chat completion's body: one event, or chunks when it asks for a stream."""
    if body.get("stream"):
        yield [*_chunks(body), DONE]
    else:
        yield [_whole(body)]


def reply(body: Json) -> tuple[str, list[Json]]:
    """The words and the calls of the next answer in the conversation."""
    messages = body["messages"]
    at = max((i for i, m in enumerate(messages) if _asks(m)), default=-1)
    after = messages[at + 1 :]
    rounds = _rounds(_text(messages[at]) if at >= 0 else "", _tools(body))
    played = sum(1 for m in after if m.get("role") == "assistant" and m.get("tool_calls"))
    results = [_text(m) for m in after if m.get("role") == "tool"]
    if played < len(rounds) and body.get("tool_choice") != "none":
        now = rounds[played]
        calls = [_call(f"call_demo_{len(messages)}_{n}", *c) for n, c in enumerate(now.calls)]
        if calls or played + 1 == len(rounds):
            return "\n".join(now.words), calls
    return _told(results), []


def _told(results: list[str]) -> str:
    if not results:
        return (
            "I am the demo model: I can only call tools. Name one of the tools that you attached, "
            "or write a line such as: CALL tool {}"
        )
    return "The tools answered:\n" + "\n".join(f"- {text}" for text in results)


def _asks(message: Json) -> bool:
    # Images of tool results come as a user message too; they ask for nothing.
    content = message.get("content")
    images = isinstance(content, list) and any(p.get("type") == "image_url" for p in content)
    return message.get("role") == "user" and not images


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(p.get("text", "")) for p in content if p.get("type") == "text")
    return content if isinstance(content, str) else ""


def _tools(body: Json) -> dict[str, Json]:
    given = [tool.get("function") or {} for tool in body.get("tools") or []]
    return {tool["name"]: tool for tool in given if isinstance(tool.get("name"), str)}


def _rounds(words: str, tools: dict[str, Json]) -> list[Round]:
    rounds = [Round()]
    script = False
    for line in words.splitlines():
        if not (found := LINE.match(line)):
            continue
        script, (word, rest) = True, found.groups()
        if word == "THEN":
            rounds.append(Round())
        elif word == "SAY":
            rounds[-1].words.append(rest)
        else:
            name, _, arguments = rest.partition(" ")
            rounds[-1].calls.append((name, arguments.strip() or "{}"))
    if script:
        return rounds
    named = [name for name in tools if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    calls = [(name, orjson.dumps(_guess(words, name, tools[name])).decode()) for name in named]
    return [Round(calls=calls)] if calls else []


def _guess(words: str, name: str, tool: Json) -> dict[str, Json]:
    """Arguments from plain words: `{json}` if there is one, else numbers and the rest by type."""
    if found := re.search(r"\{.*\}", words, re.DOTALL):
        try:
            return dict(orjson.loads(found[0]))
        except (ValueError, TypeError):
            pass
    rest = words.split(name, 1)[1].strip(" :,.?!\n")
    numbers = iter(re.findall(r"-?\d+(?:\.\d+)?", rest))
    arguments: dict[str, Json] = {}
    properties = (tool.get("parameters") or {}).get("properties") or {}
    for key, schema in properties.items():
        kind = schema.get("type") if isinstance(schema, dict) else None
        if kind in ("integer", "number") and (number := next(numbers, None)):
            arguments[key] = orjson.loads(number)
        elif kind == "string" and rest:
            arguments[key], rest = rest, ""
    return arguments


def _call(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _head(body: Json, kind: str) -> Event:
    return {
        "id": f"chatcmpl-demo-{len(body['messages'])}",
        "object": kind,
        "created": 0,
        "model": "demo",
    }


def _usage(body: Json, text: str, calls: list[Json]) -> Json:
    """Words count as tokens: enough for sums to be checked."""
    prompt = sum(len(_text(m).split()) for m in body["messages"])
    completion = len(text.split()) + len(calls)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _whole(body: Json) -> Event:
    text, calls = reply(body)
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    return {
        **_head(body, "chat.completion"),
        "choices": [choice],
        "usage": _usage(body, text, calls),
    }


def _chunks(body: Json) -> Iterator[Event]:
    text, calls = reply(body)
    head = _head(body, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in re.findall(r"\S+\s*", text):
        yield chunk({"content": piece})
    for at, call in enumerate(calls):
        yield chunk({"tool_calls": [{"index": at, **call}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    yield {**head, "choices": [], "usage": _usage(body, text, calls)}
