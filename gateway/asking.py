"""One turn of this process for a person at a terminal: what `manage.py ask` does, without the
terminal. The turn is the same that `/v1/chat/completions` runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from gateway import fields, sse
from gateway.providers import PROVIDERS, UnknownModel, route
from gateway.turn import Ask, Turn
from gateway.wire import UpstreamError
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.runtime import Runtime
from orazaka.snapshot import SNAPSHOT

Json = Any
STOP_SECONDS = 10  # what a cancelled turn may take to tell its servers


class View(Protocol):
    """What is told of a turn while it runs."""

    def text(self, piece: str) -> None:
        """A piece of the answer, as it comes."""

    def step(self, step: Json) -> None:
        """A server asked, a model called or a tool run, when it is over (`Record.step`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a turn ended. `usage` is as the reply has it; None if no model call came to its end."""

    text: str
    turn: str
    rounds: int
    tool_calls: int
    ms: float
    usage: Json
    trace: list[Json]
    error: OrazakaError | None


def request(
    question: str, *, model: str, servers: Sequence[str], rounds: int | None, stream: bool
) -> dict[str, Json]:
    """The body of a chat completion. Servers are URLs, named after their hosts."""
    body: dict[str, Json] = {"model": model, "messages": [{"role": "user", "content": question}]}
    if servers:
        names = _names(servers)
        body["mcp_servers"] = [
            {"name": name, "url": url} for name, url in zip(names, servers, strict=True)
        ]
    if rounds is not None:
        body["max_tool_iterations"] = rounds
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _names(urls: Sequence[str]) -> list[str]:
    names: list[str] = []
    for url in urls:
        name = base = (_host(url) or "server")[:100]
        number = 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.append(name)
    return names


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""  # the guard says what is wrong with it


async def ask(body: dict[str, Json], *, caller: Caller, runtime: Runtime, view: View) -> Answer:
    """Run the turn and show it. Raises OrazakaError for a request that can't become one.

    Cancelling cancels the turn, and waits until its servers and its record know.
    """
    turn = Turn(await _asked(body, caller, runtime), runtime)
    turn.record.watch = lambda step: view.step(orjson.loads(step))
    said: list[str] = []

    async def write(data: bytes) -> None:
        for piece in await _pieces(data):
            said.append(piece)
            view.text(piece)

    try:
        await turn.outlet.drain(write, keepalive=3600)
        await turn.over()
    except asyncio.CancelledError:
        turn.task.cancel()
        await asyncio.wait({turn.task}, timeout=STOP_SECONDS)
        raise
    if turn.reply:
        said.append(_content(turn.reply, "message"))
        view.text(said[-1])
    return _answer(turn, "".join(said))


async def _asked(body: dict[str, Json], caller: Caller, runtime: Runtime) -> Ask:
    own = fields.take(body)
    fields.check_chat(body)
    fields.check_conflicts(body, own)
    peers = (await runtime[SNAPSHOT].fresh())[PROVIDERS]
    try:
        way = route(body["model"], "chat", peers=peers, caller=caller)
    except UnknownModel as error:
        names = ", ".join(sorted(peers)) or "none"
        words = f"no such model; write provider:model. The providers here: {names}"
        raise UnknownModel(words, param="model") from error
    return Ask(caller=caller, wire="chat", body=body, fields=own, route=way, headers={})


def _answer(turn: Turn, text: str) -> Answer:
    error = turn.failed
    if error is None and turn.task.cancelled():
        error = UpstreamError("the turn was cancelled")
    return Answer(
        text=text,
        turn=str(turn.record.id),
        rounds=turn.record.rounds,
        tool_calls=turn.record.tool_calls,
        ms=turn.record.now(),
        usage=turn.usage,
        trace=turn.record.steps,
        error=error,
    )


async def _pieces(data: bytes) -> list[str]:
    """The pieces of text in a part of the stream; the outlet gives whole events."""

    async def once() -> AsyncIterator[bytes]:
        yield data

    events = [event async for batch in sse.decode(once()) for event in batch]
    return [piece for event in events if (piece := _content(event, "delta"))]


def _content(event: Json, member: str) -> str:
    """The text of a reply or a chunk, of its first choice."""
    choices = event.get("choices") or [{}]
    said = choices[0].get(member) or {}
    return said.get("content") or said.get("refusal") or ""
