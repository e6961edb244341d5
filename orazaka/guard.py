"""The guard at the socket (spec 2.6): a name is looked up once, all its addresses are judged, and
only judged addresses are dialled.

The resolver sees names, the socket factory every connect, literal addresses included: between
them nothing is dialled that was not judged, whatever a URL looked like.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from orazaka.addresses import Policy, answer_refusal, refusal
from orazaka.faults import Blocked, Redirected
from orazaka.urlsafety import UnresolvedHost, UnsafeURL, leads_to

type Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a host name; raises OSError if there are none."""

type AddrInfo = tuple[int, int, int, str, tuple[Any, ...]]

LOOKUP_SECONDS = 5.0
KEEP_SECONDS = 10.0  # what was checked is what is dialled; longer would outlive a failover
_MAX_KEPT = 1000


class GuardedResolver(AbstractResolver):
    """Names to addresses that the policy allows, each name looked up once for `keep` seconds."""

    def __init__(self, policy: Policy, *, lookup: Lookup | None, keep: float) -> None:
        self._policy = policy
        self._lookup = lookup or self._system
        self._keep = keep
        self._kept: dict[str, tuple[float, asyncio.Task[Sequence[str]]]] = {}
        # Of its own: a dead name server must not fill the threads that others wait for.
        self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="orazaka-dns")

    async def addresses(self, host: str) -> Sequence[str]:
        """All addresses of a name. Raises UnsafeURL if one is refused or there is none."""
        found = await asyncio.shield(self._shared(host))
        if not found:
            raise UnresolvedHost
        if rule := answer_refusal(found, self._policy):
            raise leads_to(rule)
        return found

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """What aiohttp's connector asks for. Raises Blocked."""
        try:
            found = await self.addresses(host)
        except UnsafeURL as error:
            raise Blocked(error) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Give up lookups that are under way."""
        for _, task in self._kept.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _shared(self, host: str) -> asyncio.Task[Sequence[str]]:
        """The lookup of a name that is under way or kept, or a new one."""
        loop = asyncio.get_running_loop()
        asked, task = self._kept.get(host, (0.0, None))
        if task and (not task.done() or (_found(task) and loop.time() < asked + self._keep)):
            return task
        if len(self._kept) >= _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept.pop(host, None)  # so that the order stays that of asking
        task = loop.create_task(self._look_up(host), context=Context())
        self._kept[host] = loop.time(), task
        return task

    async def _look_up(self, host: str) -> Sequence[str]:
        """The addresses, none if the name has none or the answer does not come in time."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._lookup(host)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            return ()

    async def _system(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _getaddrinfo, host)


def _found(task: asyncio.Task[Sequence[str]]) -> bool:
    return not task.cancelled() and not task.exception() and bool(task.result())


def _getaddrinfo(host: str) -> Sequence[str]:
    flags = socket.AI_ADDRCONFIG  # no IPv6 addresses where there is no IPv6
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def guarded_socket(policy: Policy) -> Callable[[AddrInfo], socket.socket]:
    """aiohttp's hook at every connect: a socket for an allowed address. It raises Blocked."""

    def open_socket(info: AddrInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if rule := refusal(str(address[0]), policy):
            raise Blocked(leads_to(rule))
        return socket.socket(family, kind, protocol)

    return open_socket


async def refuse_redirects(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Middleware of every session: a redirect is an error, whatever `allow_redirects` says."""
    response = await send(request)
    if 300 <= response.status < 400:
        response.close()
        raise Redirected(response.status)
    return response
