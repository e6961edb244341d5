"""Tool lists kept from turn to turn, one per server, principal and credentials (spec 2.2)."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from mcp_servers.client import Endpoint, Key, Listing
from tools.base import Json, ToolSpec
from tools.schema import BrokenSchema, checker

NAME_MAX = 256  # characters
DESCRIPTION_MAX = 32_768  # characters; a longer one is cut, since it goes to the model every turn
KEPT_MAX = 64 * 2**20  # bytes of definitions in this process; the ones not used longest go first
# A call's own limit is the session pool's, extended by progress; this one only stands behind it.
LAST_RESORT = 330.0  # seconds


@dataclass(frozen=True, slots=True)
class Kept:
    """A server's tools. While it is kept the ToolSpec objects are the same from turn to turn, and
    a tool that a new listing repeats byte for byte keeps its object."""

    specs: tuple[ToolSpec, ...]
    notes: tuple[str, ...]
    until: float
    size: int
    by_digest: Mapping[bytes, ToolSpec] = field(repr=False)


class Catalog:
    """`fetch` lists a server's tools; `ttl` is seconds to keep a list that says nothing itself."""

    def __init__(
        self, fetch: Callable[[Endpoint], Awaitable[Listing]], *, ttl: float
    ) -> None:
        self._fetch = fetch
        self._ttl = ttl
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._stale: dict[Key, Kept] = {}
        self._asking: dict[Key, asyncio.Task[Kept]] = {}

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

    async def tools(self, endpoint: Endpoint) -> Kept:
        """The kept list, or a new one; callers at the same time share one listing.

        Raises what `fetch` raises. A caller that is cancelled leaves the listing to the others.
        """
        key = endpoint.key
        if kept := self.kept(key):
            return kept
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.get_running_loop().create_task(
                self._list(endpoint, key), name="mcp-list", context=Context()
            )
            asking.add_done_callback(lambda task: self._asked(key, task))
        return await asyncio.shield(asking)

    def drop(self, key: Key) -> None:
        """The list is no longer good; what is being listed now is not kept either."""
        self._asking.pop(key, None)
        self._kept.pop(key, None)

    async def aclose(self) -> None:
        """Give up the listings under way."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
