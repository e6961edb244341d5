"""One turn's way to its provider: requests out, parsed events in, failures in our words (3.6)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from math import isfinite
from typing import Any

import aiohttp
import orjson

from gateway import sse
from gateway.openai import message_of
from gateway.providers import Route
from gateway.sse import DONE, Event
from gateway.wire import UpstreamError
from orazaka.faults import Redirected

Json = Any

MAX_ANSWER = 64 * 2**20  # bytes of one plain answer
RETRIES, PATIENCE = 2, 5.0  # tries after the first; the longest Retry-After that is waited for
BACK = ("x-ratelimit-", "anthropic-ratelimit-", "retry-after")  # headers the client gets


class UpstreamLate(UpstreamError):
    """The provider did not answer in time."""

    status = 504
    code = "upstream_timeout"


class UpstreamRefused(UpstreamError):
    """The provider answered with an error status."""


class Upstream:
    """Calls one provider for one turn. `back` holds headers of its last answer for the client.

    `pause` is what waits between two tries.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        route: Route,
        wire: str,
        *,
        headers: Mapping[str, str],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._session, self._route, self._pause = session, route, pause
        given = {**_authorization(route, wire), **_lower(route.peer.headers), **_lower(headers)}
        self._headers = {**given, "content-type": "application/json"}
        self._secrets = [route.peer.key] if route.peer.key else []
        values = [word for value in route.peer.headers.values() for word in value.split()]
        self._secrets += [word for word in values if len(word) >= 8]  # too long for a common word
        self.back: dict[str, str] = {}

    async def __call__(self, body: Json) -> AsyncIterator[list[Event]]:
        """The events of one model call, in lists as they arrive; a plain answer is one event.

        Raises UpstreamError, its kinds and BadStream. Closing the iterator cancels the call.
        """
        response = await self._open(orjson.dumps({**body, "model": self._route.model}))
        try:
            if body.get("stream"):
                async with aclosing(self._stream(response)) as batches:
                    async for batch in batches:
                        yield batch
            else:
                yield [await self._whole(response)]
        except TimeoutError as error:  # aiohttp's are among them
            raise self._late("went silent", self._route.peer.limits.silence) from error
        except aiohttp.ClientError as error:
            raise UpstreamError(f"{self._name} broke off its answer") from error
        finally:
            response.close() if not response.content.at_eof() else response.release()

    @property
    def _name(self) -> str:
        return f"the provider {self._route.peer.name}"

    async def _open(self, raw: bytes) -> aiohttp.ClientResponse:
        for left in range(RETRIES, -1, -1):
            try:
                response = await self._send(raw)
            except aiohttp.ClientConnectorError as error:
                if not left:
                    raise UpstreamError(f"{self._name} can't be reached") from error
                await self._pause(0.2 * (RETRIES + 1 - left))
                continue
            self.back.clear()  # of several answers the last one's count
            self.back |= {
                name: value
                for name, value in response.headers.items()
                if name.lower().startswith(BACK) and value.isascii() and value.isprintable()
            }
            if response.status < 300:
                return response
            pause = _retry_after(response)
            if left and response.status in (429, 503) and pause is not None and pause <= PATIENCE:
                response.close()
                await self._pause(pause)
                continue
            raise await self._refusal(response, pause)
        raise AssertionError("unreachable")

    async def _send(self, raw: bytes) -> aiohttp.ClientResponse:
        limits = self._route.peer.limits
        # Silence is measured while the answer is read: before it another limit counts.
        timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect, sock_read=None)
        try:
            async with asyncio.timeout(limits.connect + limits.first_byte):
                return await self._session.post(
                    self._route.url,
                    data=raw,
                    headers=self._headers,
                    timeout=timeout,
                    allow_redirects=False,
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise self._late("did not accept a connection", limits.connect) from error
        except TimeoutError as error:
            raise self._late("did not answer", limits.first_byte) from error
        except aiohttp.ClientConnectorError:
            raise
        except Redirected as error:
            raise UpstreamError(f"{self._name} {error}") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise UpstreamError(f"{self._name} broke off before it answered") from error

    def _late(self, what: str, seconds: float) -> UpstreamLate:
        return UpstreamLate(f"{self._name} {what} within {seconds:g} seconds")

    async def _stream(self, response: aiohttp.ClientResponse) -> AsyncGenerator[list[Event]]:
        if "json" in response.content_type:
            yield [await self._whole(response)]
            return
        # Generators that are left halfway cost the loop a task each to end them.
        async with aclosing(self._read(response)) as parts, aclosing(sse.decode(parts)) as batches:
            async for batch in batches:
                for at, event in enumerate(batch):
                    if event is DONE:  # nothing counts after it
                        yield batch[: at + 1]
                        await _settle(response)
                        return
                    if event.get("error"):
                        batch[at] = self._hidden(event)
                yield batch

    async def _read(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """The body as it comes, within the limits of silence and size."""
        size = 0
        while True:
            async with asyncio.timeout(self._route.peer.limits.silence):
                part = await response.content.readany()
            if not part:
                return
            size += len(part)
            if size > MAX_ANSWER:
                raise UpstreamError(f"{self._name} gave an answer that is too large")
            yield part

    async def _whole(self, response: aiohttp.ClientResponse) -> Event:
        raw = b"".join([part async for part in self._read(response)])
        try:
            event = orjson.loads(raw)
        except ValueError as error:
            raise UpstreamError(f"{self._name} gave an answer that is not JSON") from error
        if not isinstance(event, dict):
            raise UpstreamError(f"{self._name} gave an answer that is not a JSON object")
        return self._hidden(event) if event.get("error") else event

    async def _refusal(
        self, response: aiohttp.ClientResponse, pause: float | None
    ) -> UpstreamRefused:
        words = await self._words(response)
        status = response.status
        if status in (400, 404, 422):
            return UpstreamRefused(
                words, status=404 if status == 404 else 400, code="upstream_refused"
            )
        if status in (401, 403):
            return UpstreamRefused(f"{self._name} refused the gateway's key ({status})")
        if status == 429:
            return UpstreamRefused(words, status=429, code="rate_limit_exceeded", retry_after=pause)
        return UpstreamRefused(f"{self._name} answered with the status {status}")

    async def _words(self, response: aiohttp.ClientResponse) -> str:
        """The provider's own message, without our key should it repeat it."""
        try:
            async with asyncio.timeout(5):
                parts = [part async for part in self._read(response)]
            event = orjson.loads(b"".join(parts))
            words = message_of(event) if isinstance(event, dict) else ""
        except (ValueError, TimeoutError, UpstreamError, aiohttp.ClientError):
            words = ""
        finally:
            response.close()
        return self._hide(words) or f"{self._name} answered with the status {response.status}"

    def _hidden(self, event: Event) -> Event:
        error, words = event["error"], self._hide(message_of(event))
        return {**event, "error": {**error, "message": words} if isinstance(error, dict) else words}

    def _hide(self, words: str) -> str:
        """The provider's words without our secrets, should it repeat them."""
        for secret in self._secrets:
            words = words.replace(secret, "***")
        return words[:2000]


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _authorization(route: Route, wire: str) -> dict[str, str]:
    key = route.peer.key
    if wire == "messages":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"} if key else {}
    return {"authorization": f"Bearer {key}"} if key else {}


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds to wait, if the provider gives them as a number (RFC 9110, 10.2.3)."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


async def _settle(response: aiohttp.ClientResponse) -> None:
    """Give the end of the body, which follows `[DONE]` at once, a moment to arrive: a body that is
    read to its end leaves the connection usable."""
    try:
        async with asyncio.timeout(0.05):
            while not response.content.at_eof():
                await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        pass
