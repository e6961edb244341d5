"""REST's one place where errors become answers: problem details (RFC 9457, spec 1.6)."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from orazaka.errors import OrazakaError
from orazaka.requestid import current_request_id

log = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"


class Fault(OrazakaError):
    """What a caller sees of an error that is ours: one neutral sentence (design, decision 10)."""

    def __init__(self) -> None:
        super().__init__("the server failed because of a fault of its own")


def problem(
    status: int, detail: str, *, code: str, errors: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """The members of a problem; `errors` are {path, message}, path as in `servers[0].name`."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "requestId": current_request_id(),
        "errors": list(errors),
    }


def problem_response(error: OrazakaError) -> HttpResponse:
    """The answer of an async view, which DRF's handler does not see."""
    status, body, headers = _of_ours(error)
    return HttpResponse(
        orjson.dumps(body), status=status, content_type=CONTENT_TYPE, headers=headers
    )


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's EXCEPTION_HANDLER. Logs what is a fault of ours; never gives None."""
    set_rollback()
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, exceptions.APIException):
        status, body, headers = _of_drf(error)
    else:
        if not isinstance(error, OrazakaError):
            log.error("a REST view failed", exc_info=error)
            error = Fault()
        status, body, headers = _of_ours(error)
    return Response(body, status=status, headers=headers, content_type=CONTENT_TYPE)


type Parts = tuple[int, dict[str, Any], dict[str, str]]


def _of_ours(error: OrazakaError) -> Parts:
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    errors = [{"path": error.param, "message": error.message}] if error.param else []
    body = problem(error.status, error.message, code=error.code, errors=errors)
    return error.status, body, headers


def _of_drf(error: exceptions.APIException) -> Parts:
    headers = {}
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(math.ceil(wait))
    status, code = error.status_code, str(getattr(error.detail, "code", error.default_code))
    if isinstance(error, exceptions.ValidationError):
        errors = list(_flat(error.detail, ""))
        body = problem(status, "the request is not valid", code=code, errors=errors)
    else:
        body = problem(status, str(error.detail), code=code)
    return status, body, headers


def _flat(detail: Any, path: str) -> Iterator[Mapping[str, str]]:
    """DRF's nested messages as {path, message}; items of lists go under their number."""
    if isinstance(detail, str):
        yield {"path": path, "message": str(detail)}
    elif isinstance(detail, dict):
        for name, inner in detail.items():
            yield from _flat(inner, _below(path, name))
    else:
        for index, inner in enumerate(detail):
            yield from _flat(inner, path if isinstance(inner, str) else _below(path, index))


def _below(path: str, name: str | int) -> str:
    if name == "non_field_errors":
        return path
    return f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".lstrip(".")
