"""JSON text without what lies too deep."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_servers.shallow import LEVELS_MAX, shallow
from tools.arguments import levels

JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
        st.text(), inner
    ),
)  # fmt: skip
BRACKETS = ["{[" * 100, "}]" * 100, '"{', '\\"{[', "\\"]


def nested(depth: int, core: Any = 1) -> Any:
    for _ in range(depth):
        core = [core]
    return core


@given(JSON)
def test_shallow_json_stays_the_same_text(value: Any):
    text = json.dumps([value] * 200).encode()
    assert shallow(text) == text


@pytest.mark.parametrize("depth", [LEVELS_MAX - 3, LEVELS_MAX - 2, LEVELS_MAX - 1, 400])
@settings(max_examples=25)
@given(before=JSON, after=JSON)
def test_what_lies_too_deep_is_null_and_all_else_stays(depth: int, before: Any, after: Any):
    whole = {"a": before, "deep": nested(depth), "b": after, "deeper": nested(depth, {"x": [2]})}
    made = json.loads(shallow(json.dumps(whole).encode()))
    assert (made["a"], made["b"]) == (before, after)
    assert levels(made) <= LEVELS_MAX
    assert (made["deep"] == whole["deep"]) == (depth < LEVELS_MAX)


@pytest.mark.parametrize("words", BRACKETS)
def test_brackets_inside_of_strings_do_not_count(words: str):
    text = json.dumps({"a": [words] * 200, words: nested(50)}).encode()
    assert shallow(text) == text


@pytest.mark.parametrize(
    "text", [b"[" * 5000, b"]" * 5000, b"}{" * 5000, b'"' * 5000, b'{"' * 5000], ids=repr
)
def test_text_that_is_no_json_harms_nobody(text: bytes):
    assert len(shallow(text)) <= len(text) + 4
