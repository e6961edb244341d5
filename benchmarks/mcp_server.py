"""A scripted MCP server (streamable HTTP, 2025-06-18): sessions, and answers as event streams.

`/<name>` has the tools `echo` and `slow`; with `?tools=10` it has `<name>_tool_0` … `_9` instead,
which echo.
"""

import asyncio
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import orjson

from benchmarks.asgi import JSON, SSE, Receive, Scope, Send, read, respond

Json = Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
TEXT = {"text": {"type": "string", "description": "What to say back."}}
SECONDS = {"seconds": {"type": "number", "description": "How long to take."}}
sessions: set[bytes] = set()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """One MCP message per request."""
    raw, session = await read(receive), dict(scope["headers"]).get(b"mcp-session-id")
    if scope["method"] == "DELETE" and session:
        sessions.discard(session)
        await respond(send, b"")
        return
    if scope["method"] != "POST":
        await respond(send, b"", status=405)
        return
    message = orjson.loads(raw)
    if message["method"] == "initialize":
        session = uuid4().hex.encode()
        sessions.add(session)
    if session not in sessions:
        # 400 without a session, 404 with one that is over (MCP 2025-06-18, session management)
        error = {"code": -32600, "message": "no such session"}
        await _answer(
            send, {"id": message.get("id"), "error": error}, status=404 if session else 400
        )
    elif "id" not in message:
        await respond(send, b"", status=202)
    else:
        headers = [(b"mcp-session-id", session)] if message["method"] == "initialize" else []
        outcome = await _outcome(scope, message["method"], message.get("params") or {})
        await _answer(send, {"id": message["id"], **outcome}, *headers)


async def _answer(
    send: Send, message: Json, *headers: tuple[bytes, bytes], status: int = 200
) -> None:
    body = orjson.dumps({"jsonrpc": "2.0", **message})
    if status == 200:
        await respond(send, b"event: message\ndata: " + body + b"\n\n", SSE, *headers)
    else:
        await respond(send, body, JSON, status=status)


async def _outcome(scope: Scope, method: str, params: Json) -> Json:
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "result": {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }
        }
    if method == "tools/list":
        return {"result": {"tools": _tools(scope)}}
    if method == "tools/call":
        return {"result": await _called(params["name"], params.get("arguments") or {})}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"no method {method}"}}


def _tools(scope: Scope) -> list[Json]:
    name = scope["path"].strip("/")
    query = parse_qs(scope["query_string"].decode())
    more = int(query.get("tools", ["0"])[0])
    if not more:
        return [_tool("echo", TEXT), _tool("slow", SECONDS)]
    return [_tool(f"{name}_tool_{n}", TEXT) for n in range(more)]


def _tool(name: str, properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "name": name,
        "description": "Says a text back, or takes its time.",
        "inputSchema": schema,
    }


async def _called(name: str, arguments: Json) -> Json:
    if name == "slow":
        await asyncio.sleep(arguments["seconds"])
        text = "slept"
    else:
        text = arguments["text"]
    return {"content": [{"type": "text", "text": text}], "isError": False}
