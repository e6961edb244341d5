"""Which models a caller may use: listed in rows, or asked of the provider now and then."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from gateway.providers import DEMO, PROVIDERS, Peer, may_use
from orazaka.caller import Caller
from orazaka.http import HTTP
from orazaka.runtime import Resource, Runtime
from orazaka.snapshot import SNAPSHOT

Json = Any

WIRES = ("chat", "responses", "messages")  # whose base is asked: the first that there is
KEPT_SECONDS, FAILED_SECONDS = 300, 15
ASKED_SECONDS = 5
MOST_BYTES = 4 * 2**20

Listings = dict[str, tuple[Peer, float, list[str]]]


@asynccontextmanager
async def _open(_: Runtime) -> AsyncIterator[Listings]:
    yield {}


# What providers said they have, by name; a changed row is another Peer and is asked anew.
LISTINGS = Resource(_open)


async def models(caller: Caller, runtime: Runtime) -> list[Json]:
    """OpenAI model objects, `provider:model` as id, in the order of their names."""
    peers = (await runtime[SNAPSHOT].fresh())[PROVIDERS]
    names = await asyncio.gather(*(_names(peer, runtime) for peer in peers.values()))
    return [
        _entry(peer.name, name)
        for peer, listed in sorted(zip(peers.values(), names, strict=True), key=lambda p: p[0].name)
        for name in sorted(listed)
        if may_use(caller, peer.name, name)
    ]


def _entry(provider: str, name: str) -> Json:
    entry = {"id": f"{provider}:{name}", "object": "model", "created": 0, "owned_by": provider}
    if provider == DEMO:
        entry["description"] = "A built-in model without intelligence: it calls the tools you name."
    return entry


async def _names(peer: Peer, runtime: Runtime) -> list[str]:
    if peer.models is not None:
        return list(peer.models)
    kept = runtime[LISTINGS]
    known, until, names = kept.get(peer.name, (None, 0.0, []))
    if known != peer or until <= time.monotonic():
        asked = await _asked(peer, runtime)
        if asked is None:  # what it said before still counts
            asked, seconds = names if known == peer else [], FAILED_SECONDS
        else:
            seconds = KEPT_SECONDS
        names = asked
        kept[peer.name] = peer, time.monotonic() + seconds, names
    return names


async def _asked(peer: Peer, runtime: Runtime) -> list[str] | None:
    """What the provider's own `/models` says; None if it gives no list in time."""
    base = next((peer.bases[wire] for wire in WIRES if wire in peer.bases), "")
    headers = {"authorization": f"Bearer {peer.key}"} if peer.key else {}
    if peer.key and "anthropic" in base:
        headers |= {"x-api-key": peer.key, "anthropic-version": "2023-06-01"}
    try:
        async with (
            asyncio.timeout(ASKED_SECONDS),
            runtime[HTTP].trusted.get(
                base.rstrip("/") + "/models",
                headers={**headers, **peer.headers},
                allow_redirects=False,
            ) as response,
        ):
            if response.status != 200:
                return None
            raw = bytearray()
            async for part in response.content.iter_any():
                raw += part
                if len(raw) > MOST_BYTES:
                    return None
            return [str(entry["id"]) for entry in orjson.loads(raw)["data"]]
    except (TimeoutError, aiohttp.ClientError, ValueError, KeyError, TypeError):
        return None
