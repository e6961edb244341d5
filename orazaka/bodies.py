"""Bodies on Django's chain say how long they are, and are not too long (spec 5).

DRF takes a body without Content-Length for none at all: what it asks for would be ignored.
"""

import asyncio

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

from orazaka.shortchain import BODY_SECONDS, Message, Receive

MOST_DIGITS = 18  # more are no number of bytes, and int() fails on thousands


class Bounded:
    """`receive` for Django's handler, which reads a body to its end before any middleware runs.

    Of a body that `BodyMiddleware` will refuse nothing is kept; one that stops coming is given up.
    """

    def __init__(self, scope: Message, receive: Receive) -> None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"").decode("latin1")
        self._skip = b"transfer-encoding" in headers or too_long(length)
        self._receive, self._over = receive, False

    async def __call__(self) -> Message:
        if self._skip:
            self._skip, self._over = False, True
            return {"type": "http.request", "body": b"", "more_body": False}
        if self._over:
            return await self._disconnect()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._over = not message.get("more_body", False)
        return message

    async def _disconnect(self) -> Message:
        """That the client left. Django takes a piece of a body here, such as those of one that is
        refused, for a fault of the server, and gives no answer."""
        while (message := await self._receive())["type"] != "http.disconnect":
            pass
        return message


def too_long(length: str) -> bool:
    """Whether a Content-Length is over the limit."""
    if not length.isdecimal():
        return False
    return len(length) > MOST_DIGITS or int(length) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE


class LengthRequired(BadRequest):
    """A body in chunks; clients that are asked send it whole (RFC 9110, 15.5.12)."""


class BodyMiddleware(MiddlewareMixin):
    """Raises what `orazaka.faces` turns into a 411 or 413 in the form of the face."""

    def process_request(self, request: HttpRequest) -> None:
        length = request.META.get("CONTENT_LENGTH") or ""
        if not length and "Transfer-Encoding" in request.headers:
            raise LengthRequired("a body without Content-Length")
        if too_long(length):
            raise RequestDataTooBig("a body over ORAZAKA_MAX_BODY_BYTES")
