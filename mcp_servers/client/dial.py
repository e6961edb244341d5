"""How a server is reached: which era, which transport, and what it may ask of us."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage

from mcp_servers.client.connection import Connection, fault_of
from mcp_servers.client.verbatim import Verbatim
from mcp_servers.endpoint import Endpoint
from mcp_servers.exchange import Exchange
from mcp_servers.faults import Blocked, Fault, Late, NotProtocol, Refusal
from mcp_servers.shallow import ShallowLists
from orazaka.outbound import Outbound
from orazaka.sdk_client import RpcAnswers
from orazaka.sdk_transport import Transport
from orazaka.urlsafety import UnsafeURL
from tools.base import Json

ANSWER_MAX = 8 * 2**20  # bytes of one answer, before decoding (spec 2.2)
PROBE_LIMIT = 5.0  # seconds for the new era to show itself before the older one is tried
SILENCE = 330.0  # seconds without a byte; longer than the longest call, so only a last resort
URLS_LEARNT = 1000
# By these a server of the first HTTP transport (SSE, 2024-11-05) shows that it wants a GET.
WANTS_GET = frozenset({400, 404, 405, 406, 410, 415, 501})
REFUSALS = frozenset({401, 403, 407, 429})  # of us, not of a way to speak

_US = types.Implementation(name="orazaka", version="0.1.0")


class Connector:
    """Opens connections, and remembers how each URL wants to be spoken to."""

    def __init__(self, outbound: Outbound, *, probe_limit: float = PROBE_LIMIT) -> None:
        self._outbound = outbound
        self._probe_limit = probe_limit
        self._learnt: OrderedDict[str, str] = OrderedDict()

    @asynccontextmanager
    async def connect(
        self, endpoint: Endpoint, *, on_change: Callable[[], None]
    ) -> AsyncIterator[Connection]:
        """An open connection; enter and leave it in one task. `on_change`: the list has changed.

        Raises a `Fault` if it can't be opened; what it raises later is the SDK's.
        """
        try:
            await self._outbound.check(endpoint.url, has_secret=endpoint.has_secret)
        except UnsafeURL as error:
            raise Blocked(error.message) from error
        async with AsyncExitStack() as stack:
            session, way = await self._dial(stack, endpoint, on_change)
            if way == "modern":
                watch = asyncio.create_task(_watch(session, on_change))
                stack.callback(watch.cancel)
            yield Connection(session, way)

    async def _dial(
        self, stack: AsyncExitStack, endpoint: Endpoint, on_change: Callable[[], None]
    ) -> tuple[ClientSession, str]:
        faults: list[Fault] = []
        for way in self._ways(endpoint):
            async with AsyncExitStack() as attempt:
                try:
                    session = await self._open(attempt, endpoint, way, on_change)
                except Exception as error:
                    # Kept, not raised: the SDK's task groups would wrap it on its way out.
                    faults.append(fault_of(error, way=None))
                else:
                    self._learn(endpoint.url, way)
                    await stack.enter_async_context(attempt.pop_all())
                    return session, way
            if not _another_way_may_work(way, faults[-1]):
                break
        # What a server says to a GET that it does not know is no answer to what we asked.
        told = -2 if way == "sse" and len(faults) > 1 and faults[-1].status not in REFUSALS else -1
        raise faults[told]

    async def _open(
        self, stack: AsyncExitStack, endpoint: Endpoint, way: str, on_change: Callable[[], None]
    ) -> ClientSession:
        streams = self._sse(endpoint) if way == "sse" else self._streamable(endpoint)
        dispatcher = Verbatim(JSONRPCDispatcher(*await stack.enter_async_context(streams)))
        session = ClientSession(
            dispatcher=dispatcher,
            client_info=_US,
            elicitation_callback=_decline,
            list_roots_callback=_no_roots,
            message_handler=_handler(on_change),
        )
        await stack.enter_async_context(session)
        if way == "modern":
            # A server pinned to this era has no other to try, so it may take its time.
            async with asyncio.timeout(None if endpoint.era == way else self._probe_limit):
                await session.discover()
        else:
            await session.initialize()
        return session

    @asynccontextmanager
    async def _streamable(self, endpoint: Endpoint) -> AsyncIterator[Any]:
        async with (
            self._client(endpoint) as client,
            streamable_http_client(endpoint.url, http_client=client) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _sse(self, endpoint: Endpoint) -> AsyncIterator[Any]:
        """The streams of the older HTTP transport, joined by what its POSTs came to."""
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()

        async def report(message: dict[str, Json]) -> None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await send.send(SessionMessage(types.JSONRPCError.model_validate(message)))

        async def forward(source: Any) -> None:
            with send:
                async for item in source:
                    await send.send(item)

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return self._client(endpoint, report=report)

        with send, receive:
            async with sse_client(endpoint.url, httpx_client_factory=client) as (read, write):
                task = asyncio.create_task(forward(read))
                try:
                    yield receive, write
                finally:
                    task.cancel()

    def _client(self, endpoint: Endpoint, **exchange: Any) -> httpx2.AsyncClient:
        transport = Transport(self._outbound.guarded, read_timeout=SILENCE, max_body=ANSWER_MAX)
        return httpx2.AsyncClient(
            transport=Exchange(RpcAnswers(ShallowLists(transport)), **exchange),
            headers={"user-agent": "orazaka", **endpoint.request_headers()},
            trust_env=False,
        )

    def _ways(self, endpoint: Endpoint) -> list[str]:
        """The ways to try, in order: what worked last time, then from new to old."""
        if endpoint.era == "modern":
            return ["modern"]
        ways = ["legacy", "sse"] if endpoint.era == "legacy" else ["modern", "legacy", "sse"]
        learnt = self._learnt.get(endpoint.url)
        return sorted(ways, key=lambda way: way != learnt)

    def _learn(self, url: str, way: str) -> None:
        self._learnt[url] = way
        self._learnt.move_to_end(url)
        if len(self._learnt) > URLS_LEARNT:
            self._learnt.popitem(last=False)


async def _watch(session: ClientSession, on_change: Callable[[], None]) -> None:
    """Hear of changes in an era without a back channel: they come on a stream of their own.

    A stream that ends is asked for again, ever more slowly; what changed meanwhile is not known.
    """
    capabilities = session.server_capabilities
    if not (capabilities and capabilities.tools and capabilities.tools.list_changed):
        return
    pause = 1.0
    while True:
        with suppress(SubscriptionLost):
            try:
                async with listen(session, tools_list_changed=True) as changes:
                    async for _ in changes:
                        on_change()
            except MCPError:
                return  # the server has no such stream
        on_change()
        await asyncio.sleep(pause)
        pause = min(2 * pause, 60)


def _handler(on_change: Callable[[], None]) -> Any:
    async def handle(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    return handle


async def _decline(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def _no_roots(context: ClientRequestContext) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


def _another_way_may_work(way: str, fault: Fault) -> bool:
    """Whether a failed opening is a verdict on the way tried, not on the server or on us."""
    if way == "legacy":
        return fault.status in WANTS_GET
    if fault.status:
        return fault.status not in REFUSALS and not 300 <= fault.status < 400
    return isinstance(fault, Refusal | NotProtocol | Late)
