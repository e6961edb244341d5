"""An MCP server as a source of tools, and its offer to a turn."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from django.conf import settings

from mcp_servers.catalog import Catalog, Kept
from mcp_servers.client import Connector, Endpoint, Fault, Key
from mcp_servers.faults import Late, NoAllowedTool, call_error, server_error
from mcp_servers.output import output_note
from mcp_servers.results import to_result
from mcp_servers.sessions import Connect, Limits, SessionPool
from orazaka.caller import Caller
from orazaka.http import HTTP
from orazaka.runtime import Resource, Runtime
from tools.base import Json, Offer, ToolError, ToolLate, ToolResult, ToolSpec


class Servers:
    """What a process keeps of other people's servers: sessions in `pool`, lists in `catalog`."""

    def __init__(
        self,
        connect: Connect,
        *,
        ttl: float,
        idle: float = 300,
        cap: int = 200,
        limits: Limits | None = None,
    ) -> None:
        self.pool = SessionPool(connect, on_change=self._changed, idle=idle, cap=cap, limits=limits)
        self.catalog = Catalog(self.pool.list_tools, ttl=ttl)

    async def aclose(self) -> None:
        await self.catalog.aclose()
        await self.pool.aclose()

    def _changed(self, key: Key) -> None:
        self.catalog.drop(key)


@asynccontextmanager
async def open_servers(runtime: Runtime) -> AsyncIterator[Servers]:
    """Closed with the runtime, every session at its server too."""
    connector = Connector(runtime[HTTP])
    servers = Servers(connector.connect, ttl=settings.ORAZAKA_MCP_LIST_TTL_SECONDS)
    try:
        yield servers
    finally:
        await servers.aclose()


SESSIONS = Resource(open_servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How an offer came about, for the turn's record: from the kept list or by a new listing, in
    how many milliseconds, and in words which tools were left out."""

    label: str
    outcome: Literal["kept", "listed"]
    ms: float
    notes: tuple[str, ...] = ()


class ServerSource:
    """One server's tools, for one turn (`tools.base.Source`)."""

    def __init__(self, endpoint: Endpoint, servers: Servers) -> None:
        self._endpoint = endpoint
        self._servers = servers

    async def list(self) -> Sequence[ToolSpec]:
        """The tools that may be used. Raises ServerError, TooManySessions."""
        return allowed((await self.ask())[0].specs, self._endpoint)

    async def ask(self) -> tuple[Kept, Asked]:
        """The kept list, which costs nothing, or a new one. Raises ServerError, TooManySessions."""
        started = time.monotonic()
        label, catalog = self._endpoint.label, self._servers.catalog
        if kept := catalog.kept(self._endpoint.key):
            return kept, Asked(label=label, outcome="kept", ms=_ms(started), notes=kept.notes)
        try:
            kept = await catalog.listed(self._endpoint)
        except Fault as fault:
            raise server_error(label, fault) from fault
        return kept, Asked(label=label, outcome="listed", ms=_ms(started), notes=kept.notes)

    async def call(
        self, spec: ToolSpec, arguments: Mapping[str, Json], *, caller: Caller
    ) -> ToolResult:
        """The tool's result. Raises ToolError, which says if the call may have been carried out.

        Cancellation cancels the call at the server; the session stays.
        """
        if not allowed([spec], self._endpoint):
            label = self._endpoint.label
            raise ToolError(f'Tool "{spec.name}" of MCP server "{label}" is not allowed.')
        started = time.monotonic()
        try:
            raw = await self._servers.pool.call(self._endpoint, spec.name, arguments)
        except Fault as fault:
            elapsed = time.monotonic() - started
            text = call_error(
                label=self._endpoint.label, tool=spec.name, fault=fault, elapsed=elapsed
            )
            raise (ToolLate if isinstance(fault, Late) else ToolError)(text) from fault
        max_chars = settings.ORAZAKA_TOOL_RESULT_MAX_CHARS
        return to_result(raw, max_chars=max_chars, note=output_note(spec, raw))


async def open_offer(endpoint: Endpoint, *, runtime: Runtime) -> tuple[Offer, Asked]:
    """What a server named in the request brings to a turn, and how it came about.

    No I/O while its list is kept. Raises ServerError, which names the server (spec 3.4, step 2),
    and TooManySessions.
    """
    source = ServerSource(endpoint, runtime[SESSIONS])
    kept, asked = await source.ask()
    specs = allowed(kept.specs, endpoint)
    if endpoint.allowed_tools and not specs:
        raise NoAllowedTool(
            f'MCP server "{endpoint.label}" has none of the tools that allowed_tools names.'
        )
    offer = Offer(
        source=source,
        specs=specs,
        origin="inline",
        label=endpoint.label,
        hint=endpoint.hint,
        reason="named in the request",
    )
    return offer, asked


def allowed(specs: Sequence[ToolSpec], endpoint: Endpoint) -> Sequence[ToolSpec]:
    """The tools that the endpoint lets through; the same rule for listing and calling."""
    names = endpoint.allowed_tools
    return specs if names is None else [spec for spec in specs if spec.name in names]


def _ms(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
