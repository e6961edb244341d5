"""What a chat completion's client gets, plain and streamed (spec 3.4, 3.5)."""

import json

import pytest

from gateway.sse import DONE
from tests.gateway.playing import call, calls, chunk, play, stream, tool, whole
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


@pytest.mark.parametrize("asked", [[LOOKUP], [LOOKUP, WEATHER]], ids=["ours", "mixed"])
async def test_logprobs_of_our_hidden_calls_do_not_show(asked):
    event = chunk(calls(*asked))
    event["choices"][0]["logprobs"] = {"content": [{"token": "lookup", "logprob": -0.5}]}
    rounds = [[event, chunk({}, "tool_calls"), DONE], stream({"content": "42."})]
    turn = await play(THEIRS | STREAM, rounds)
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


@pytest.mark.parametrize("reason", ["length", "model_length", "max_tokens", "content_filter"])
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
