"""What a chat completion's client gets, plain and streamed (spec 3.4, 3.5)."""

import json

import pytest

from gateway import sse
from gateway.chat import Chat
from gateway.sse import DONE
from gateway.wire import UpstreamError, added
from orazaka.errors import OrazakaError
from tests.gateway.playing import ASKED, call, calls, chunk, play, stream, tool, whole
from tests.wires.checker import check_plain, check_stream

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


# --- one answer out of several rounds


async def test_one_id_one_role_one_finish_and_done_whatever_the_rounds_were():
    rounds = [
        stream({"content": "Let me look."}, calls(LOOKUP), finish="tool_calls", id="chatcmpl-A"),
        stream({"content": "42."}, id="chatcmpl-B"),
    ]
    turn = await play(STREAM, rounds)
    assert {e["id"] for e in turn.events if e is not DONE} == {"chatcmpl-A"}
    roles = [c["delta"].get("role") for e in turn.events[:-1] for c in e["choices"]]
    assert [role for role in roles if role] == ["assistant"]
    assert finishes(turn.events) == ["stop"]
    assert turn.events[-1] is DONE
    assert checked(turn).text == "Let me look.\n\n42."


async def test_text_comes_as_it_is_said_and_not_at_the_end():
    turn = await play(STREAM, [stream({"content": "4"}, {"content": "2"}, {"content": "."})])
    said = [e["choices"][0]["delta"].get("content") for e in turn.events[:-1]]
    assert said == ["4", "2", ".", None]


async def test_a_plain_reply_joins_the_text_of_all_rounds_by_a_blank_line():
    turn = await play({}, [whole("First.", LOOKUP), whole(None, LOOKUP), whole("Last.")])
    assert turn.message["content"] == "First.\n\nLast."
    assert "tool_calls" not in turn.message
    assert turn.reply["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "refusal"])
async def test_reasoning_and_refusals_of_all_rounds_are_joined_like_text(name):
    plain = await play({}, [whole("A", LOOKUP, **{name: "one"}), whole("B", **{name: "two"})])
    rounds = [stream({name: "one"}, {"content": "A"}, calls(LOOKUP)), stream({name: "two"})]
    streamed = await play(STREAM, rounds)
    said = [e["choices"][0]["delta"].get(name) or "" for e in streamed.events[:-1]]
    assert plain.message[name] == "".join(said) == "one\n\ntwo"


async def test_a_plain_reply_is_the_provider_s_last_with_its_own_members():
    (answer,) = whole("42.")
    answer |= {"id": "chatcmpl-9", "system_fingerprint": "fp", "x_vendor": {"a": 1}}
    turn = await play({}, [whole(None, LOOKUP), [answer]])
    assert turn.reply["x_vendor"] == {"a": 1}
    assert turn.reply["id"] == "chatcmpl-9"


async def test_without_tools_of_ours_a_plain_reply_passes_untouched():
    (answer,) = whole("42.", WEATHER, annotations=[], audio=None)
    answer["choices"] += [{"index": 1, "message": {"content": "43."}, "finish_reason": "stop"}]
    before = json.loads(json.dumps(answer))
    assert (await play({"n": 2}, [[answer]], owned=[])).reply == before


async def test_several_answers_at_once_pass_without_tools_of_ours():
    events = [
        {
            **chunk(),
            "choices": [{"index": n, "delta": d, "finish_reason": f} for n, d, f in choices],
        }
        for choices in (
            [(0, {"role": "assistant", "content": "4"}, None), (1, {"role": "assistant"}, None)],
            [(1, {"content": "Forty-two."}, "length")],
            [(0, {"content": "2."}, "stop")],
        )
    ]
    turn = await play(STREAM | {"n": 2}, [[*events, DONE]], owned=[])
    reply = check_stream(turn.raw, n=2)
    said = {n: (choice.text, choice.finish_reason) for n, choice in reply.choices.items()}
    assert said == {0: ("42.", "stop"), 1: ("Forty-two.", "length")}


# --- calls


async def test_the_client_s_own_calls_are_returned_to_it():
    plain = await play(THEIRS, [whole("I ask.", WEATHER)])
    streamed = await play(THEIRS | STREAM, [stream({"content": "I ask."}, calls(WEATHER))])
    assert plain.message["tool_calls"] == [WEATHER]
    (got,) = checked(streamed).calls
    assert (got.id, got.name, got.arguments) == ("call_2", "weather", '{"c": "Rome"}')
    assert plain.ran == streamed.ran == []


async def test_of_a_mixed_turn_ours_are_run_and_the_client_gets_its_own():
    plain = await play(THEIRS, [whole(None, LOOKUP, WEATHER)])
    streamed = await play(THEIRS | STREAM, [stream(calls(LOOKUP, WEATHER), finish="tool_calls")])
    assert plain.message["tool_calls"] == [WEATHER]
    assert [c.name for c in checked(streamed).calls] == ["weather"]
    assert [c.name for c in plain.ran] == [c.name for c in streamed.ran] == ["lookup"]
    assert len(plain.bodies) == len(streamed.bodies) == 1


async def test_the_stream_s_tool_indexes_have_no_gap_where_ours_were():
    other = call("call_3", "weather")
    turn = await play(
        THEIRS | STREAM, [stream(calls(LOOKUP, WEATHER, LOOKUP | {"id": "x"}, other))]
    )
    shown = [f for e in turn.events[:-1] for f in e["choices"][0]["delta"].get("tool_calls", [])]
    assert [(f["index"], f["id"]) for f in shown] == [(0, "call_2"), (1, "call_3")]


async def test_no_fragment_of_our_name_shows_though_it_begins_like_one_of_theirs():
    head = {"index": 0, "id": "call_1", "type": "function"}
    deltas = [
        {"tool_calls": [{**head, "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "up"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]
    body = STREAM | {"tools": [tool("look")]}
    turn = await play(body, [stream(*deltas, finish="tool_calls"), stream({"content": "42."})])
    assert b"look" not in turn.raw
    assert [c.name for c in turn.ran] == ["lookup"]


async def test_logprobs_of_our_hidden_calls_do_not_show():
    event = chunk(calls(LOOKUP))
    event["choices"][0]["logprobs"] = {"content": [{"token": "lookup", "logprob": -0.5}]}
    turn = await play(STREAM, [[event, chunk({}, "tool_calls"), DONE], stream({"content": "42."})])
    assert b"lookup" not in turn.raw


async def test_logprobs_that_come_with_the_finish_come_once():
    event = chunk({"content": "42."}, "stop")
    event["choices"][0]["logprobs"] = {"content": [{"token": "42."}]}
    turn = await play(STREAM, [[event, DONE]])
    assert turn.raw.count(b'"token"') == 1


async def test_a_repeated_name_reaches_the_client_once_for_clients_put_names_together():
    deltas = [
        {"tool_calls": [{"index": 0, **WEATHER, "function": {"name": "weather", "arguments": a}}]}
        for a in ('{"c": ', '"Rome"}')
    ]
    turn = await play(THEIRS | STREAM, [stream(*deltas, finish="tool_calls")])
    (got,) = checked(turn).calls
    assert (got.name, got.arguments) == ("weather", '{"c": "Rome"}')


async def test_a_call_whose_fragments_each_have_a_new_id_is_one_call():
    deltas = [
        {"tool_calls": [{"index": 0, "id": f"id_{n}", "type": "function", "function": part}]}
        for n, part in enumerate([{"name": "lookup"}, {"arguments": '{"q": '}, {"arguments": "1}"}])
    ]
    turn = await play(STREAM, [stream(*deltas, finish="tool_calls"), stream({"content": "42."})])
    assert [(c.id, c.arguments) for c in turn.ran] == [("id_0", '{"q": 1}')]


@pytest.mark.parametrize("id", [None, ""], ids=["null", "empty"])
async def test_calls_without_an_id_get_one_each(id):
    nameless = [call(id, "lookup"), call(id, "weather"), call(id, "weather")]
    plain = await play(THEIRS, [whole(None, *nameless)])
    streamed = await play(THEIRS | STREAM, [stream(calls(*nameless))])
    for turn, shown in (
        (plain, check_plain(plain.reply).calls),
        (streamed, checked(streamed).calls),
    ):
        (ours,), ids = turn.ran, {one.id for one in shown}
        assert ours.id and len(ids) == 2 and all(ids) and ours.id not in ids
        ((tail, theirs),) = turn.kept
        assert {c.id for c in theirs} == ids
        assert {c["id"] for c in tail.messages[0]["tool_calls"]} == {ours.id, *ids}


async def test_two_calls_with_one_id_can_be_told_apart():
    twice = [call("lookup", "lookup", '{"q": 1}'), call("lookup", "lookup", '{"q": 2}')]
    for body, answers in (
        ({}, [whole(None, *twice), whole("42.")]),
        (STREAM, [stream(calls(*twice)), stream({"content": "42."})]),
    ):
        turn = await play(body, answers)
        first, second = turn.ran
        assert first.id != second.id
        assert (first.arguments, second.arguments) == ('{"q": 1}', '{"q": 2}')
        assert [m["tool_call_id"] for m in turn.appended[1:]] == [first.id, second.id]


async def test_a_custom_tool_s_call_is_the_client_s():
    custom = {"id": "call_9", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    body = {"tools": [{"type": "custom", "custom": {"name": "sql"}}]}
    plain = await play(body, [whole(None, custom)])
    assert plain.message["tool_calls"] == [custom]
    pieces = [
        {"index": 0, "id": "call_9", "type": "custom", "custom": {"name": "sql", "input": ""}},
        {"index": 0, "custom": {"input": "select"}},
        {"index": 0, "custom": {"input": " 1"}},
    ]
    streamed = await play(body | STREAM, [stream(*({"tool_calls": [p]} for p in pieces))])
    shown = [
        f for e in streamed.events[:-1] for f in e["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert "".join(f["custom"]["input"] for f in shown) == "select 1"
    assert [f["custom"].get("name") for f in shown] == ["sql", None]


async def test_null_beside_a_function_does_not_make_a_call_of_ours_the_client_s():
    asked = {**LOOKUP, "custom": None}
    turn = await play({}, [whole(None, asked), whole("42.")])
    assert [c.name for c in turn.ran] == ["lookup"]
    turn = await play(STREAM, [stream(calls(asked)), stream({"content": "42."})])
    assert [c.name for c in turn.ran] == ["lookup"]


async def test_a_name_that_nobody_has_is_answered_by_us_and_never_shown():
    rounds = [stream(calls(call("call_1", "frobnicate"))), stream({"content": "42."})]
    turn = await play(THEIRS | STREAM, rounds)
    assert [c.name for c in turn.ran] == ["frobnicate"]
    assert b"frobnicate" not in turn.raw


async def test_a_name_that_nobody_has_passes_when_no_tools_are_ours():
    turn = await play(STREAM, [stream(calls(call("call_1", "frobnicate")))], owned=[])
    assert [c.name for c in check_stream(turn.raw).calls] == ["frobnicate"]


# --- cut off


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_of_an_answer_that_was_cut_off_nothing_of_ours_is_run(reason):
    plain = await play(THEIRS, [whole("So.", LOOKUP, finish=reason)])
    streamed = await play(
        THEIRS | STREAM, [stream({"content": "So."}, calls(LOOKUP), finish=reason)]
    )
    assert plain.ran == streamed.ran == []
    assert len(plain.bodies) == 1
    reply = checked(streamed)
    assert (reply.text, reply.calls, reply.finish_reason) == ("So.", [], reason)
    assert "tool_calls" not in plain.message
    assert plain.reply["choices"][0]["finish_reason"] == reason


async def test_what_is_kept_of_an_answer_that_was_cut_off_has_no_call_without_a_result():
    rounds = [whole(None, LOOKUP), whole(None, call("call_3", "lookup"), WEATHER, finish="length")]
    turn = await play(THEIRS, rounds)
    ((tail, theirs),) = turn.kept
    assert [c.id for c in theirs] == ["call_2"]
    called = [c["id"] for m in tail.messages for c in m.get("tool_calls", [])]
    answered = [m["tool_call_id"] for m in tail.messages if m["role"] == "tool"]
    assert called == ["call_1", "call_2"] and answered == ["call_1"]


async def test_content_decides_and_not_the_finish_reason():
    rounds = [whole("Hm.", LOOKUP, finish="stop"), whole("42.", finish="tool_calls")]
    turn = await play({}, rounds)
    assert [c.name for c in turn.ran] == ["lookup"]
    assert turn.message["content"] == "Hm.\n\n42."


async def test_a_late_stop_does_not_undo_that_tools_were_asked_for():
    events = [chunk(calls(WEATHER)), chunk({}, "tool_calls"), chunk({}, "stop"), DONE]
    assert finishes((await play(THEIRS | STREAM, [events])).events) == ["tool_calls"]


@pytest.mark.parametrize(("delta", "reason"), [(calls(WEATHER), "tool_calls"), ({}, "stop")])
async def test_done_without_a_finish_reason_ends_the_answer(delta, reason):
    events = [chunk({"content": "So."}), chunk(delta), DONE]
    assert finishes((await play(THEIRS | STREAM, [events])).events) == [reason]


# --- structured output


async def test_of_structured_output_only_the_last_round_s_text_counts():
    rounds = [whole("I look.", LOOKUP, reasoning="a"), whole('{"n": 42}', reasoning="b")]
    plain = await play(JSON_WANTED, rounds)
    rounds = [
        stream({"reasoning": "a"}, {"content": "I look."}, calls(LOOKUP)),
        stream({"reasoning": "b"}, {"content": '{"n": '}, {"content": "42}"}),
    ]
    reply = checked(await play(JSON_WANTED | STREAM, rounds))
    assert plain.message["content"] == reply.text == '{"n": 42}'
    assert plain.message["reasoning"] == reply.reasoning == "b"


@pytest.mark.parametrize("before", [0, 1])
async def test_structured_output_does_not_swallow_the_client_s_calls(before):
    rounds = [stream(calls(LOOKUP))] * before
    rounds.append(stream({"content": "{}"}, calls(call("call_3", "lookup"), WEATHER)))
    reply = checked(await play(THEIRS | JSON_WANTED | STREAM, rounds))
    assert [c.name for c in reply.calls] == ["weather"]
    assert reply.text == "{}"


async def test_structured_output_streams_at_once_where_it_can_be_no_other_round_s():
    turn = await play(JSON_WANTED | STREAM, [stream({"content": "4"}, {"content": "2"})], owned=[])
    assert [e["choices"][0]["delta"].get("content") for e in turn.events[:-1]] == ["4", "2", None]


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
