"""Server-sent events as providers send them: every legal form, any cut, and what is not one."""

import json
import time
from itertools import pairwise

import pytest
from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import sse
from gateway.sse import DONE, BadStream


async def arriving(parts):
    for part in parts:
        yield part


async def decoded(*parts):
    return [event async for batch in sse.decode(arriving(parts)) for event in batch]


FORMS = {
    "one line": (b'data: {"a": 1}\n\n', [{"a": 1}]),
    "no blank after the colon": (b'data:{"a": 1}\n\n', [{"a": 1}]),
    "many blanks": (b'data:   {"a": 1}  \n\n', [{"a": 1}]),
    "CR LF": (b'data: {"a": 1}\r\n\r\ndata: {"b": 2}\r\n\r\n', [{"a": 1}, {"b": 2}]),
    "CR": (b'data: {"a": 1}\r\rdata: {"b": 2}\r\r', [{"a": 1}, {"b": 2}]),
    "mixed line ends": (b'data: {"a": 1}\r\n\ndata: {"b": 2}\n\r\n', [{"a": 1}, {"b": 2}]),
    "several data lines": (b'data: {"a":\ndata:  1}\n\n', [{"a": 1}]),
    "other fields": (b'event: x\nid: 7\nretry: 5\ndata: {"a": 1}\nfoo\n\n', [{"a": 1}]),
    "a comment": (b': PROCESSING\n\ndata: {"a": 1}\n\n: bye\n\n', [{"a": 1}]),
    "a comment in the event": (b': x\ndata: {"a": 1}\n\n', [{"a": 1}]),
    "a byte order mark": (b'\xef\xbb\xbfdata: {"a": 1}\n\n', [{"a": 1}]),
    "a mark before a comment": (b'\xef\xbb\xbf: x\n\ndata: {"a": 1}\n\n', [{"a": 1}]),
    "more blank lines": (b'\n\n\ndata: {"a": 1}\n\n\n\n\ndata: {"b": 2}\n\n', [{"a": 1}, {"b": 2}]),
    "no blank line at the end": (b'data: {"a": 1}\n\ndata: {"b": 2}', [{"a": 1}, {"b": 2}]),
    "one line end at the end": (b'data: {"a": 1}\n', [{"a": 1}]),
    "empty data": (b'data:\n\ndata: \n\ndata\n\ndata: {"a": 1}\n\n', [{"a": 1}]),
    "an event without data": (b'event: ping\n\ndata: {"a": 1}\n\n', [{"a": 1}]),
    "the end": (b'data: {"a": 1}\n\ndata: [DONE]\n\n', [{"a": 1}, DONE]),
    "the end without a blank line": (b"data: [DONE]", [DONE]),
    "the end in CR": (b"data: [DONE]\r\r", [DONE]),
    "more than ASCII": ('data: {"a": "ü☀\U0001f600"}\n\n'.encode(), [{"a": "ü☀\U0001f600"}]),
    "line ends in a text": (b'data: {"a": "x\\n\\ny\\r"}\n\n', [{"a": "x\n\ny\r"}]),
    "something like a field in a text": (
        b'data: {"a": "data: [DONE]"}\n\n',
        [{"a": "data: [DONE]"}],
    ),
    "nothing": (b"", []),
    "only blank lines": (b"\n\n\r\n\r\n", []),
    "a web page": (b"<html>\n<body>\n\nSign in, please.</body></html>\n\n", []),
}


@pytest.mark.parametrize(("raw", "events"), FORMS.values(), ids=FORMS)
async def test_each_form_of_an_event_is_understood(raw, events):
    assert await decoded(raw) == events


@pytest.mark.parametrize(("raw", "events"), FORMS.values(), ids=FORMS)
async def test_and_byte_by_byte_too(raw, events):
    assert await decoded(*(raw[at : at + 1] for at in range(len(raw)))) == events


async def test_the_end_is_one_object_that_no_event_equals_by_chance():
    like, end = await decoded(b'data: {"done": true}\n\ndata: [DONE]\n\n')
    assert end is DONE
    assert like is not DONE


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
EVENTS = st.lists(st.dictionaries(TEXTS, TEXTS | st.integers(0, 9) | st.none(), max_size=3))
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw):
    """Bytes and the events in them, in any legal writing."""
    events, raw = draw(EVENTS), b""
    for event in events:
        end = draw(ENDS)
        written = json.dumps(
            event, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1))
        )
        for extra in draw(st.lists(st.sampled_from([b": x", b"event: y", b"id: 1"]), max_size=2)):
            raw += extra + end
        for line in written.split("\n"):
            raw += draw(st.sampled_from([b"data:", b"data: "])) + line.encode() + end
        raw += end * draw(st.integers(1, 3))
    return raw, events


@settings(max_examples=100, deadline=None)
@given(streams(), st.data())
def test_any_cutting_of_the_bytes_gives_the_same_events(stream, data):
    raw, events = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    ends = [0, *cuts, len(raw)]
    parts = [raw[a:b] for a, b in pairwise(ends)]
    assert async_to_sync(decoded)(*parts) == events


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"data: ", b"\n\n", b"\r", b"{}", b"["])))
def test_any_bytes_are_events_or_a_bad_stream(parts):
    try:
        events = async_to_sync(decoded)(*parts)
    except BadStream as error:
        assert error.status == 502
    else:
        assert all(isinstance(event, dict) for event in events)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nonsense",
        b"[1]",
        b'"text"',
        b"null",
        b'{"a": NaN}',
        b'{"a": 1}{"b": 2}',
        b"\xff\xfe",
        b'{"a": "\\ud800"}',
        b"[" * 5000,
    ],
)
async def test_what_is_not_a_json_object_is_a_bad_stream_that_repeats_nothing_of_it(data):
    with pytest.raises(BadStream) as caught:
        await decoded(b"data: " + data + b"\n\n")
    assert (caught.value.status, caught.value.code) == (502, "upstream_error")
    assert caught.value.message.startswith("the provider sent an event that is not")


async def test_what_came_before_garbage_in_one_read_is_not_lost():
    events = []
    with pytest.raises(BadStream):
        async for batch in sse.decode(arriving([b'data: {"a": 1}\n\ndata: garbage\n\n'])):
            events += batch
    assert events == [{"a": 1}]


async def test_events_come_as_soon_as_they_are_whole():
    got = []

    async def slowly():
        yield b'data: {"a": 1}\n'
        assert got == []
        yield b"\n"
        assert got == [{"a": 1}]
        yield b'data: {"b": 2}\r'
        yield b"\r"
        assert got == [{"a": 1}, {"b": 2}]

    async for batch in sse.decode(slowly()):
        got += batch


async def test_an_event_without_an_end_is_refused_before_it_fills_the_memory():
    sent = 0

    async def endless():
        nonlocal sent
        yield b"data: "
        while True:
            sent += 2**16
            yield b"x" * 2**16

    with pytest.raises(BadStream, match="too large"):
        async for _ in sse.decode(endless()):
            pass
    assert sent <= sse.MAX_EVENT + 2**17


async def test_a_large_event_in_small_reads_takes_time_in_proportion():
    def parts(size):
        raw = b'data: {"a": "' + b"x" * size + b'"}\n\n'
        return [raw[at : at + 64] for at in range(0, len(raw), 64)]

    async def seconds(size):
        given, began = parts(size), time.process_time()
        (event,) = await decoded(*given)
        assert len(event["a"]) == size
        return time.process_time() - began

    small = min([await seconds(2**20) for _ in range(3)])
    assert await seconds(2**23) < 8 * small * 4


def test_what_is_written_is_one_line_and_a_blank_one():
    assert sse.encode({"a": "x\ny ü"}) == 'data: {"a":"x\\ny ü"}\n\n'.encode()
    assert sse.encode(DONE) == b"data: [DONE]\n\n"
    assert sse.encode({"done": True}) == b'data: {"done":true}\n\n'
    assert sse.comment(b"keep-alive") == b": keep-alive\n\n"
