"""What a tool's result becomes: text for the model, images apart, the rest as notes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_servers.output import MISFIT, MISSING, output_note
from mcp_servers.results import BROKEN_NOTE, cut, to_result
from tools.base import Image, ToolResult, ToolSpec

PIXEL = "iVBORw0KGgo="


def result(*content: Any, **more: Any) -> ToolResult:
    return to_result({"content": list(content)} | more, max_chars=1000)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_text_is_passed_as_it_is():
    assert result(text(" one\n"), text("two ✓")).text == " one\n\ntwo ✓"


def test_structured_content_stands_in_for_missing_text():
    assert result(structuredContent={"n": 3, "ü": [None]}).text == '{"n":3,"ü":[null]}'


@pytest.mark.parametrize("value", [0, False, [], {}, "x", 10**30], ids=str)
def test_structured_content_may_be_any_json(value: Any):
    assert result(structuredContent=value).structured == value
    assert result(structuredContent=value).text != ""


def test_structured_content_is_not_said_twice():
    given_both = result(text("three"), structuredContent={"n": 3})
    assert (given_both.text, given_both.structured) == ("three", {"n": 3})


def test_structured_content_beside_an_image_is_said():
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    both = result(image, structuredContent={"n": 3})
    assert (both.text, len(both.images)) == ('{"n":3}', 1)


def test_an_image_goes_its_own_way():
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    shown = result(text("look"), image)
    assert shown.images == (Image("image/png", PIXEL),)
    assert shown.text == "look"
    assert shown.content == [text("look"), image]


def test_the_text_of_a_resource_comes_with_its_uri():
    block = {"type": "resource", "resource": {"uri": "mem://note", "text": "milk"}}
    assert result(block).text == "[resource mem://note]\nmilk"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="},
            "[audio, audio/wav, 4 bytes: not shown]",
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "mem://x", "mimeType": "application/pdf", "blob": "AAAA"},
            },
            "[resource mem://x, application/pdf, 3 bytes: not shown]",
        ),
        (
            {"type": "resource_link", "uri": "mem://n", "name": "note", "size": 9},
            "[link to resource mem://n: note, 9 bytes]",
        ),
        ({"type": "resource_link", "uri": "mem://n"}, "[link to resource mem://n]"),
        ({"type": "hologram", "x": 1}, "[hologram, 25 bytes: not shown]"),
        ({"type": "image", "data": PIXEL}, "[image, 38 bytes: not shown]"),
        ({"type": "text"}, "[text, 15 bytes: not shown]"),
        ({}, "[unknown kind, 2 bytes: not shown]"),
        ("words", BROKEN_NOTE),
        (None, BROKEN_NOTE),
    ],
    ids=str,
)
def test_what_the_model_cannot_have_is_described(block: Any, words: str):
    assert result(block).text == words


def test_an_error_stays_one():
    assert result(text("refused"), isError=True).is_error
    assert not result(text("fine")).is_error
    assert not result(text("fine"), isError="yes").is_error


def test_a_nul_character_does_no_harm():
    assert result(text("a\0b")).text == "a\ufffdb"
    assert "\0" not in result(structuredContent={"a": "\0"}).text


@pytest.mark.parametrize("raw", [{}, {"content": None}, {"content": "x"}, {"content": {}}], ids=str)
def test_no_content_is_no_text(raw: dict[str, Any]):
    assert to_result(raw, max_chars=10).text == ""


def test_long_text_is_cut_on_a_character_and_says_its_size():
    shown = to_result({"content": [text("✓" * 5000)]}, max_chars=100)
    assert len(shown.text) == 100
    assert shown.text.startswith("✓✓")
    assert shown.text.endswith("✓\n[cut: the whole result has 5000 characters]")
    assert cut("x" * 100, 100) == "x" * 100


def test_a_note_comes_after_the_text():
    assert to_result({"content": [text("x")]}, max_chars=99, note="[n]").text == "x\n[n]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "new"])
FIELDS = ("text", "data", "mimeType", "resource", "uri", "size", "name")
BLOCKS = JSON | st.fixed_dictionaries({"type": KINDS}, optional=dict.fromkeys(FIELDS, JSON))


@given(st.fixed_dictionaries({}, optional={
    "content": st.lists(BLOCKS) | JSON, "structuredContent": JSON, "isError": JSON,
}))  # fmt: skip
def test_no_result_raises(raw: dict[str, Any]):
    shown = to_result(raw, max_chars=200)
    assert len(shown.text) <= 200
    assert "\0" not in shown.text


def spec(schema: Any) -> ToolSpec:
    return ToolSpec(name="count", output_schema=schema)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("schema", "raw", "note"),
    [
        (SCHEMA, {"structuredContent": {"n": 3}}, ""),
        (SCHEMA, {"structuredContent": {"n": "three"}}, MISFIT),
        (SCHEMA, {"structuredContent": [3]}, MISFIT),
        (SCHEMA, {"content": []}, MISSING),
        (SCHEMA, {"isError": True}, ""),
        (SCHEMA, {"isError": True, "structuredContent": {"n": "three"}}, ""),
        (None, {"structuredContent": {"n": "three"}}, ""),
        ({"type": "object", "properties": 3}, {"structuredContent": {"n": "three"}}, ""),
        ({"$ref": "http://127.0.0.1:1/schema"}, {"structuredContent": {}}, ""),
    ],
    ids=str,
)
def test_structured_output_that_breaks_its_promise_is_noted(schema: Any, raw: Any, note: str):
    assert output_note(spec(schema), raw) == note


def test_checking_output_leaves_it_as_it_is():
    raw = {"structuredContent": {"n": 1, "more": None}}
    output_note(spec({**SCHEMA, "properties": {"more": {"type": "string"}}}), raw)
    assert raw == {"structuredContent": {"n": 1, "more": None}}
