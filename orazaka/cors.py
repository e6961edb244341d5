"""Cross-origin requests to `/v1` and `/api` from the pages of ORAZAKA_CORS_ORIGINS (Fetch, 3.3).

Keys only: no answer allows credentials, so cookies of a signed-in person never come along.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.deprecation import MiddlewareMixin

PATHS = ("/v1/", "/api/")
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
# Clients name many headers of their own; what may not be in a list of names is not repeated.
NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")
SHOWN = re.compile(r"x-orazaka-|x-request-id|x-ratelimit-|retry-after", re.IGNORECASE)
REMEMBERED_SECONDS = 600
HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")


def preflight(request: HttpRequest) -> HttpResponse | None:
    """The answer to a browser that asks before it sends; None for all other requests."""
    if request.method != "OPTIONS" or not _is_allowed(request):
        return None
    if "Access-Control-Request-Method" not in request.headers:
        return None
    response = HttpResponse(status=204)
    del response["Content-Type"]  # there is none
    response["Access-Control-Allow-Methods"] = METHODS
    response["Access-Control-Max-Age"] = str(REMEMBERED_SECONDS)
    names = request.headers.get("Access-Control-Request-Headers", "")
    if NAMES.fullmatch(names):
        response["Access-Control-Allow-Headers"] = names
    return response


def allow(request: HttpRequest, response: HttpResponseBase) -> None:
    """Let the page that asked read the response, and the headers that are ours."""
    if not settings.ORAZAKA_CORS_ORIGINS or not request.path.startswith(PATHS):
        return
    patch_vary_headers(response, ["Origin"])
    if _is_allowed(request):
        response["Access-Control-Allow-Origin"] = request.headers["Origin"]
        shown = {"X-Request-ID", *(name for name in response.headers if SHOWN.match(name))}
        response["Access-Control-Expose-Headers"] = ", ".join(sorted(shown))


def _is_allowed(request: HttpRequest) -> bool:
    origins = settings.ORAZAKA_CORS_ORIGINS
    origin = request.headers.get("Origin")
    return bool(origin and request.path.startswith(PATHS) and {origin, "*"} & set(origins))


class CorsMiddleware(MiddlewareMixin):
    """For Django's chain; `/v1` has its own chain and calls the functions above."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        return preflight(request)

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        allow(request, response)
        return response


# --- Settings -------------------------------------------------------------------------------------
@register(Tags.security)
def origins_are_sound(**_: Any) -> Iterator[CheckMessage]:
    """E010: an origin is what a browser sends, to the letter."""
    for origin in settings.ORAZAKA_CORS_ORIGINS:
        if origin != "*" and origin != _sent_as(origin):
            yield Error(
                f"ORAZAKA_CORS_ORIGINS has {origin!r}, which no browser sends as an origin.",
                hint="Write scheme, host and a port that is not the scheme's own, in lower case "
                "and without a path, such as https://app.example.com.",
                id="orazaka.E010",
            )


def _sent_as(origin: str) -> str | None:
    """How a browser writes the origin of such a URL (RFC 6454, section 6.2); None if it is none."""
    try:
        parts = urlsplit(origin)
        port, host = parts.port, parts.hostname
    except ValueError:
        return None
    name = f"[{host}]" if host and ":" in host else host or ""
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(name):
        return None
    own = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{name}" + (f":{port}" if port not in (None, own) else "")
