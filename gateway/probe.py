"""Does a provider work? Asked for its models, answered in plain words, never with its key."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from gateway.openai import message_of
from gateway.providers import DEMO, PATHS, Peer
from orazaka.faults import explain
from orazaka.http import open_http
from orazaka.runtime import Runtime

Json = Any
SECONDS = 10.0  # for the whole test: a person waits for it
MOST_BYTES = 4 * 2**20
SHOWN = 3  # models that are named
NO_LIST = (404, 405, 501)
STATUSES = {
    402: "the provider wants to be paid first (402).",
    429: "the key works, but its limit is used up for now (429).",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a test: a sentence for people, the models that were listed, milliseconds."""

    ok: bool
    words: str
    models: tuple[str, ...] = ()
    ms: float = 0


class _Wrong(Exception):
    """What was found to be wrong, as a sentence."""


async def probe(peer: Peer, session: aiohttp.ClientSession, *, seconds: float = SECONDS) -> Outcome:
    """Ask the provider for its models, or for one token where it lists none. Never raises for
    what the provider does; takes `seconds` at most."""
    if peer.name == DEMO and peer.bases.get("chat", "").startswith("demo:"):
        return Outcome(ok=True, words="Works: it is built in.", models=("demo",))
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            words, models = await _Asking(peer, session).all()
        ok = True
    except _Wrong as error:
        words, models, ok = str(error), (), False
    except TimeoutError:
        words, models, ok = f"no answer within {seconds:g} seconds.", (), False
    except (aiohttp.ClientError, OSError, ValueError) as error:
        words, models, ok = f"{explain(error)}.", (), False
    words = _hidden(peer, words[:1].upper() + words[1:])
    ms = round((time.perf_counter() - started) * 1000, 1)
    return Outcome(ok=ok, words=words[:500], models=models, ms=ms)


@asynccontextmanager
async def session(runtime: Runtime | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A session of its own, for where no runtime is at hand: the admin's threads, commands."""
    async with open_http(runtime or Runtime()) as outbound:
        yield outbound.trusted


async def probe_alone(peer: Peer) -> Outcome:
    """The same, in a session of its own."""
    async with session() as own:
        return await probe(peer, own)


class _Asking:
    def __init__(self, peer: Peer, session: aiohttp.ClientSession) -> None:
        self._peer, self._session = peer, session

    async def all(self) -> tuple[str, tuple[str, ...]]:
        wire = next((wire for wire in ("chat", "responses", "messages") if self._base(wire)), "")
        if not wire:
            raise _Wrong("it has no base URL: give one for a wire that it speaks.")
        status, raw = await self._call("GET", self._base(wire) + "/models", wire)
        if status in NO_LIST and self._peer.models and wire != "responses":
            return await self._complete(wire, self._peer.models[0])
        self._check(status, raw)
        return self._listed(raw)

    def _base(self, wire: str) -> str:
        return self._peer.bases.get(wire, "").rstrip("/")

    async def _call(self, method: str, url: str, wire: str, body: Json = None) -> tuple[int, bytes]:
        headers = {"accept": "application/json", **_authorization(self._peer, wire, url)}
        async with self._session.request(
            method, url, headers={**headers, **self._peer.headers}, json=body, allow_redirects=False
        ) as response:
            raw = bytearray()
            async for part in response.content.iter_any():
                raw += part
                if len(raw) > MOST_BYTES:
                    raise _Wrong("its answer is too large to be a list of models.")
            return response.status, bytes(raw)

    def _check(self, status: int, raw: bytes) -> None:
        if status in (401, 403):
            what = "refused the key" if self._peer.key else "wants a key, and none is stored"
            raise _Wrong(f"the provider {what} ({status}).")
        if status in NO_LIST:
            raise _Wrong(
                f"there is no list of models at this URL ({status}). Check the base URL, which "
                "mostly ends with /v1; if the provider has no list, name a model and test again."
            )
        if status in STATUSES:
            raise _Wrong(STATUSES[status])
        if status >= 300:
            said = _words(raw)
            raise _Wrong(f"the provider answered with the status {status}{said}.")

    def _listed(self, raw: bytes) -> tuple[str, tuple[str, ...]]:
        try:
            given = orjson.loads(raw)
        except ValueError:
            raise _Wrong("the answer is not JSON: is this the URL of an API?") from None
        try:
            models = tuple(sorted({str(entry["id"]) for entry in given["data"]}))
        except (KeyError, TypeError):
            raise _Wrong("the answer is JSON, but no list of models.") from None
        named = ", ".join(models[:SHOWN]) + (", …" if len(models) > SHOWN else "")
        words = f"Works: {len(models)} model{'s' * (len(models) != 1)}"
        words += f" ({named})." if models else ", so there is nothing to ask it for."
        # Gemini lists `models/x` and takes `x`.
        known = {name.removeprefix("models/") for name in models}
        missing = [
            name for name in self._peer.models or () if name.removeprefix("models/") not in known
        ]
        if missing:
            words += f" It does not list {', '.join(missing[:SHOWN])}."
        return words, models

    async def _complete(self, wire: str, model: str) -> tuple[str, tuple[str, ...]]:
        """One tiny completion, for providers without a list."""
        body = {
            "model": model,
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "Hi."}],
        }
        status, raw = await self._call("POST", self._base(wire) + PATHS[wire], wire, body)
        self._check(status, raw)
        try:
            answered = isinstance(orjson.loads(raw), dict)
        except ValueError:
            answered = False
        if not answered:
            raise _Wrong("the answer is not JSON: is this the URL of an API?")
        return f"Works: {model} answered. The provider lists no models.", (model,)


def _authorization(peer: Peer, wire: str, url: str) -> Mapping[str, str]:
    if not peer.key:
        return {}
    headers = {"authorization": f"Bearer {peer.key}"}
    if wire == "messages" or "anthropic" in url:
        headers = {"x-api-key": peer.key, "anthropic-version": "2023-06-01"}
    return headers


def _words(raw: bytes) -> str:
    """What the provider says in an error, if it can be read."""
    try:
        event = orjson.loads(raw)
    except ValueError:
        return ""
    return f": {message_of(event)[:200].rstrip('.')}" if isinstance(event, dict) else ""


def _hidden(peer: Peer, words: str) -> str:
    """The words without the provider's secrets, should it repeat them."""
    secrets = [peer.key, *(word for value in peer.headers.values() for word in value.split())]
    for secret in secrets:
        if len(secret) >= 8 or secret == peer.key:
            words = words.replace(secret, "***") if secret else words
    return words
