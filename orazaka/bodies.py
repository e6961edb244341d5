"""Bodies on Django's chain say how long they are, and are not too long (spec 5).

DRF takes a body without Content-Length for none at all: what it asks for would be ignored.
"""

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

MOST_DIGITS = 18  # more are no number of bytes, and int() fails on thousands


class LengthRequired(BadRequest):
    """A body in chunks; clients that are asked send it whole (RFC 9110, 15.5.12)."""


class BodyMiddleware(MiddlewareMixin):
    """Raises what `orazaka.faces` turns into a 411 or 413 in the form of the face."""

    def process_request(self, request: HttpRequest) -> None:
        length = request.META.get("CONTENT_LENGTH") or ""
        if not length and "Transfer-Encoding" in request.headers:
            raise LengthRequired("a body without Content-Length")
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if length.isdecimal() and (len(length) > MOST_DIGITS or int(length) > most):
            raise RequestDataTooBig("a body over ORAZAKA_MAX_BODY_BYTES")
