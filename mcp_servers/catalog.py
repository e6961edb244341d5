"""Tool lists kept from turn to turn, one per server, principal and credentials (spec 2.2)."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace

from mcp_servers.client import Endpoint, Key, Listing
from mcp_servers.definitions import read_tools
from tools.base import ToolSpec

KEPT_MAX = 64 * 2**20  # bytes of definitions in this process; those not asked for longest go first


@dataclass(frozen=True, slots=True)
class Kept:
    """A server's tools, `notes` on what was left out, and until when they are good (monotonic).

    While it is kept its ToolSpec objects are the same from turn to turn, and a new listing keeps
    the objects of the tools that it repeats.
    """

    specs: tuple[ToolSpec, ...]
    notes: tuple[str, ...]
    until: float
    size: int
    by_digest: Mapping[bytes, ToolSpec] = field(repr=False)


class Catalog:
    """`fetch` lists a server's tools; `ttl` is seconds to keep a list that says nothing itself."""

    def __init__(self, fetch: Callable[[Endpoint], Awaitable[Listing]], *, ttl: float) -> None:
        self._fetch = fetch
        self._ttl = ttl
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[Kept]] = {}
        self._waiting: Counter[asyncio.Task[Kept]] = Counter()

    @property
    def size(self) -> int:
        """Bytes of the definitions kept."""
        return sum(kept.size for kept in self._kept.values())

    def kept(self, key: Key) -> Kept | None:
        """The list, if it is still good."""
        kept = self._kept.get(key)
        if kept is None or kept.until <= time.monotonic():
            return None
        self._kept.move_to_end(key)
        return kept

    async def listed(self, endpoint: Endpoint) -> Kept:
        """A new list; callers at the same time share one listing.

        Raises what `fetch` raises. A caller that is cancelled leaves the listing to the others; the
        last one takes it along (case B81).
        """
        key = endpoint.key
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.get_running_loop().create_task(
                self._list(endpoint, key), name="mcp-list", context=Context()
            )
            asking.add_done_callback(lambda task: self._asked(key, task))
        self._waiting[asking] += 1
        try:
            return await asyncio.shield(asking)
        finally:
            self._left(key, asking)

    def drop(self, key: Key) -> None:
        """The list is no longer good, nor is what is being listed now."""
        self._asking.pop(key, None)
        if kept := self._kept.get(key):
            self._kept[key] = replace(kept, until=0)

    async def aclose(self) -> None:
        """Give up the listings under way."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _list(self, endpoint: Endpoint, key: Key) -> Kept:
        listing = await self._fetch(endpoint)
        before = self._kept.get(key)
        known = before.by_digest if before else {}
        specs, notes, size = await read_tools(listing.tools, known=known)
        ttl = self._ttl if listing.ttl is None else listing.ttl
        kept = Kept(
            specs=tuple(specs.values()),
            notes=(*listing.notes, *notes),
            until=time.monotonic() + ttl,
            size=size,
            by_digest=specs,
        )
        if self._asking.get(key) is asyncio.current_task():
            self._keep(key, kept)
        return kept

    def _keep(self, key: Key, kept: Kept) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while self.size > KEPT_MAX and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def _left(self, key: Key, task: asyncio.Task[Kept]) -> None:
        self._waiting[task] -= 1
        if not self._waiting[task]:
            del self._waiting[task]
            if not task.done():
                self._forget(key, task)  # at once: the next caller must not join what is ending
                task.cancel()

    def _forget(self, key: Key, task: asyncio.Task[Kept]) -> None:
        if self._asking.get(key) is task:
            del self._asking[key]

    def _asked(self, key: Key, task: "asyncio.Task[Kept]") -> None:
        self._forget(key, task)
        if not task.cancelled():
            task.exception()  # seen: all who waited may have left
