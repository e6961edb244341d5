"""Errors that no view answers, in the form of the face that was asked: problem details below
`/api`, a plain page elsewhere. `/v1` has its own chain (`orazaka.shortchain`)."""

from http import HTTPStatus

from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from orazaka.api import Fault, problem_response
from orazaka.bodies import LengthRequired
from orazaka.errors import OrazakaError
from orazaka.jsonbody import BodyTooLarge

API = "/api/"


def is_api(request: HttpRequest) -> bool:
    """Whether the answer is for a program."""
    return request.path.startswith(API)


@csrf_exempt  # whatever the method: there is nothing here to protect
def nothing(request: HttpRequest) -> HttpResponse:
    """The view of every path below `/api` that has no other."""
    return problem_response(
        OrazakaError("there is nothing at this path", status=404, code="not_found")
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler400, which is also told of bodies that are a 411 or 413."""
    error = _refusal(exception)
    if is_api(request):
        return problem_response(error)
    title = HTTPStatus(error.status).phrase
    page = defaults.ERROR_PAGE_TEMPLATE % {"title": title, "details": ""}
    return HttpResponse(page, status=error.status)


def _refusal(exception: Exception) -> OrazakaError:
    if isinstance(exception, RequestDataTooBig):
        return BodyTooLarge()
    if isinstance(exception, LengthRequired):
        words = "the body comes without Content-Length; send it whole"
        return OrazakaError(words, status=411, code="length_required")
    if isinstance(exception, DisallowedHost):
        # The exception's own words repeat the header.
        words = "this deployment does not answer to the name in the Host header (ALLOWED_HOSTS)"
        return OrazakaError(words, status=400, code="disallowed_host")
    return OrazakaError("the request can't be read", status=400, code="bad_request")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler403."""
    if is_api(request):
        return problem_response(OrazakaError("this is not allowed", status=403, code="forbidden"))
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler404."""
    return nothing(request) if is_api(request) else defaults.page_not_found(request, exception)


def failed(request: HttpRequest) -> HttpResponseBase:
    """Django's handler500."""
    return problem_response(Fault()) if is_api(request) else defaults.server_error(request)
