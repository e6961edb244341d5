"""REST's errors are problem details (RFC 9457), whatever was raised."""

import json
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView
from structlog.contextvars import bound_contextvars

from orazaka.api import exception_handler, problem_response
from orazaka.errors import OrazakaError


class Item(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=3)


class Order(serializers.Serializer[Any]):
    note = serializers.CharField()
    items = Item(many=True)

    def validate(self, attrs: Any) -> Any:
        raise serializers.ValidationError("never good")


class Raising(APIView):
    authentication_classes = permission_classes = ()
    error: Exception = Exception()

    def get_exception_handler(self) -> Any:
        return exception_handler

    def post(self, request: Any) -> Response:
        Order(data=request.data).is_valid(raise_exception=True)
        return Response()

    def get(self, request: Any) -> Response:
        raise self.error


def rendered(response: Any) -> Any:
    response.render()
    assert response["Content-Type"] == "application/problem+json"
    return json.loads(response.content)


def raised(error: Exception) -> Any:
    with bound_contextvars(request_id="r1"):
        return Raising.as_view(error=error)(APIRequestFactory().get("/"))


def posted(data: Any) -> Any:
    return Raising.as_view()(APIRequestFactory().post("/", data, format="json"))


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (OrazakaError("no", status=404, code="gone"), 404, "gone", "no"),
        (Http404("table x"), 404, "not_found", "Not found."),
        (exceptions.NotFound("no such tool"), 404, "not_found", "no such tool"),
        (PermissionDenied("inner"), 403, "permission_denied", None),
        (exceptions.NotAuthenticated(), 403, "not_authenticated", None),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed", None),
        (exceptions.UnsupportedMediaType("text/x"), 415, "unsupported_media_type", None),
        (exceptions.ParseError(), 400, "parse_error", None),
        (exceptions.APIException("odd", code="odd"), 500, "odd", "odd"),
    ],
)
def test_every_error_is_a_problem(
    error: Exception, status: int, code: str, detail: str | None
) -> None:
    response = raised(error)
    body = rendered(response)
    assert response.status_code == status
    assert body["detail"] == detail or (detail is None and body["detail"])
    assert body == {
        "type": "about:blank",
        "title": body["title"],
        "status": status,
        "detail": body["detail"],
        "code": code,
        "requestId": "r1",
        "errors": [],
    }
    assert body["title"]


def test_a_fault_of_ours_is_logged_and_told_in_one_neutral_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    response = raised(ZeroDivisionError("secret detail"))
    body = rendered(response)
    assert (response.status_code, body["code"]) == (500, "server_error")
    assert body["detail"] == "the server failed because of a fault of its own"
    assert "a REST view failed" in caplog.text
    assert "secret detail" in caplog.text


def test_a_problem_names_the_field_at_fault_by_its_path() -> None:
    body = rendered(posted({"items": [{"name": "abc"}, {"name": "abcd"}, {}]}))
    assert (body["status"], body["code"]) == (400, "invalid")
    assert [error["path"] for error in body["errors"]] == ["note", "items[1].name", "items[2].name"]
    assert all(error["message"] for error in body["errors"])


def test_a_problem_of_the_whole_has_no_path() -> None:
    body = rendered(posted({"note": "n", "items": []}))
    assert body["errors"] == [{"path": "", "message": "never good"}]


@pytest.mark.parametrize("data", [[], [1], "text", 1, None])
def test_a_body_that_is_no_object_is_a_problem(data: Any) -> None:
    body = rendered(posted(data))
    assert body["status"] == 400
    assert body["errors"]


def test_a_problem_of_an_async_view_is_the_same() -> None:
    error = OrazakaError("wait", status=429, code="late", param="a[0]", retry_after=1.2)
    response, ours = problem_response(error), raised(error)
    body = json.loads(response.content)
    assert response["Content-Type"] == "application/problem+json"
    assert response["Retry-After"] == ours["Retry-After"] == "2"
    assert body == rendered(ours) | {"requestId": ""}
    assert body["errors"] == [{"path": "a[0]", "message": "wait"}]


def test_a_401_says_how_to_authenticate_and_a_429_when_to_come_back() -> None:
    assert raised(OrazakaError("who", status=401))["WWW-Authenticate"] == "Bearer"
    assert raised(exceptions.Throttled(wait=2.1))["Retry-After"] == "3"
