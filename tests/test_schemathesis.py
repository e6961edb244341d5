"""schemathesis against REST, in process: nothing that the description allows or forbids makes a
5xx, an undocumented status, or an answer that does not fit."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway.models import Turn
from orazaka.openapi import document
from tests.factories import issue
from tests.gateway.rows import step, turn
from tests.rest import staff

pytestmark = pytest.mark.django_db

rest = schemathesis.openapi.from_dict(document()).include(path_regex="^/api/")
rest.app = get_wsgi_application()


@pytest.fixture(autouse=True)
def one_connection() -> Iterator[None]:
    """The test's own, as with Django's test client: a server closes old ones at each request."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def headers() -> dict[str, str]:
    """Those of someone who may see all turns."""
    return {"Authorization": f"Bearer {issue(staff('view_turn'))[1]}"}


@pytest.fixture
def kept() -> Turn:
    """A turn with a step of each kind."""
    offered = [{"name": "weekday", "source": "inline:sample", "reason": ""}]
    kept = turn(offered=offered, first_output_ms=1.5, key_id=1)
    for position, kind in enumerate(("server", "model", "tool", "note")):
        step(kept, position, kind=kind, detail={"round": 1})
    return kept


def check(case: Any, headers: dict[str, str]) -> Any:
    # A description can't say that a time must be in the future, or a cursor one of ours.
    excluded = [positive_data_acceptance]
    return case.call_and_validate(headers=headers, excluded_checks=excluded)


@rest.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_rest_does_what_its_description_says(case: Any, headers, kept) -> None:
    check(case, headers)


def test_a_turn_is_as_described(headers, kept) -> None:
    case = rest["/api/v1/turns/{id}"]["GET"].Case(path_parameters={"id": str(kept.pk)})
    assert check(case, headers).status_code == 200


def test_a_page_is_as_described(headers, kept) -> None:
    turn()
    case = rest["/api/v1/turns"]["GET"].Case(query={"pageSize": 1})
    assert check(case, headers).json()["next"]
