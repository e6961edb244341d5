import gc
import json
import weakref
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.schemas import DRAFT_7, WEATHER, doubling, properties
from tools.base import ToolError, ToolSpec
from tools.schema import BadArguments, BrokenSchema, arguments_of, checker


def spec(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name="t", schema=schema)


def refusal(text: str, schema: dict[str, Any] | None = None) -> str:
    with pytest.raises(BadArguments) as caught:
        arguments_of(text, spec(schema or {}))
    return str(caught.value).removeprefix("the arguments are wrong: ")


# --- the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(text):
    assert arguments_of(text, spec({"type": "object"})) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"city": "Par', "$ is not JSON: it ends too early, after 13 characters"),
        ('{"city":', "$ is not JSON: it ends too early, after 8 characters"),
        ("{'a': 1}", "$ is not JSON: Expecting property name enclosed in double quotes at "),
        ('{"a": 1} {}', "$ is not JSON: Extra data at character 10 of 11"),
        ('["Paris"]', "$ must be a JSON object, such as {}"),
        ("null", "$ must be a JSON object, such as {}"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', '$ has the property "c" twice'),
        ('{"a": NaN}', "$ has NaN, which is not JSON"),
        ('{"a": 1e999}', "$ has a number that is too large"),
        ('{"a": ' + "9" * 5000 + "}", "$ has a number that is too long"),
        ('{"a": "\\ud83d"}', "$ has half of a surrogate pair, which is not a character"),
        ('{"a": "\ud83d"}', "$ has half of a surrogate pair, which is not a character"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "$ has more than 100 levels"),
        ("[" * 500_000, "$ has more than 100 levels"),
        ('{"a": "' + "é" * 2**19 + '"}', "$ is longer than 1048576 bytes"),
    ],
)
def test_text_that_is_not_one_clear_object_is_refused_in_words(text, words):
    assert refusal(text).startswith(words)


def test_a_hundred_levels_and_large_integers_pass_unchanged():
    text = '{"a": ' + "[" * 99 + "123456789012345678901234567890" + "]" * 99 + "}"
    assert json.dumps(arguments_of(text, spec({}))) == text


def test_a_whole_emoji_and_an_escaped_backslash_pass():
    assert arguments_of('{"a": "\\ud83d\\ude00 \\\\ud83d"}', spec({})) == {"a": "😀 \\ud83d"}


@given(st.text() | st.from_regex(r'\A\{("[ab]": ?(\[|\]|1|-0\.0|"\\u[0-9a-f]{4}"|null),? ?)*\}?\Z'))
def test_any_text_gives_an_object_or_a_tool_error(text):
    try:
        assert isinstance(arguments_of(text, spec(properties(a={"type": "array"}))), dict)
    except ToolError as error:
        assert str(error)


# --- the schema's word ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "$.city is required"),
        ({"city": 5}, "$.city must be string, not integer"),
        ({"city": "x"}, "$.city must have at least 2 characters"),
        ({"city": "Rom", "unit": "k"}, '$.unit must be one of "celsius", "fahrenheit"'),
        ({"city": "Rom", "days": 5.5}, "$.days must be integer, not number"),
        ({"city": "Rom", "days": 0}, "$.days must be at least 1"),
        ({"city": "Rom", "days": 99}, "$.days must be at most 14"),
        ({"city": "Rom", "tags": ["a", True]}, "$.tags[1] must be string, not boolean"),
        ({"city": "Rom", "tags": ["a"] * 3}, "$.tags must have at most 2 items"),
        ({"city": "Rom", "odd": []}, "$.odd must be boolean or string, not array"),
        ({"city": "Rom", "code": "abc"}, "$.code must match the pattern ^[A-Z]{3}$"),
        ({"city": "Rom", "where": 1}, "$.where must be object or string, not integer"),
        ({"city": "Rom", "where": {}}, "nearest: $.where.lat is required"),
        ({"city": "Rom", "fixed": 8}, "$.fixed must be 7"),
        ({"city": "Rom", "strange key": 1}, '$["strange key"] is not a known property'),
    ],
)
def test_what_does_not_fit_is_said_with_its_path(arguments, words):
    assert words in refusal(json.dumps(arguments), WEATHER)


def test_several_problems_are_named_and_the_rest_is_counted():
    text = json.dumps({f"k{at}": 1 for at in range(9)})
    assert refusal(text, {"type": "object", "maxProperties": 3, **WEATHER}).endswith("and 6 more")


def test_problems_carry_path_and_message_for_rest():
    with pytest.raises(BadArguments) as caught:
        arguments_of('{"city": 5}', spec(WEATHER))
    [problem] = caught.value.problems
    assert (problem.path, problem.message) == ("$.city", "must be string, not integer")


def test_a_refusal_never_repeats_values():
    secret = "hunter2-" * 1000
    text = json.dumps({"city": [secret], "unit": secret, secret: 1})
    words = refusal(text, WEATHER)
    assert words.count("hunter2") <= 10  # an unknown name is named, but cut
    assert len(words) < 500


def test_options_are_cut_to_a_bearable_list():
    words = refusal('{"a": 0}', properties(a={"enum": ["x" * 500] + [f"o{n}" for n in range(50)]}))
    assert "and 39 others" in words
    assert len(words) < 300


def test_exactly_one_alternative_may_fit():
    schema = properties(a={"oneOf": [{"type": "integer"}, {"minimum": 1}]})
    assert "fits more than one of the alternatives" in refusal('{"a": 5}', schema)


def test_alternatives_within_alternatives_are_told_by_what_is_innermost():
    ladder = {f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}]} for at in range(400)}
    schema = {
        "$defs": {**ladder, "a400": {"required": ["x"]}},
        **properties(a={"$ref": "#/$defs/a0"}),
    }
    assert refusal('{"a": {}}', schema) == (
        "$.a fits none of the alternatives; nearest: $.a.x is required"
    )


def test_to_fit_to_the_letter_is_more_than_to_be_acceptable_as_arguments():
    known = checker(spec(WEATHER))
    value = {"city": "Rom", "days": None}
    assert known.fits({"city": "Rom"}, length=15)
    assert not known.fits(value, length=30)
    assert known.problems(value, length=30) == []
    assert value == {"city": "Rom"}


def test_a_whole_number_with_a_point_is_an_integer():
    assert arguments_of('{"city": "Rom", "days": 5.0}', spec(WEATHER)) == {"city": "Rom", "days": 5}


def test_a_recursive_schema_is_followed_as_deep_as_the_arguments_go():
    tree = {**properties(value={"type": "integer"}, next={"$ref": "#"}), "required": ["value"]}
    good = '{"value": 1, "next": {"value": 2}}'
    assert arguments_of(good, spec(tree)) == json.loads(good)
    assert refusal('{"value": 1, "next": {"value": "x"}}', tree) == (
        "$.next.value must be integer, not string"
    )


def test_the_draft_is_the_one_that_the_schema_names():
    old = {"$schema": DRAFT_7, **properties(a={"items": [{"type": "string"}, {"type": "integer"}]})}
    assert refusal('{"a": ["x", "y"]}', old) == "$.a[1] must be integer, not string"
    new = properties(a={"prefixItems": [{"type": "string"}, {"type": "integer"}]})
    assert refusal('{"a": ["x", "y"]}', new) == "$.a[1] must be integer, not string"


# --- null for "not given" -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "given", "taken"),
    [
        (properties(a={"type": "string"}), {"a": None}, {}),
        (properties(a={"enum": ["x"]}, b={}), {"a": None, "b": 1}, {"b": 1}),
        (properties(a={"type": ["string", "null"]}), {"a": None}, {"a": None}),
        (properties(a={"anyOf": [{"type": "string"}, {"type": "number"}]}), {"a": None}, {}),
        (properties(a=properties(b={"type": "string"})), {"a": {"b": None}}, {"a": {}}),
        (
            properties(a={"type": "array", "items": properties(b={"type": "string"})}),
            {"a": [{"b": None}, {"b": "x"}]},
            {"a": [{}, {"b": "x"}]},
        ),
        (
            {**properties(a={"$ref": "#/$defs/x"}), "$defs": {"x": properties(b={"const": 1})}},
            {"a": {"b": None}},
            {"a": {}},
        ),
        (
            properties(a={"anyOf": [properties(b={"type": "string"}), {"type": "null"}]}),
            {"a": {"b": None}},
            {"a": {}},
        ),
        ({"type": "object"}, {"a": None}, {"a": None}),
        (properties(a={"type": "array", "items": {}}), {"a": [None]}, {"a": [None]}),
    ],
)
def test_null_is_dropped_where_it_is_optional_and_not_wanted(schema, given, taken):
    assert arguments_of(json.dumps(given), spec(schema)) == taken


def test_null_for_a_required_property_is_a_wrong_value():
    assert refusal('{"city": null, "days": null}', WEATHER) == "$.city must be string, not null"


def test_null_among_the_items_of_a_list_is_a_wrong_value():
    assert refusal('{"city": "Rom", "tags": [null]}', WEATHER) == (
        "$.tags[0] must be string, not null"
    )


# --- schemas that can't be used -------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "not valid"),
        ({"properties": []}, "not valid"),
        (properties(a={"pattern": "("}), "not valid"),
        ({"$schema": "http://example.com/mine"}, "not valid"),
        ({"$ref": "#/$defs/missing"}, "not valid"),
        ({"$ref": "http://127.0.0.1:1/schema"}, "only what is inside the schema"),
        ({"$ref": "file:///etc/hostname"}, "only what is inside the schema"),
        ({"type": "string"}, "takes no object"),
        (properties(a={"maximum": float("nan")}), "not valid"),
        (properties(**{"a\ud800": {}}), "not JSON"),
        (properties(a={"const": 2**70}), "not JSON"),
        ({"description": "x" * 65_536}, "65554 bytes; 65536 are the most"),
        (nested(65), "more than 64 levels"),
        (nested(5000), "not JSON, or far too deep"),
        (properties(a={"pattern": r"[\p{L}\p{N}]{5000}"}), "not valid"),
    ],
)
def test_a_broken_schema_is_named_as_such(schema, words):
    with pytest.raises(BrokenSchema, match=words) as caught:
        checker(spec(schema))
    assert len(str(caught.value)) < 300


def test_a_schema_at_the_limits_is_used():
    assert checker(spec(nested(64)))


def test_a_compiled_schema_is_kept_as_long_as_its_tool():
    tool = spec(WEATHER)
    kept = weakref.ref(checker(tool))
    assert checker(tool) is kept()
    del tool
    gc.collect()
    assert kept() is None


# --- traps ----------------------------------------------------------------------------------------


LADDER = {"$defs": doubling(), **properties(p={"$ref": "#/$defs/a0"})}
BY_ANCHOR = {
    "$defs": doubling("#a{}", **{"$anchor": "a{}"}),
    **properties(p={"$ref": "#a0"}),
}
BY_OLD_ANCHOR = {
    "$schema": DRAFT_7,
    "definitions": doubling("#a{}", **{"$id": "#a{}"}),
    **properties(p={"$ref": "#a0"}),
}
EMBEDDED = {
    "$id": "http://example.com/outer",
    "$defs": {
        "a0": {},
        "inner": {"$id": "/x/inner", "$ref": "#/$defs/a0", "$defs": doubling()},
    },
    **properties(p={"$ref": "http://example.com/x/inner"}),
}
BRANCHING = {
    "$defs": {
        "n": {
            "anyOf": [
                {**properties(p={"$ref": "#/$defs/n"}), "required": [word]} for word in "abc"
            ],
        }
    },
    "$ref": "#/$defs/n",
}
DEEP = '{"p": ' * 60 + "{}" + "}" * 60


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (LADDER, '{"p": 1}'),
        (BY_ANCHOR, '{"p": 1}'),
        (BY_OLD_ANCHOR, '{"p": 1}'),
        (EMBEDDED, '{"p": 1}'),
        (BRANCHING, DEEP),
        ({"anyOf": [{"$ref": "#"}, {"type": "object"}]}, "{}"),
        (
            properties(p={"items": {"pattern": r"^(a|aa)+\1$"}}),
            json.dumps({"p": ["a" * 40] * 9999}),
        ),
        (
            {"patternProperties": {f"x{n}": {} for n in range(999)}},
            json.dumps({f"k{n}": 1 for n in range(999)}),
        ),
        (properties(p={"allOf": [{"type": "string"}] * 999}), json.dumps({"p": [[1] * 99] * 999})),
        ({"anyOf": [{"required": [f"k{n}"]} for n in range(999)]}, json.dumps({"p": "y" * 10**6})),
    ],
)
def test_no_schema_makes_a_check_long(schema, text):
    began = process_time()
    with pytest.raises(ToolError, match="too large"):
        arguments_of(text, spec(schema))
    assert process_time() - began < 5  # unguarded: minutes to years


def test_large_but_simple_arguments_are_checked():
    schema = properties(path={"type": "string"}, content={"type": "string"})
    text = json.dumps({"path": "a.txt", "content": "x" * 10**6, "more": None})
    assert arguments_of(text, spec(schema))["content"] == "x" * 10**6
