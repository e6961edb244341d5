"""What is said on an open connection: list the tools, call one."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from pydantic import TypeAdapter

from mcp_servers.client.verbatim import verbatim
from mcp_servers.encoding import encoded
from mcp_servers.faults import Fault, Late, NotProtocol, Refusal, Unreachable, rpc_fault
from orazaka.sdk_transport import Code, Failed
from tools.base import Json

PAGES_MAX, TOOLS_MAX = 50, 1000  # of one tools/list (spec 2.2)
LIST_MAX = 8 * 2**20  # bytes of all its pages
INPUT_ROUNDS = 10  # of a server that keeps asking for input (2026-07-28)

_CALL_RESULT: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


@dataclass(frozen=True, slots=True)
class Listing:
    """All pages of a tools/list: the definitions as sent, seconds to keep them (None = not said),
    and in words why it is not the whole list."""

    tools: list[Json]
    ttl: float | None = None
    notes: tuple[str, ...] = ()


class Connection:
    """An open connection. Its methods may be called from any task, as many at once as wanted.

    They raise a `Fault`; limits on their time are the caller's.
    """

    def __init__(self, session: ClientSession, way: str) -> None:
        self._session = session
        self._way = way

    @property
    def protocol_version(self) -> str:
        return self._session.protocol_version or ""

    @property
    def instructions(self) -> str:
        """What the server says about itself: data, never an instruction to us."""
        return self._session.instructions or ""

    async def list_tools(self) -> Listing:
        """The tools of all pages (case B13); a limit or a repeated cursor ends the list."""
        tools: list[Json] = []
        ttls: list[float] = []
        cursors: list[str] = []
        notes: list[str] = []
        size = 0
        while True:
            page = await self._page(cursors[-1] if cursors else None)
            tools += self._usable(page["tools"], notes)
            ttls += _seconds(page.get("ttlMs"))
            size += len(encoded(page))
            cursor = page.get("nextCursor")
            if why := _why_stop(cursors, cursor, tools, size):
                notes.append(why)
            if why or not isinstance(cursor, str) or not cursor:
                return Listing(tools[:TOOLS_MAX], min(ttls, default=None), tuple(notes))
            cursors.append(cursor)

    async def call(
        self, name: str, arguments: Mapping[str, Json], *, on_progress: Callable[[], None]
    ) -> dict[str, Json]:
        """The result object of one tools/call, as the server sent it.

        What the server asks for meanwhile is declined in both eras (spec 2.2). `on_progress` is
        called at each progress notification.
        """
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        for _ in range(INPUT_ROUNDS):
            result = await self._call(params, on_progress)
            if result.get("resultType") != "input_required":
                return result
            answers = _declined(result.get("inputRequests") or {})
            if not answers:
                await asyncio.sleep(0.1)  # SEP-2322: a state alone means "not yet"
            params = params.model_copy(
                update={
                    "input_responses": answers or None,
                    "request_state": result.get("requestState"),
                }
            )
        raise Refusal(f"it asked for input more than {INPUT_ROUNDS} times")

    async def _call(
        self, params: types.CallToolRequestParams, on_progress: Callable[[], None]
    ) -> dict[str, Json]:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            on_progress()

        for relisted in (False, True):
            try:
                await self._session.send_request(
                    types.CallToolRequest(params=params), _CALL_RESULT, progress_callback=progress
                )
                return verbatim.get()
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH or relisted:
                    raise fault_of(error, way=self._way) from error
            except Exception as error:
                raise fault_of(error, way=self._way) from error
            await self.list_tools()  # the schema asks for a header that we did not know of
        raise AssertionError("the second round returns or raises")

    def _usable(self, tools: list[Json], notes: list[str]) -> list[Json]:
        """Without those that a 2026-07-28 client must drop; `notes` say why (SEP-2243)."""
        if self._way != "modern":
            return tools
        kept = []
        for tool in tools:
            schema = tool.get("inputSchema") if isinstance(tool, dict) else None
            if reason := find_invalid_x_mcp_header(schema):
                notes.append(f"{str(tool.get('name'))[:128]}: left out, {reason[:200]}")
            else:
                kept.append(tool)
        return kept

    async def _page(self, cursor: str | None) -> dict[str, Json]:
        params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        try:
            await self._session.list_tools(params=params)
        except Exception as error:
            if _has_no_tools(self._session, error):
                return {"tools": []}
            raise fault_of(error, way=self._way) from error
        page = verbatim.get()
        if not isinstance(page.get("tools"), list):
            raise NotProtocol("it answered with a tool list that is none")
        return page


def _declined(requests: Json) -> types.InputResponses:
    """What a 2026-07-28 server gets to hear when it asks for input (SEP-2322)."""
    answers: types.InputResponses = {}
    for key, request in requests.items():
        match request.get("method"):
            case "elicitation/create":
                answers[key] = types.ElicitResult(action="decline")
            case "roots/list":
                answers[key] = types.ListRootsResult(roots=[])
            case other:
                raise Refusal(f"it asked the client for {str(other)[:40]}, which is refused")
    return answers


def _has_no_tools(session: ClientSession, error: Exception) -> bool:
    """Whether a failed tools/list only says that the server is not one for tools."""
    capabilities = session.server_capabilities
    return (
        isinstance(error, MCPError)
        and error.code == types.METHOD_NOT_FOUND
        and capabilities is not None
        and capabilities.tools is None
    )


def _seconds(ttl: Json) -> list[float]:
    """`ttlMs` in seconds, at most a day; nothing if it is none (spec of 2026-07-28, caching)."""
    if not isinstance(ttl, int | float) or isinstance(ttl, bool):
        return []
    return [min(max(ttl, 0) / 1000, 86400)]


def _why_stop(cursors: list[str], cursor: Json, tools: list[Json], size: int) -> str:
    """Why no further page is asked for, in words; empty if one may be, or none is left."""
    if len(tools) > TOOLS_MAX:
        return f"the list has over {TOOLS_MAX} tools: the rest is left out"
    if size > LIST_MAX:
        return f"the list is larger than {LIST_MAX // 2**20} MiB: the rest is left out"
    if cursor and cursor in cursors:
        return "the list repeats a cursor: what follows is left out"
    if cursor and len(cursors) + 1 >= PAGES_MAX:
        return f"the list has over {PAGES_MAX} pages: the rest is left out"
    return ""


def fault_of(error: BaseException, *, way: str | None) -> Fault:
    """What an exception of the SDK or the transport stands for; others are raised as they are."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case Fault():
            return error
        case MCPError() | Failed():
            return rpc_fault(error.code, error.message, error.data, way=way)
        case httpx2.HTTPStatusError():
            status = error.response.status_code
            reason = f"it answered with HTTP {status}"
            return rpc_fault(Code.STATUS, reason, {"status": status}, way=way)
        case TimeoutError():
            return Late("it did not answer in time")
        case ValueError() | RuntimeError() | httpx2.SSEError():  # pydantic's; the SDK's own
            return NotProtocol("it answered with something that is not MCP")
        case httpx2.HTTPError():
            return Unreachable("the connection failed")
    raise error
