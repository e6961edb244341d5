"""What becomes of each answer: in the history, in the usage, and what else a provider says."""

import json

import pytest

from gateway import sse
from gateway.chat import Chat
from gateway.sse import DONE
from gateway.wire import UpstreamError, added
from orazaka.errors import OrazakaError
from tests.gateway.playing import ASKED, call, calls, chunk, play, stream, tool, whole
from tests.wires.checker import check_stream

LOOKUP, WEATHER = call("call_1", "lookup", '{"q": "x"}'), call("call_2", "weather", '{"c": "Rome"}')
THEIRS = {"tools": [tool("weather")]}
STREAM = {"stream": True}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
JSON_WANTED = {"response_format": {"type": "json_object"}}


def finishes(events):
    return [c["finish_reason"] for e in events for c in e.get("choices", []) if c["finish_reason"]]


def checked(turn, *, include_usage=False):
    return check_stream(
        turn.raw, hidden=["lookup", "search"], callers=["weather"], include_usage=include_usage
    )


# --- the answer in the history


async def test_an_answer_is_replayed_whole_but_without_nulls():
    asked = {**LOOKUP, "extra_content": {"google": {"thought_signature": "sig"}}, "x": None}
    message = {
        "reasoning_content": "Hm.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}],
        "refusal": None,
        "audio": None,
        "annotations": [],
        "function_call": None,
    }
    turn = await play({}, [whole("I look.", asked, **message), whole("42.")])
    assert turn.appended[0] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Hm.",
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}],
        "tool_calls": [{**LOOKUP, "extra_content": {"google": {"thought_signature": "sig"}}}],
    }


async def test_a_streamed_answer_is_replayed_as_the_plain_one():
    head, tail = {"type": "reasoning.text", "text": "H"}, {"text": "m.", "signature": "s"}
    deltas = [
        {"reasoning_details": [head]},
        {"reasoning_details": [tail], "content": "I "},
        {"content": "look."},
        {"tool_calls": [{"index": 0, **LOOKUP, "extra_content": {"google": {"x": "sig"}}}]},
        {"tool_calls": [{"index": 0, "id": None, "type": None, "function": {"name": None}}]},
    ]
    turn = await play(STREAM, [stream(*deltas), stream({"content": "42."})])
    assert turn.appended[0] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_details": [head, tail],
        "tool_calls": [{**LOOKUP, "extra_content": {"google": {"x": "sig"}}}],
    }


async def test_content_in_parts_passes_and_is_replayed():
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    plain = await play({}, [whole(thinking, LOOKUP), whole("42.")])
    streamed = await play(
        STREAM, [stream({"content": thinking}, {"content": "So."}, calls(LOOKUP)), stream()]
    )
    assert plain.appended[0]["content"] == thinking
    assert plain.message["content"] == [*thinking, {"type": "text", "text": "42."}]
    assert streamed.appended[0]["content"] == [*thinking, {"type": "text", "text": "So."}]
    assert streamed.events[0]["choices"][0]["delta"]["content"] == thinking


async def test_broken_arguments_are_replayed_as_they_were_said():
    broken = call("call_1", "lookup", '{"q": "cut')
    turn = await play({}, [whole(None, broken), whole("42.")])
    assert turn.appended[0]["tool_calls"] == [broken]
    assert turn.ran[0].arguments == '{"q": "cut'


# --- usage


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 2},
    "cost": 0.25,
    "service": "a",
}
TWICE = {
    "prompt_tokens": 200,
    "completion_tokens": 20,
    "total_tokens": 220,
    "prompt_tokens_details": {"cached_tokens": 10, "audio_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 4},
    "cost": 0.5,
    "service": "a",
}


async def test_usage_is_the_sum_of_all_rounds_in_the_reply_the_stream_and_the_totals():
    plain = await play({}, [whole(None, LOOKUP, usage=USAGE), whole("42.", usage=USAGE)])
    rounds = [stream(calls(LOOKUP), usage=USAGE), stream({"content": "42."}, usage=USAGE)]
    streamed = await play(WITH_USAGE, rounds)
    assert plain.reply["usage"] == checked(streamed, include_usage=True).usage == TWICE
    for turn in (plain, streamed):
        totals = turn.wire.totals()
        assert (totals.prompt, totals.completion) == (200, 20)
        assert (totals.cached, totals.reasoning) == (10, 4)


async def test_the_usage_chunk_stands_between_the_finish_and_done():
    turn = await play(WITH_USAGE, [stream({"content": "42."}, usage=USAGE)])
    finish, usage, done = turn.events[-3:]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == [] and usage["usage"] == USAGE
    assert done is DONE


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": 1}])
async def test_usage_is_asked_for_upstream_and_dropped_if_the_client_did_not(options):
    body = STREAM if options is None else STREAM | {"stream_options": options}
    turn = await play(body, [stream({"content": "42."}, usage=USAGE)])
    assert turn.bodies[0]["stream_options"]["include_usage"] is True
    assert b"usage" not in turn.raw
    assert turn.wire.totals().prompt == 100


async def test_other_stream_options_of_the_client_stay():
    body = STREAM | {"stream_options": {"include_obfuscation": False}}
    turn = await play(body, [stream()])
    assert turn.bodies[0]["stream_options"] == {"include_obfuscation": False, "include_usage": True}


async def test_a_plain_call_gets_no_stream_options():
    assert "stream_options" not in (await play({}, [whole("42.")])).bodies[0]


async def test_usage_on_every_chunk_counts_once():
    growing = [USAGE | {"completion_tokens": n} for n in (1, 5, 10)]
    events = [chunk({"content": "x"}, usage=usage) for usage in growing]
    turn = await play(WITH_USAGE, [[*events, chunk({}, "stop", usage=USAGE), DONE]])
    assert checked(turn, include_usage=True).usage == USAGE


async def test_what_was_used_before_an_error_is_in_the_totals():
    rounds = [
        stream(calls(LOOKUP), usage=USAGE),
        [chunk(usage=USAGE), {"error": {"message": "no"}}],
    ]
    turn = await play(STREAM, rounds)
    assert turn.error and turn.wire.totals().prompt == 200


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (None, None, None),
        ({"a": 1}, None, {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": {"c": 2}}, {"b": {"c": 3, "d": 1}}, {"a": 1, "b": {"c": 5, "d": 1}}),
        ({"a": True}, {"a": True}, {"a": True}),
        ({"a": "x"}, {"a": 2}, {"a": 2}),
        ({"a": 2}, {"a": None}, {"a": 2}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        (5, {"a": 1}, {"a": 1}),
        (2**63, 2**63, 2.0**64),
    ],
)
def test_usage_adds_up(left, right, both):
    assert added(left, right) == both


# --- members that only the provider knows


async def test_the_provider_s_own_members_reach_the_client_whichever_chunk_has_them():
    event = chunk({"role": "assistant", "content": ""}, x_first={"id": "req_1"})
    filtered = chunk({}, x_filter=1)
    filtered["choices"][0]["content_filter_results"] = {"hate": {"filtered": False}}
    last = chunk({}, "stop", x_last=["citation"])
    last["choices"][0]["native_finish_reason"] = "end_turn"
    used = chunk(usage=USAGE, service_tier="default")
    turn = await play(WITH_USAGE, [[event, chunk({"content": "42."}), filtered, last, used, DONE]])
    for word in (b"req_1", b"x_filter", b"content_filter_results", b"citation", b"end_turn"):
        assert word in turn.raw
    assert turn.events[-2]["service_tier"] == "default"
    checked(turn, include_usage=True)


async def test_a_chunk_without_choices_is_one_that_clients_can_read():
    turn = await play(STREAM, [[{"type": "ping"}, {"id": "a", "choices": None}, *stream()]])
    assert [e["choices"] for e in turn.events[:2]] == [[], []]


async def test_a_provider_that_names_nothing_still_gets_one_id_and_time():
    events = [{"choices": [{"delta": {"content": c}}]} for c in "42"]
    events.append({"choices": [{"finish_reason": "stop"}]})
    assert checked(await play(STREAM, [[*events, DONE]])).text == "42"


async def test_an_answer_that_comes_whole_though_a_stream_was_asked_for_is_shown_as_one():
    (answer,) = whole("42.", WEATHER, usage=USAGE)
    reply = checked(await play(THEIRS | WITH_USAGE, [[answer]]), include_usage=True)
    assert (reply.text, [c.name for c in reply.calls]) == ("42.", ["weather"])
    assert (reply.finish_reason, reply.usage) == ("tool_calls", USAGE)


# --- errors of the provider


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"error": {"message": "overloaded", "code": 529}}, "overloaded"),
        ({"error": "overloaded"}, "overloaded"),
        ({"error": True, "message": "overloaded"}, "overloaded"),
        ({"error": {"code": 7}}, "the provider reported an error"),
    ],
)
async def test_an_error_event_is_the_turn_s_error_in_the_provider_s_words(event, words):
    for body in ({}, STREAM):
        turn = await play(body, [[event]])
        assert isinstance(turn.error, UpstreamError)
        assert words in turn.error.message


async def test_an_error_that_is_null_is_none():
    turn = await play(STREAM, [[{**e, "error": None} if e is not DONE else e for e in stream()]])
    assert turn.error is None


def test_an_error_is_said_in_the_api_s_own_words():
    error = OrazakaError("late", status=504, code="upstream_timeout", param="model")
    told = Chat.error(error, usage={"prompt_tokens": 1})
    assert told == {
        "error": {
            "message": "late",
            "type": "server_error",
            "param": "model",
            "code": "upstream_timeout",
            "usage": {"prompt_tokens": 1},
        }
    }
    assert Chat.encode(DONE) == b"data: [DONE]\n\n" == sse.encode(DONE)


async def test_the_client_s_body_is_not_changed():
    body = {"model": "m", "messages": list(ASKED), "tool_choice": "required", **THEIRS, **STREAM}
    before = json.loads(json.dumps(body))
    await play(body, [stream(calls(LOOKUP)), stream()], hints="Hints.")
    assert body == before
