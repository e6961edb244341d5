"""`demo:demo`: a built-in model for machines without a key. Small, deterministic, plainly not
intelligent: it calls the tools that a user's words ask for, so that the whole path runs offline.

A message may hold lines `CALL tool {json}` (several = parallel calls), `THEN` (what follows is the
next round) and `SAY text`; or it just names a tool in plain words, and the rest is taken for its
arguments where that can be. After its calls it tells what they gave.
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from time import time
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
    messages, tools = body["messages"], _tools(body)
    at = max((i for i, m in enumerate(messages) if _asks(m, messages[i - 1 : i])), default=-1)
    after = messages[at + 1 :]
    rounds = _rounds(_text(messages[at]) if at >= 0 else "", tools)
    played = [
        m["tool_calls"] for m in after if m.get("role") == "assistant" and m.get("tool_calls")
    ]
    results = [_text(m) for m in after if m.get("role") == "tool"]
    now = rounds[len(played)] if len(played) < len(rounds) else Round()
    # It may call what nobody offers, but no longer what it was offered before.
    gone = {str(_tool(call).get("name")) for calls in played for call in calls} - tools.keys()
    may = body.get("tool_choice") != "none"
    said = [c for c in now.calls if may and c[0] not in gone]
    calls = [_call(f"call_demo_{len(messages)}_{n}", *c) for n, c in enumerate(said)]
    return "\n".join(now.words) or ("" if calls else _told(results)), calls


def _told(results: list[str]) -> str:
    if not results:
        return (
            "I am the demo model: I can only call tools. Name one of the tools that you attached, "
            "or write a line such as: CALL tool {}"
        )
    return "The tools answered:\n" + "\n".join(f"- {text}" for text in results)


def _asks(message: Json, before: list[Json]) -> bool:
    # Images of tool results follow them as a user message; they ask for nothing.
    content = message.get("content")
    images = isinstance(content, list) and any(p.get("type") == "image_url" for p in content)
    results = bool(before) and before[0].get("role") == "tool"
    return message.get("role") == "user" and not (images and results)


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(p.get("text", "")) for p in content if p.get("type") == "text")
    return content if isinstance(content, str) else ""


def _tools(body: Json) -> dict[str, Json]:
    given = [_tool(tool) for tool in body.get("tools") or []]
    return {name: tool for tool in given if isinstance(name := tool.get("name"), str) and name}


def _tool(entry: Json) -> dict[str, Json]:
    """The function in a `tools` entry or a call."""
    return _dict(entry.get("function"))


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


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
        elif rest.strip():
            name, *arguments = rest.split(maxsplit=1)
            rounds[-1].calls.append((name, arguments[0].strip() if arguments else "{}"))
    if script:
        return rounds
    named = [name for name in tools if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    calls = [(name, orjson.dumps(_guess(words, name, tools[name])).decode()) for name in named]
    return [Round(calls=calls)] if calls else []


def _guess(words: str, name: str, tool: Json) -> dict[str, Json]:
    """Arguments from plain words: `{json}` if there is one, else numbers and the rest by type."""
    start, end = words.find("{"), words.rfind("}")
    if 0 <= start < end:
        try:
            return dict(orjson.loads(words[start : end + 1]))
        except ValueError:
            pass
    rest = words.split(name, 1)[1].strip(" :,.?!\n")
    numbers = iter(re.findall(r"-?\d{1,15}(?:\.\d{1,15})?", rest))
    arguments: dict[str, Json] = {}
    properties = _dict(_dict(tool.get("parameters")).get("properties"))
    for key, schema in properties.items():
        kind = _dict(schema).get("type")
        if kind in ("integer", "number") and (number := next(numbers, None)):
            arguments[key] = float(number) if "." in number else int(number)
        elif kind == "string" and rest:
            arguments[key], rest = rest, ""
    return arguments


def _call(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _head(body: Json, kind: str) -> Event:
    return {
        "id": f"chatcmpl-demo-{len(body['messages'])}",
        "object": kind,
        "created": int(time()),
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
    message: dict[str, Json] = {"role": "assistant", "content": text or None}
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
    for piece in re.findall(r"\S+\s*|\s+", text):
        yield chunk({"content": piece})
    for at, call in enumerate(calls):
        yield chunk({"tool_calls": [{"index": at, **call}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    yield {**head, "choices": [], "usage": _usage(body, text, calls)}
