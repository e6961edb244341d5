"""The scripted model: chat completions, as fast as Python gives them (see `scenarios`)."""

import asyncio
import time
from typing import Any

import orjson

from benchmarks.asgi import JSON, SSE, Receive, Scope, Send, begin, read, respond, write

Json = Any

HEAD = {"id": "chatcmpl-bench", "created": 1_790_000_000, "model": "bench"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
CHUNK = {**HEAD, "object": "chat.completion.chunk"}
# An event up to its content and from there on: the rest of 200 events is the same.
BEFORE, _, AFTER = (
    b"data: "
    + orjson.dumps(
        {**CHUNK, "choices": [{"index": 0, "delta": {"content": "%"}, "finish_reason": None}]}
    )
    + b"\n\n"
).partition(b'"%"')


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST …/chat/completions`; whatever else is asked, too."""
    body = orjson.loads(await read(receive) or b"{}")
    if "messages" not in body:
        await respond(send, b'{"object": "list", "data": []}', JSON)
        return
    script, played, results = _conversation(body["messages"])
    rounds = script["rounds"]
    if played < len(rounds):
        calls, words = [_call(played, at, *call) for at, call in enumerate(rounds[played])], []
    else:
        calls, words = [], [" ".join([script["marker"], *results])]
        words += [f" t{n}" for n in range(script["tokens"])]
    if body.get("stream"):
        asked = (body.get("stream_options") or {}).get("include_usage")
        await _stream(send, calls, words, script["gap"], usage=bool(asked))
    else:
        await respond(send, orjson.dumps(_reply(calls, words)), JSON)


def _conversation(messages: list[Json]) -> tuple[Json, int, list[str]]:
    """The script, how many of its rounds have been played, and the results so far."""
    at = max(at for at, message in enumerate(messages) if message["role"] == "user")
    after = messages[at + 1 :]
    played = sum(message["role"] == "assistant" for message in after)
    results = [str(message["content"]) for message in after if message["role"] == "tool"]
    return orjson.loads(messages[at]["content"]), played, results


def _call(round: int, at: int, name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": f"call_{round}_{at}", "type": "function", "function": function}


def _reply(calls: list[Json], words: list[str]) -> Json:
    message: Json = {"role": "assistant", "content": "".join(words) or None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _finish(calls)}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def _finish(calls: list[Json]) -> str:
    return "tool_calls" if calls else "stop"


async def _stream(
    send: Send, calls: list[Json], words: list[str], gap: float, *, usage: bool
) -> None:
    events = [_event({"role": "assistant", "content": ""})]
    for at, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        head = {"index": at, **call, "function": {"name": name, "arguments": ""}}
        events.append(_event({"tool_calls": [head]}))
        rest = {"index": at, "function": {"arguments": arguments}}
        events.append(_event({"tool_calls": [rest]}))
    events += [BEFORE + orjson.dumps(word) + AFTER for word in words]
    events.append(_event({}, _finish(calls)))
    if usage:
        events.append(b"data: " + orjson.dumps({**CHUNK, "choices": [], "usage": USAGE}) + b"\n\n")
    events.append(b"data: [DONE]\n\n")
    await begin(send, SSE)
    if gap:
        await _paced(send, events, gap)
    else:
        await write(send, b"".join(events))
    await write(send, b"", more=False)


async def _paced(send: Send, events: list[bytes], gap: float) -> None:
    """One event after the other, by the clock: a late one does not put off the rest."""
    began = time.monotonic()
    for number, event in enumerate(events):
        await asyncio.sleep(began + number * gap - time.monotonic())
        await write(send, event)


def _event(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({**CHUNK, "choices": [choice]}) + b"\n\n"
