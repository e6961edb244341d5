import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.schemas import DRAFT_7, WEATHER, doubling, properties
from tests.wires.refusals import check_schema
from tools.base import ToolSpec
from tools.schema import BadArguments, arguments_of, provider_schema


def test_an_object_without_properties_gets_empty_ones():
    assert provider_schema({"type": "object"}) == {"type": "object", "properties": {}}
    assert provider_schema({}) == {"type": "object", "properties": {}}
    inner = provider_schema(properties(a={"type": "object"}, b={"items": {"type": "object"}}))
    assert inner["properties"]["a"]["properties"] == {}
    assert inner["properties"]["b"]["items"]["properties"] == {}


def test_a_property_called_type_is_not_taken_for_a_type():
    schema = properties(type={"const": "object"}, properties={"type": "string"})
    assert provider_schema(schema) == schema


def test_definitions_and_recursive_references_stay():
    schema = {**properties(p={"$ref": "#/$defs/X"}), "$defs": {"X": properties(x={"$ref": "#"})}}
    assert provider_schema(schema) == schema


def test_the_dialect_is_not_named():
    assert provider_schema({"$schema": DRAFT_7, **properties()}) == properties()


def test_alternatives_at_the_top_become_one_object_that_says_so():
    schema = {
        "description": "Draws.",
        "anyOf": [
            {
                **properties(kind={"const": "dot"}, x={"type": "number"}),
                "required": ["kind", "x"],
                "additionalProperties": False,
            },
            {**properties(kind={"const": "text"}, s={"type": "string"}), "required": ["kind", "s"]},
        ],
    }
    assert provider_schema(schema) == {
        "type": "object",
        "description": "Draws. Give at least one of: kind and x, or kind and s.",
        "properties": {
            "kind": {"enum": ["dot", "text"]},
            "x": {"type": "number"},
            "s": {"type": "string"},
        },
        "required": ["kind"],
    }
    with pytest.raises(BadArguments):
        arguments_of('{"kind": "dot", "s": "hi"}', ToolSpec(name="draw", schema=schema))


def test_parts_that_must_all_hold_are_joined():
    schema = {
        "$defs": {"base": {**properties(a={"type": "integer"}), "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {**properties(a={"minimum": 3}), "required": ["b"]}],
    }
    assert provider_schema(schema) == {
        "$defs": schema["$defs"],
        "type": "object",
        "properties": {"a": {"allOf": [{"type": "integer"}, {"minimum": 3}]}},
        "required": ["a", "b"],
    }


def test_a_schema_that_is_only_a_reference_is_followed():
    node = {**properties(next={"$ref": "#/definitions/node"}, n={}), "required": ["n"]}
    schema = {"$ref": "#/definitions/node", "definitions": {"node": node}}
    assert provider_schema(schema) == {**node, "definitions": {"node": node}}


def test_references_into_a_branch_still_lead_somewhere():
    schema = {"oneOf": [properties(a={"type": "string"}), {"$ref": "#/oneOf/0"}]}
    made = provider_schema({**schema, **properties(b={"$ref": "#/oneOf/0/properties/a"})})
    assert made["properties"]["b"] == {"$ref": "#/$defs/oneOf.0/properties/a"}
    assert made["$defs"]["oneOf.0"] == properties(a={"type": "string"})


def test_a_tuple_of_draft_7_is_said_in_todays_words():
    made = provider_schema(properties(a={"type": "array", "items": [{"type": "string"}, True]}))
    assert made["properties"]["a"] == {
        "type": "array",
        "prefixItems": [{"type": "string"}, {}],
        "items": {},
    }


TABLE: list[dict[str, Any]] = [
    {},
    {"type": ["object", "null"]},
    {"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {"type": "object"}}},
    {"$ref": "#"},
    {"anyOf": [True, {"type": "null"}]},
    {"oneOf": [properties(a={"type": "array"}), {"anyOf": [{"required": ["b"]}]}]},
    {"allOf": [{"if": {"required": ["a"]}, "then": {"required": ["b"]}}]},
    {"not": {"required": ["a"]}, "enum": [{}], "const": {}},
    {"allOf": [{"$ref": "#/$defs/odd"}], "$defs": {"odd": {}}, "odd": {"properties": 5}},
    {"allOf": [{"$ref": "#/odd"}], "odd": {"properties": 5, "required": 5, "anyOf": 5}},
    properties(a=True, b={"type": "array"}, c={"type": "array", "items": [{}]}),
    WEATHER,
    {"$defs": doubling(), "$ref": "#/$defs/a0"},
    {"$defs": {"big": {"description": "x" * 60_000}}}
    | {"allOf": [properties(**{f"p{n}": {"$ref": "#/$defs/big"}}) for n in range(150)]},
]


@pytest.mark.parametrize("schema", TABLE)
def test_a_strict_provider_takes_what_it_is_sent(schema):
    before = json.dumps(schema)
    made = provider_schema(schema)
    check_schema(made, "parameters")
    assert len(json.dumps(made)) < 256 * 1024
    assert json.dumps(schema) == before


json_schemas = st.recursive(
    st.sampled_from([{}, True, {"type": "object"}, {"type": "array"}, {"$ref": "#"}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", ["object", "null"]]),
            "properties": st.dictionaries(st.sampled_from(["a", "type"]), inner),
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "additionalProperties": inner,
        },
    ),
    max_leaves=12,
)


@given(json_schemas)
def test_a_strict_provider_takes_any_projected_schema(schema):
    check_schema(provider_schema(schema if isinstance(schema, dict) else {}), "parameters")
