"""Whatever a provider sends, a turn ends in an answer or in an error of the provider's, never in a
fault of ours, and what is shown can be written."""

import copy

import pytest
from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sse import DONE
from gateway.wire import UpstreamError
from tests.gateway.playing import call, calls, chunk, play, stream, tool, whole

NAMES = ["choices", "delta", "message", "tool_calls", "function", "custom", "name", "arguments"]
NAMES += ["input", "id", "index", "finish_reason", "usage", "error", "content", "role", "logprobs"]
NAMES += ["prompt_tokens", "completion_tokens", "prompt_tokens_details", "reasoning_details"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["lookup", "look", "stop", "length", "tool_calls", "assistant", "{}"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)
EVENTS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)
THEIRS = {"tools": [tool("look")]}
USAGE = {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}


def survives(body, rounds, *, owned, **more):
    turn = async_to_sync(play)(THEIRS | body, rounds, owned=owned, limit=len(rounds), **more)
    assert turn.raw or turn.error
    assert turn.error is None or turn.error.status in (502, 422)
    assert turn.wire.totals().prompt >= 0


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=4), st.booleans(), st.sampled_from([[], ["lookup"]]))
def test_any_json_as_events_of_a_stream(events, done, owned):
    body = {"stream": True, "stream_options": {"include_usage": True}}
    survives(body, [[*events, DONE] if done else events], owned=owned)


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.sampled_from([[], ["lookup"]]))
def test_any_json_as_a_plain_answer(event, owned):
    survives({}, [[event]], owned=owned)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))
        else:
            yield (*path, key)


def replaced(value, path, new):
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


ROUND = stream(
    {"content": "Hm.", "reasoning_content": "So."},
    calls(call("call_1", "lookup"), call("call_2", "look")),
    finish="tool_calls",
    usage=USAGE,
)


@settings(max_examples=150, deadline=None)
@given(st.data(), JSON, st.sampled_from([[], ["lookup"]]), st.sampled_from([1, 2]))
def test_a_right_stream_with_one_wrong_value(data, value, owned, n):
    at = data.draw(st.integers(0, len(ROUND) - 2))
    path = data.draw(st.sampled_from([path for path in places(ROUND[at]) if path]))
    events = [
        replaced(e, path, value) if i == at else copy.deepcopy(e) for i, e in enumerate(ROUND)
    ]
    last = stream({"content": "42."}, usage=USAGE)
    survives({"stream": True, "n": 1 if owned else n}, [events, last], owned=owned)


@settings(max_examples=100, deadline=None)
@given(st.data(), JSON, st.sampled_from([[], ["lookup"]]))
def test_a_right_answer_with_one_wrong_value(data, value, owned):
    (answer,) = whole("Hm.", call("call_1", "lookup"), call("call_2", "look"), usage=USAGE)
    path = data.draw(st.sampled_from([path for path in places(answer) if path]))
    survives({}, [[replaced(answer, path, value)], whole("42.", usage=USAGE)], owned=owned)


CHUNKS = {
    "choices that are a text": {"choices": "x"},
    "choices that are an object": {"choices": {"0": {}}},
    "a choice that is null": {"choices": [None]},
    "a delta that is a number": {"choices": [{"delta": 5}]},
    "content that is a number": {"choices": [{"delta": {"content": 5}}]},
    "reasoning that is an object": {"choices": [{"delta": {"reasoning": {"a": 1}}}]},
    "tool calls that are an object": {"choices": [{"delta": {"tool_calls": {}}}]},
    "a tool call that is a text": {"choices": [{"delta": {"tool_calls": ["lookup"]}}]},
    "a function that is a text": {"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]},
    "a name that is a list": {"choices": [{"delta": {"tool_calls": [{"function": {"name": []}}]}}]},
    "arguments that are an object": {
        "choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}}]
    },
    "an id that is a number": {"choices": [{"delta": {"tool_calls": [{"id": 7}]}}]},
    "a finish reason that is a number": {"choices": [{"delta": {}, "finish_reason": 5}]},
    "a finish reason that is true": {"choices": [{"delta": {}, "finish_reason": True}]},
}


@pytest.mark.parametrize("owned", [[], ["lookup"]], ids=["passing", "with tools of ours"])
@pytest.mark.parametrize("event", CHUNKS.values(), ids=CHUNKS)
async def test_a_chunk_of_the_wrong_form_is_the_provider_s_error(event, owned):
    turn = await play({"stream": True}, [[event, DONE]], owned=owned)
    assert isinstance(turn.error, UpstreamError)
    assert (turn.error.status, turn.error.code) == (502, "upstream_error")


ANSWERS = {
    "nothing": {},
    "no choices": {"choices": []},
    "choices that are a text": {"choices": "x"},
    "a choice that is null": {"choices": [None]},
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "a message that is a text": {"choices": [{"message": "Hello."}]},
    "content that is true": {"choices": [{"message": {"content": True}}]},
    "tool calls that are an object": {"choices": [{"message": {"tool_calls": {}}}]},
    "a finish reason that is a list": {"choices": [{"message": {}, "finish_reason": ["stop"]}]},
}


@pytest.mark.parametrize("event", ANSWERS.values(), ids=ANSWERS)
async def test_a_plain_answer_of_the_wrong_form_is_the_provider_s_error(event):
    assert isinstance((await play({}, [[event]])).error, UpstreamError)


@pytest.mark.parametrize(
    "rounds", [[], [DONE], [{"choices": []}, DONE], [chunk(usage=USAGE), DONE]]
)
async def test_a_stream_that_says_nothing_is_an_error_and_not_an_empty_answer(rounds):
    turn = await play({"stream": True}, [rounds])
    assert isinstance(turn.error, UpstreamError)


async def test_a_stream_that_ends_before_its_finish_is_an_error():
    turn = await play({"stream": True}, [[chunk({"role": "assistant", "content": "4"})]])
    assert "ended before" in str(turn.error)


ODD = {
    "absent": None,
    "a number": 5,
    "a text": "many",
    "a list": [1],
    "texts for numbers": {"prompt_tokens": "5", "completion_tokens": None},
    "truths for numbers": {
        "prompt_tokens": True,
        "prompt_tokens_details": {"cached_tokens": False},
    },
    "details that are a list": {"prompt_tokens": 5, "prompt_tokens_details": [1, 2]},
    "huge numbers": {"prompt_tokens": 2**64 - 1, "total_tokens": 2**64 - 1, "x": -(2**63)},
    "fractions": {"prompt_tokens": 2.5, "completion_tokens": 1e300},
    "negative numbers": {"prompt_tokens": -5},
    "another shape each time": {"prompt_tokens": {"text": 5}},
}


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("usage", ODD.values(), ids=ODD)
async def test_usage_of_any_kind_adds_up_to_what_a_table_can_hold(usage, streamed):
    asked = call("call_1", "lookup")
    rounds = [
        stream(calls(asked), usage=usage) if streamed else whole(None, asked, usage=usage),
        stream({"content": "42."}, usage=usage) if streamed else whole("42.", usage=usage),
        stream() if streamed else whole(),
    ]
    options = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    turn = await play(options, rounds)
    assert turn.error is None and turn.raw
    totals = turn.wire.totals()
    counts = [getattr(totals, name) for name in totals.__slots__]
    assert all(isinstance(n, int) and 0 <= n < 2**63 for n in counts)
