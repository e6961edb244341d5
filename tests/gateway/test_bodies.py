"""Bodies of requests: which can be read, and that no two readers see different values in one."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fields import BadBody, parse

# --- bodies that can't be read

UNREADABLE = {
    "nothing": b"",
    "a word": b"nonsense",
    "half of it": b'{"model": "m", ',
    "a comma too many": b'{"model": "m",}',
    "single quotes": b"{'model': 'm'}",
    "a comment": b'{"model": "m" /* x */}',
    "not a number": b'{"model": NaN}',
    "infinity": b'{"model": Infinity}',
    "a number beyond all": b'{"model": 1e999}',
    "Latin-1": '{"model": "ü"}'.encode("latin-1"),
    "UTF-16": '{"model": "m"}'.encode("utf-16"),
    "half a character": b'{"model": "\\ud800"}',
    "a line end in a text": b'{"model": "a\nb"}',
    "two values": b'{"model": "m"}{"model": "m"}',
    "a list": b"[]",
    "a text": b'"model"',
    "null": b"null",
    "a number": b"1",
    "a nest of lists": b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}",
    "a deep nest of lists": b"[" * 100_000,
    "a nest of objects": b'{"a":' * 101 + b"1" + b"}" * 101,
    "a member twice": b'{"model": "a", "model": "b"}',
    "a member twice with blanks": b'{"model" : "a", "model"\n\t: "b"}',
    "ours twice": b'{"mcp_servers": [], "model": "m", "mcp_servers": [{}]}',
    "a member twice deep inside": b'{"a": [{"b": {"c": 1, "c": 1}}]}',
    "an empty name twice": b'{"": 1, "": 2}',
    "a member twice in other letters": b'{"a": 1, "\\u0061": 2}',
    "a member twice behind a name that ends in a backslash": b'{"a\\\\": 1, "m": 1, "m": 2}',
    "a name with a quote twice": b'{"a\\"": 1, "a\\"": 2}',
    "a name that ends in a backslash twice": b'{"a\\\\": 1, "a\\\\": 2}',
    "a member twice beside a text full of colons": b'{"t": "\\": \\": :", "m": 1, "m": 2}',
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_can_not_be_read_is_400(raw):
    with pytest.raises(BadBody) as caught:
        parse(raw)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "invalid_json", None)


READABLE = {
    "a smiley": {"a": ":)"},
    "colons everywhere": {"a": ": ", "b": '": "', "c": '\\": "x": \\', "d:e": "f:", "": ":"},
    "texts that look like members": {"a": '{"b": 1, "b": 2}', "c": '\\"b\\": 1'},
    "the same member in several objects": {"a": {"a": [{"a": 1}, {"a": 2}]}},
    "backslashes": {"a\\": "\\", 'b"': '"', "\\\\": '\\"'},
    "more than ASCII": {"ü☀": "\U0001f600"},
    "100 levels": {"a": json.loads("[" * 99 + "]" * 99)},
}


@pytest.mark.parametrize("body", READABLE.values(), ids=READABLE)
@pytest.mark.parametrize("ascii", [False, True], ids=["as it is", "in ASCII"])
def test_a_sound_body_is_read_as_it_was_written(body, ascii):
    assert parse(json.dumps(body, ensure_ascii=ascii).encode()) == body


TEXTS = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["\\", '"', ":", '":'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=15,
)


@settings(max_examples=100)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_any_json_object_is_read(body):
    assert parse(json.dumps(body).encode()) == body


@settings(max_examples=100)
@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), st.data())
def test_any_member_twice_is_refused(body, data):
    name = json.dumps(data.draw(st.sampled_from(sorted(body))))
    again = f"{{{name}: {json.dumps(data.draw(VALUES))}, {json.dumps(body)[1:]}"
    before, after = data.draw(st.sampled_from([("", ""), ('{"x": ', "}"), ('{"x": ["y:", ', "]}")]))
    with pytest.raises(BadBody, match="twice"):
        parse(f"{before}{again}{after}".encode())


@settings(max_examples=100)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_body_or_400(raw):
    try:
        assert isinstance(parse(raw), dict)
    except BadBody as error:
        assert error.status == 400


MANY = 20 * 2**20
HUGE = {
    "one text": b'{"a": "' + b"x: " * (MANY // 3) + b'"}',
    "escapes": b'{"a": "' + b'\\"' * (MANY // 2) + b'"}',
    "short texts": b'{"a": [' + b'":",' * (MANY // 4) + b'""]}',
    "members": b'{"a": [' + b'{"a":1},' * (MANY // 32) + b'"' + b"x" * (MANY // 4 * 3) + b'"]}',
}


@pytest.mark.parametrize("raw", HUGE.values(), ids=HUGE)
def test_twenty_megabytes_are_read_in_bounded_time(raw):
    began = time.process_time()
    try:
        assert parse(raw)
    except BadBody as error:
        assert "at most" in error.message
    assert time.process_time() - began < 20
