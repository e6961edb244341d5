"""Two clients that ask the same things: plain HTTP with a strict reader, and the official SDK."""

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import httpx

from tests.end_to_end.processes import Child
from tests.wires.checker import Call, Choice, Reply, StreamChecker, check_plain

Json = Any
Way = Literal["plain", "streamed", "streamed with usage"]
WAYS: tuple[Way, ...] = ("plain", "streamed", "streamed with usage")
MODEL = "openai:strict-1"


@dataclass
class Answer:
    """What a client got. `message` is the assistant's turn as that client would send it back."""

    reply: Reply
    status: int = 200
    error: str = ""  # the class of the SDK's exception
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    chunks: int = 0

    @property
    def message(self) -> Json:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in self.reply.calls
        ]
        return {
            "role": "assistant",
            "content": self.reply.text or None,
            **({"tool_calls": calls} if calls else {}),
        }


class Client(Protocol):
    """Asks for a chat completion. `hidden` names tools that the client must not see a bit of."""

    def __call__(
        self,
        script: str | list[Json],
        *,
        way: Way = "plain",
        hidden: Collection[str] = (),
        **body: Any,
    ) -> Answer: ...


def body_of(script: str | list[Json], way: Way, body: Mapping[str, Any]) -> dict[str, Json]:
    """The request: `script` is the user's words (tests.wires.script), or all messages."""
    messages = [{"role": "user", "content": script}] if isinstance(script, str) else script
    asked: dict[str, Json] = {"model": MODEL, "messages": messages, **body}
    if way != "plain":
        asked["stream"] = True
    if way == "streamed with usage":
        asked["stream_options"] = {"include_usage": True}
    return asked


def own_tools(body: Mapping[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools") or []}


class Http:
    """Plain HTTP; every byte of a stream passes the StreamChecker."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def __call__(
        self,
        script: str | list[Json],
        *,
        way: Way = "plain",
        hidden: Collection[str] = (),
        **body: Any,
    ) -> Answer:
        asked, name = body_of(script, way, body), uuid.uuid4().hex
        callers, include_usage = own_tools(body), "stream_options" in asked
        with self._http.stream(
            "POST", "/v1/chat/completions", json=asked, headers={"X-Request-ID": name}
        ) as response:
            assert response.headers["x-request-id"] == name
            answer = Answer(Reply(), response.status_code, "", response.headers, name)
            if response.headers["content-type"].startswith("text/event-stream"):
                checker = StreamChecker(hidden=hidden, callers=callers, include_usage=include_usage)
                for piece in response.iter_raw():
                    checker.feed(piece)
                    answer.chunks += 1
                answer.reply = checker.close()
            else:
                answer.reply = check_plain(response.read(), hidden=hidden, callers=callers)
        return answer


class Sdk:
    """The official SDK, in a process of its own (clients/openai_chat.py)."""

    def __init__(self, process: Child, *, base_url: str, api_key: str) -> None:
        self._process, self._where = process, {"base_url": base_url, "api_key": api_key}

    def do(self, job: str, **arguments: Any) -> Json:
        """The outcome of one job."""
        assert self._process.process.stdin is not None
        line = json.dumps({**self._where, "job": job, **arguments})
        self._process.process.stdin.write(line + "\n")
        return json.loads(self._process.line(60))

    def __call__(
        self,
        script: str | list[Json],
        *,
        way: Way = "plain",
        hidden: Collection[str] = (),
        **body: Any,
    ) -> Answer:
        name = uuid.uuid4().hex
        given = self.do("chat", body=body_of(script, way, body), headers={"X-Request-ID": name})
        answer = sdk_answer(given)
        shown = json.dumps([given.get("message"), given.get("words")])
        assert not any(tool in shown for tool in hidden), "the client sees our tools"
        answer.request_id = name
        return answer


class SdkAnswer(Answer):
    """The same, with the SDK's own dump of the message."""

    dumped: Json = None

    @property
    def message(self) -> Json:
        return self.dumped


def sdk_answer(given: Json) -> Answer:
    """An outcome of the job `chat` in the words of the checker."""
    message = given.get("message") or {}
    calls = [
        Call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or []
    ]
    choice = Choice(
        text=message.get("content") or "", calls=calls, finish_reason=given.get("finish_reason")
    )
    answer = SdkAnswer(
        Reply(given.get("id", ""), choices={0: choice}, usage=given.get("usage")),
        given.get("status", 200),
        given.get("error", ""),
        given.get("headers") or {},
        chunks=given.get("chunks", 0),
    )
    answer.dumped = message
    if given.get("error"):
        answer.reply.error = {"message": given["words"], "code": given["code"]}
    return answer
