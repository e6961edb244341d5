"""REST's bodies: JSON in UTF-8, bounded in size and depth; and one form of answer."""

from io import BytesIO
from typing import Any

import pytest
from rest_framework.exceptions import ParseError

from orazaka.jsonbody import MAX_DEPTH, BodyTooLarge, JSONParser, is_deeper
from tests.factories import UserFactory
from tests.rest import Rest, problem

Json = Any


def parsed(raw: bytes) -> Json:
    return JSONParser().parse(BytesIO(raw))


def nested(levels: int) -> bytes:
    """Lists and objects by turns."""
    halves = levels // 2
    opening, closing = b'[{"a":' * halves, b"}]" * halves
    return opening + (b"[]" if levels % 2 else b"1") + closing


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"{}", {}),
        (b' {"a": [1, 2.5, null, true, "\xc3\xa9\\u0000"]}\n', {"a": [1, 2.5, None, True, "é\0"]}),
        (b"[]", []),
        (b'"text"', "text"),
        (b"null", None),
    ],
)
def test_json_is_read(raw: bytes, value: Json) -> None:
    assert parsed(raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"hello",
        b'{"a": 1',
        b'{"a": 1} x',
        b"{'a': 1}",
        b"NaN",
        b"[Infinity]",
        b'"\xff\xfe"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ParseError):
        parsed(raw)


def test_a_body_may_have_100_levels_and_no_more() -> None:
    assert parsed(nested(MAX_DEPTH))
    with pytest.raises(ParseError, match="deeper than 100 levels"):
        parsed(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("value", "levels", "deeper"),
    [
        (1, 0, False),
        ([], 0, True),
        ([], 1, False),
        ({"a": []}, 1, True),
        ([1, {"a": [2]}], 2, True),
        ([1, {"a": [2]}], 3, False),
    ],
)
def test_levels_are_counted(value: Json, levels: int, deeper: bool) -> None:
    assert is_deeper(value, levels) is deeper


def test_a_body_is_read_no_further_than_its_limit(settings) -> None:
    settings.ORAZAKA_MAX_BODY_BYTES = 10
    stream = BytesIO(b'"' + b"x" * 1000)
    with pytest.raises(BodyTooLarge, match="larger than 10 bytes"):
        JSONParser().parse(stream)
    assert stream.tell() == 11
    assert parsed(b'"12345678"') == "12345678"


@pytest.mark.django_db
@pytest.mark.parametrize("accept", ["text/html", "application/xml", "x", "a/b;q=2", "é", "*/*;q=0"])
def test_whatever_a_client_accepts_it_gets_json(accept: str) -> None:
    client = Rest(user=UserFactory.create()).client
    response = client.get("/api/v1/keys?format=xml", headers={"Accept": accept})
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON ;x=y", 201),
        ("application/jsonx", 415),
        ("application/problem+json", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("x" * 10_000, 415),
        ("/", 415),
    ],
)
def test_other_kinds_of_bodies_are_a_415(kind: str, status: int) -> None:
    client = Rest(user=UserFactory.create()).client
    response = client.post("/api/v1/keys", b"{}", content_type=kind)
    if status == 201:
        assert response.status_code == 201
    else:
        problem(response, status)
