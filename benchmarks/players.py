"""Who plays the turns: the server, and for the floor the same work without one."""

import asyncio
from itertools import count
from typing import Any

import aiohttp
import orjson

from benchmarks.load import Answer, Failed, complete
from benchmarks.scenarios import Turn
from tests.wires.checker import Call, check_plain, check_stream

Json = Any

JSON = {"content-type": "application/json"}
BOTH = {**JSON, "accept": "application/json, text/event-stream"}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "floor", "version": "1"},
}


class Server:
    """A gateway that takes MCP servers in the request."""

    name, sums = "orazaka", True

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        *,
        key: str,
        model: str,
        mcp: str,
        pid: int | None,
    ) -> None:
        self._http, self._url, self._model, self._mcp = http, url, model, mcp
        self._headers = {**JSON, "authorization": f"Bearer {key}"}
        self.pid = pid

    async def play(self, turn: Turn) -> Answer:
        body = _body(turn, self._model)
        if turn.scenario.servers:
            body["mcp_servers"] = turn.scenario.endpoints(self._mcp)
        url = f"{self._url}/v1/chat/completions"
        return await complete(self._http, url, body, headers=self._headers, marker=turn.marker)


class Relay:
    """The model behind a process that only hands on its bytes."""

    name, sums = "relay", True

    def __init__(self, http: aiohttp.ClientSession, url: str, *, upstream: str, pid: int) -> None:
        self._http, self._url = http, url
        self._headers = {**JSON, "x-to": f"{upstream}/v1/chat/completions"}
        self.pid: int | None = pid

    async def play(self, turn: Turn) -> Answer:
        body = _body(turn, "bench")
        return await complete(
            self._http, self._url, body, headers=self._headers, marker=turn.marker
        )


class Floor:
    """This process talks to the model and to the servers itself, as a client that loses no time:
    sessions and lists are kept, and the calls of a round run at once."""

    name, sums = "floor", False
    pid: int | None = None

    def __init__(self, http: aiohttp.ClientSession, *, upstream: str, mcp: str) -> None:
        self._http, self._mcp = http, mcp
        self._url = f"{upstream}/v1/chat/completions"
        self._sessions: dict[str, asyncio.Task[_Session]] = {}

    async def play(self, turn: Turn) -> Answer:
        sessions = [await self._session(e["url"]) for e in turn.scenario.endpoints(self._mcp)]
        owners = {name: session for session in sessions for name in session.names}
        body = _body(turn, "bench")
        if sessions:
            body["tools"] = [tool for session in sessions for tool in session.tools]
        while True:
            answer = await complete(self._http, self._url, body, headers=JSON, marker=turn.marker)
            calls = self._calls(turn, answer) if owners else []
            if not calls:
                return answer
            results = await asyncio.gather(*(owners[call.name].call(call) for call in calls))
            body["messages"] += [_asked(calls), *results]

    def _calls(self, turn: Turn, answer: Answer) -> list[Call]:
        if turn.scenario.stream:
            return check_stream(answer.raw, include_usage=True).calls
        return check_plain(answer.raw).calls

    async def _session(self, url: str) -> "_Session":
        """A server's session, opened by the first who needs it."""
        if url not in self._sessions:
            self._sessions[url] = asyncio.create_task(_Session(self._http, url).opened())
        return await asyncio.shield(self._sessions[url])


class _Session:
    """An MCP session by hand."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url, self._ids = http, url, count(1)
        self._headers = dict(BOTH)
        self.names: list[str] = []
        self.tools: list[Json] = []

    async def opened(self) -> "_Session":
        await self._ask("initialize", HELLO)
        await self._post({"method": "notifications/initialized"})
        for tool in (await self._ask("tools/list", {}))["tools"]:
            self.names.append(tool["name"])
            function = {"name": tool["name"], "description": tool["description"]}
            function["parameters"] = tool["inputSchema"]
            self.tools.append({"type": "function", "function": function})
        return self

    async def call(self, call: Call) -> Json:
        """The tool message that answers a call."""
        params = {"name": call.name, "arguments": orjson.loads(call.arguments)}
        result = await self._ask("tools/call", params)
        text = result["content"][0]["text"]
        return {"role": "tool", "tool_call_id": call.id, "content": text}

    async def _ask(self, method: str, params: Json) -> Json:
        raw = await self._post({"id": next(self._ids), "method": method, "params": params})
        return orjson.loads(raw.split(b"data: ", 1)[1])["result"]

    async def _post(self, message: Json) -> bytes:
        body = orjson.dumps({"jsonrpc": "2.0", **message})
        async with self._http.post(self._url, data=body, headers=self._headers) as response:
            if response.status >= 300:
                raise Failed(f"the MCP server answered {response.status}")
            if session := response.headers.get("mcp-session-id"):
                self._headers["mcp-session-id"] = session
            return await response.read()


def _body(turn: Turn, model: str) -> dict[str, Json]:
    body: dict[str, Json] = {"model": model, "messages": turn.messages}
    if turn.scenario.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _asked(calls: list[Call]) -> Json:
    made = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}
