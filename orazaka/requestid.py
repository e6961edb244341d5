"""A name for every request: the client's, if it is sane, else ours; in logs and on the answer."""

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from structlog.contextvars import bound_contextvars, get_contextvars

HEADER = "X-Request-ID"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


def request_id_of(headers: Mapping[str, str]) -> str:
    """The request's id: what the client sent, if it is harmless in logs, else a fresh one."""
    sent = headers.get(HEADER, "")
    return sent if _SANE.fullmatch(sent) else uuid.uuid4().hex


def current_request_id() -> str:
    """The id of the request in whose context this runs; "" outside of one."""
    return str(get_contextvars().get("request_id", ""))


type Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class RequestIdMiddleware:
    """For Django's chain, sync or async; `/v1` has its own chain and uses `request_id_of`."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        request_id = request_id_of(request.headers)
        if self.is_async:
            return self._answer(request, request_id)
        with bound_contextvars(request_id=request_id):
            response = cast(HttpResponseBase, self.get_response(request))
        response[HEADER] = request_id
        return response

    async def _answer(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        with bound_contextvars(request_id=request_id):
            response = await cast(Awaitable[HttpResponseBase], self.get_response(request))
        response[HEADER] = request_id
        return response
