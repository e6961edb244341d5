"""What one turn may call, and what is said before it: offers, toolbox, hints (spec 3.4, 1-4)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from django.conf import settings

from gateway.fields import Conflict, Fields, InlineServer
from gateway.record import Record
from mcp_servers.client import Endpoint
from mcp_servers.faults import NoAllowedTool
from mcp_servers.source import Asked, open_offer
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.http import HTTP
from orazaka.runtime import Runtime
from tools import toolbox
from tools.base import Offer
from tools.toolbox import Toolbox

Json = Any

HEADER = "Some of the tools that you can call come from the servers named here."


async def attach(
    fields: Fields, *, body: dict[str, Json], caller: Caller, runtime: Runtime, record: Record
) -> Toolbox:
    """The turn's tools. Every URL is judged before anything is sent anywhere; then all servers are
    asked at once.

    Raises UnsafeURL, ServerError (an inline server that can't be used), Conflict, TooManyTools.
    """
    _check_ids(fields)
    servers = fields.mcp_servers or []
    await _guard(servers, runtime)
    inline = [_inline(s, at, caller, runtime, record) for at, s in enumerate(servers) if _used(s)]
    stored = [provider(caller, fields) for provider in toolbox.providers]
    offers = [offer for found in await _all(inline + stored) for offer in found]
    _check_names(fields, offers)
    box = Toolbox(
        offers,
        taken=own_names(body),
        limit=settings.ORAZAKA_MAX_TOOLS_PER_TURN,
        max_chars=settings.ORAZAKA_TOOL_RESULT_MAX_CHARS,
        observe=lambda run: record.tool(run, payloads=settings.ORAZAKA_RECORD_PAYLOADS),
    )
    record.offer(box.shown)
    for note in box.notes:
        record.step("note", note[:255], "left_out", started=record.now())
    if box.shown and (body.get("n") or 1) > 1:
        raise Conflict("n must be 1 when the gateway's tools are attached", param="n")
    return box


def claims(box: Toolbox, body: dict[str, Json]) -> Callable[[str], bool] | None:
    """Whose call a name is: ours unless it is the caller's own tool. None if we bring no tools.

    A name that nobody has counts as ours: the model is told so, with the nearest names (B43).
    """
    if not box.shown:
        return None
    theirs = own_names(body)
    return lambda name: name not in theirs


def own_names(body: dict[str, Json]) -> set[str]:
    """The names of the caller's own tools."""
    names: set[str] = set()
    for tool in body.get("tools") or []:
        inner = tool.get("function") or tool.get("custom") or tool
        if isinstance(name := inner.get("name"), str):
            names.add(name)
    return names


def hints(box: Toolbox, *, header: str | None) -> str:
    """The block before the conversation, or nothing if there is nothing to say.

    Byte-equal from turn to turn for the same servers, for the providers' prompt caches.
    """
    offers = list({id(shown.offer): shown.offer for shown in box.shown}.values())
    lines = [f"- {offer.label}: {offer.hint}" for offer in offers if offer.hint]
    contexts = [offer.context for offer in offers if offer.context]
    if not lines and not contexts:
        return ""
    lead = header or settings.OTARI_TOOLS_HEADER or HEADER
    return "\n".join([lead, *lines, *contexts])


def _check_ids(fields: Fields) -> None:
    if fields.mcp_server_ids:
        raise Conflict(
            "mcp_server_ids needs a platform that resolves them, and this gateway runs without "
            "one; name stored servers with orazaka_servers, or give them inline as mcp_servers",
            param="mcp_server_ids",
        )


def _check_names(fields: Fields, offers: Iterable[Offer]) -> None:
    """Tools and servers that the request names must exist."""
    if isinstance(fields.orazaka_tools, list):
        known = {s.name for o in offers if o.origin == "registered" for s in o.specs}
        if missing := [name for name in fields.orazaka_tools if name not in known]:
            raise Conflict(f"no such registered tool: {missing[0][:64]}", param="orazaka_tools")
    if isinstance(fields.orazaka_servers, list) and fields.orazaka_servers:
        raise Conflict("no such stored server", param="orazaka_servers")


async def _guard(servers: Sequence[InlineServer], runtime: Runtime) -> None:
    outbound = runtime[HTTP]

    async def check(at: int, server: InlineServer) -> None:
        try:
            await outbound.check(server.url, has_secret=server.authorization_token is not None)
        except OrazakaError as error:
            raise _about(error, server, at) from error

    await _all([check(at, server) for at, server in enumerate(servers)])


def _about(error: OrazakaError, server: InlineServer, at: int) -> OrazakaError:
    """The error with the name of the server and the path of its URL."""
    words = f"the MCP server {server.name!r}: {error.message}"
    return OrazakaError(words, status=error.status, code=error.code, param=f"mcp_servers[{at}].url")


def _used(server: InlineServer) -> bool:
    """Whether any tool of the server may be used; with none allowed there is nothing to ask it."""
    return server.allowed() != frozenset()


async def _inline(
    server: InlineServer, at: int, caller: Caller, runtime: Runtime, record: Record
) -> list[Offer]:
    token = server.authorization_token
    endpoint = Endpoint(
        label=server.name,
        url=server.url,
        principal=caller.principal,
        secret=token.get_secret_value() if token else "",
        allowed_tools=server.allowed(),
        hint=server.purpose_hint or "",
    )
    started = record.now()
    try:
        offer, asked = await open_offer(endpoint, runtime=runtime)
    except OrazakaError as error:
        outcome = "late" if error.status == 504 else "failed"
        record.step("server", server.name, outcome, started=started, error=error.message)
        member = ".allowed_tools" if isinstance(error, NoAllowedTool) else ""
        error.param = f"mcp_servers[{at}]{member}"
        raise
    _note(record, asked, started)
    return [offer]


def _note(record: Record, asked: Asked, started: float) -> None:
    record.step("server", asked.label, asked.outcome, started=started)
    for note in asked.notes:
        record.step("note", f"{asked.label}: {note}"[:255], "left_out", started=record.now())


async def _all[T](asking: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Ask all at once; the first failure ends the others and is the turn's.

    The tasks start eagerly: what needs no I/O (a kept list, a literal address) is over at once.
    """
    loop = asyncio.get_running_loop()
    tasks = [asyncio.Task(one, loop=loop, eager_start=True) for one in asking]
    try:
        running = {task for task in tasks if not task.done()}
        while running and not any(_failed(task) for task in tasks):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in filter(_failed, tasks):
            task.result()
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
