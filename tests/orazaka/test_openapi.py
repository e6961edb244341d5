"""`/api/schema` and `/api/docs`: whole, true, and without a byte from elsewhere."""

import re
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import get_resolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema

from orazaka.openapi import REASONS, document
from tests.rest import problem

Json = Any


def operations() -> list[tuple[str, str, Json]]:
    """Path, method and operation of REST."""
    return [
        (path, method, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/api/")
    ]


def test_the_schema_is_openapi_3_1_and_made_without_warnings() -> None:
    document.cache_clear()
    GENERATOR_STATS.reset()
    assert document()["openapi"].startswith("3.1.")
    validate_schema(document())
    assert not GENERATOR_STATS


def test_anyone_gets_the_schema_as_json() -> None:
    response = Client().get("/api/schema", headers={"Authorization": "Bearer nonsense"})
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json() == document()


def test_every_path_of_rest_is_described() -> None:
    served = {
        re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", f"/{group.pattern}{route.pattern}")
        for group in get_resolver().url_patterns
        if str(group.pattern) == "api/v1/"
        for route in group.url_patterns  # type: ignore[union-attr]
    }
    assert served == {path for path, _, _ in operations()}
    assert {"/api/v1/keys", "/api/v1/turns/{id}"} <= served


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/api/v1/keys", "get", {200, 400, 401, 403, 429}),
        ("/api/v1/keys", "post", {201, 400, 401, 403, 411, 413, 415, 429}),
        ("/api/v1/keys/{id}", "delete", {204, 400, 401, 403, 404, 429}),
        ("/api/v1/turns", "get", {200, 400, 401, 403, 429}),
        ("/api/v1/turns/{id}", "get", {200, 400, 401, 403, 404, 429}),
    ],
)
def test_each_operation_names_the_errors_that_it_may_answer_with(
    path: str, method: str, statuses: set[int]
) -> None:
    assert {int(s) for s in document()["paths"][path][method]["responses"]} == statuses


def test_errors_are_described_as_problems() -> None:
    for status in REASONS:
        answer = document()["components"]["responses"][f"Problem{status}"]
        assert answer["description"]
        assert set(answer["content"]) == {"application/problem+json"}


def test_each_operation_says_what_it_does_under_a_name_of_its_own() -> None:
    assert all(operation["description"] for _, _, operation in operations())
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)


def test_keys_and_sessions_open_it() -> None:
    schemes = document()["components"]["securitySchemes"]
    assert schemes["key"]["scheme"] == "bearer"
    for _, _, operation in operations():
        assert operation["security"] == [{"key": []}, {"cookieAuth": []}]


# --- The page -------------------------------------------------------------------------------------
def test_the_page_loads_nothing_from_elsewhere() -> None:
    response = Client().get("/api/docs")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/html")
    page = response.content.decode()
    links = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert len(links) >= 5
    for link in links:
        assert link.startswith(("/static/", "/api/docs?")), link
        if link.startswith("/static/"):
            assert finders.find(link.removeprefix("/static/")), link
    assert "<script>" not in page  # nothing that a strict CSP would refuse


def test_the_pages_script_asks_for_the_schema_and_no_validator_elsewhere() -> None:
    response = Client().get("/api/docs?script=")
    assert response["Content-Type"] == "application/javascript"
    script = response.content.decode()
    assert "/api/schema" in script
    assert '"validatorUrl": null' in script
    assert "//cdn" not in script


def test_the_page_is_there_with_a_key_that_does_not_work() -> None:
    headers = {"Authorization": "Bearer nonsense", "Accept": "application/json"}
    assert Client().get("/api/docs", headers=headers).status_code == 200
    problem(Client().post("/api/docs"), 405)
