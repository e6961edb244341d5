"""`/v1` in the OpenAPI description: all that is served, with what the gateway adds."""

import re
from typing import Any

import jsonschema_rs
import pytest

from gateway import urls
from gateway.fields import Fields
from gateway.reference import FIELDS, REASONS
from orazaka.openapi import document

Json = Any
CHAT = {"model": "demo:demo", "messages": [{"role": "user", "content": "hi"}]}


def test_every_path_of_v1_is_described() -> None:
    served = {
        re.sub(r"<(?:\w+:)?\w+>", "{}", f"/v1/{pattern.pattern}") for pattern in urls.urlpatterns
    }
    described = {re.sub(r"{\w+}", "{}", path) for path in document()["paths"]}
    assert served == {path for path in described if path.startswith("/v1/")}


def test_every_member_of_the_gateways_own_has_words() -> None:
    assert FIELDS.keys() == Fields.model_fields.keys()
    properties = document()["components"]["schemas"]["Fields"]["properties"]
    assert {name: entry["description"] for name, entry in properties.items()} == FIELDS


def test_every_status_of_a_turn_is_described_in_openais_envelope() -> None:
    operation = document()["paths"]["/v1/chat/completions"]["post"]
    assert {int(s) for s in operation["responses"]} == {200, *REASONS}
    for status in REASONS:
        answer = document()["components"]["responses"][f"Error{status}"]
        assert answer["content"]["application/json"]["schema"] == {
            "$ref": "#/components/schemas/Error"
        }


def test_the_headers_and_the_trace_are_described() -> None:
    answer = document()["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]
    assert set(answer["headers"]) == {
        "X-Orazaka-Turn",
        "X-Orazaka-Rounds",
        "X-Orazaka-Tool-Calls",
    }
    assert set(answer["content"]) == {"application/json", "text/event-stream"}
    schemas = document()["components"]["schemas"]
    trace = schemas["Completion"]["properties"]["orazaka"]["properties"]["trace"]
    assert trace["items"] == {"$ref": "#/components/schemas/TraceStep"}


def fits(body: Json) -> bool:
    components = document()["components"]
    schema = {"$ref": "#/components/schemas/ChatRequest", "components": components}
    return jsonschema_rs.validator_for(schema).is_valid(body)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.5, "unknown": {"x": 1}},
        {"mcp_servers": [{"name": "s", "url": "http://127.0.0.1/mcp", "other": 1}]},
        {"mcp_servers": None, "max_tool_iterations": 25, "orazaka_tools": "none"},
        {"orazaka_tools": ["searchWeb"], "orazaka_trace": True, "tools_header": ""},
    ],
)
def test_a_body_that_is_taken_fits_the_description(more: Json) -> None:
    Fields.model_validate({name: more[name] for name in more if name in FIELDS})
    assert fits({**CHAT, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"model": 5},
        {"messages": []},
        {"mcp_servers": [{"name": "s"}]},
        {"mcp_servers": [{"name": "x" * 129, "url": "http://x"}]},
        {"max_tool_iterations": 26},
        {"orazaka_tools": "some"},
        {"orazaka_trace": "yes"},
        {"tools_header": "x" * 4001},
    ],
)
def test_a_body_that_is_refused_does_not_fit_it(more: Json) -> None:
    assert not fits({**CHAT, **more})
