"""Every request has an id: the client's if it is sane, in the logs and on the answer."""

import re

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from orazaka.requestid import RequestIdMiddleware, current_request_id, request_id_of

OURS = re.compile(r"[0-9a-f]{32}")


@pytest.mark.parametrize("sent", ["a", "abc-123_x.y", "0" * 128, "7f9c3a52-1111-2222-3333-444"])
def test_a_sane_id_of_the_client_is_kept(sent: str) -> None:
    assert request_id_of({"X-Request-ID": sent}) == sent


@pytest.mark.parametrize(
    "sent",
    ["", " ", "a b", "x" * 129, "a\r\nX: y", "a\n", "é", "٣", "<script>", "a/b", "\x00", "a,b"],
)
def test_any_other_id_is_replaced(sent: str) -> None:
    assert OURS.fullmatch(request_id_of({"X-Request-ID": sent}))


def test_without_an_id_each_request_gets_its_own() -> None:
    assert request_id_of({}) != request_id_of({})


def request(**headers: str) -> HttpRequest:
    return RequestFactory().get("/", headers={"x-request-id": "mine"} | headers)


def answer(_: HttpRequest) -> HttpResponse:
    return HttpResponse(current_request_id())


async def answer_later(_: HttpRequest) -> HttpResponse:
    return HttpResponse(current_request_id())


def test_a_sync_view_knows_the_id_and_the_answer_carries_it() -> None:
    response = RequestIdMiddleware(answer)(request())
    assert isinstance(response, HttpResponse)
    assert (response.content, response["X-Request-ID"]) == (b"mine", "mine")


async def test_an_async_view_knows_the_id_and_the_answer_carries_it() -> None:
    middleware = RequestIdMiddleware(answer_later)
    assert iscoroutinefunction(middleware)
    response = await middleware(request())
    assert isinstance(response, HttpResponse)
    assert (response.content, response["X-Request-ID"]) == (b"mine", "mine")


def test_after_the_request_the_id_is_gone() -> None:
    RequestIdMiddleware(answer)(request())
    assert current_request_id() == ""


def test_an_error_page_carries_the_id_too(client) -> None:
    response = client.get("/there-is-nothing-here", headers={"x-request-id": "mine"})
    assert response.status_code == 404
    assert response["X-Request-ID"] == "mine"
