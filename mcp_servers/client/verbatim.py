"""Results and lists of tools as the server sent them, past the SDK's checks."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from mcp_servers.encoding import encoded
from mcp_servers.faults import Lost
from tools.base import Json

verbatim: ContextVar[dict[str, Json]] = ContextVar("verbatim")
"""The result of the last tools/call or tools/list that this task asked for."""


class Verbatim:
    """A dispatcher that keeps tool results and lists from the SDK's checks.

    Those refuse a whole list for one odd tool, a result for an unknown kind of content (case B26)
    or for a missing `resultType` (which the spec wants read as complete), and would read an image
    twice. The SDK gets a stub in their place; the result is in `verbatim`, set in the task that
    asked. What it needs of a list, tools whose arguments go into headers, it gets.
    """

    def __init__(self, inner: JSONRPCDispatcher) -> None:
        self._inner = inner
        self._ended = False

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await self._inner.run(
                on_request, on_notify, on_notify_intercept, task_status=task_status
            )
        finally:
            self._ended = True

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._inner.notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._ended and method in ("tools/call", "tools/list"):
            raise Lost("its session ended")
        result = await self._inner.send_raw_request(method, params, opts)
        if method == "tools/call":
            verbatim.set(result)
            return {"content": [], "resultType": "complete"}
        if method == "tools/list":
            verbatim.set(result)
            tools = _header_stubs(result.get("tools"))
            return {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return result


def _header_stubs(tools: Json) -> list[dict[str, Json]]:
    """As much of a list as the SDK needs to put arguments into HTTP headers (SEP-2243)."""
    stubs = []
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"name": str(name), "inputSchema": {"properties": dict(properties)}}:
                if b'"x-mcp-header"' in encoded(properties):
                    schema = {"type": "object", "properties": properties}
                    stubs.append({"name": name, "inputSchema": schema})
    return stubs
