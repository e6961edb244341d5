"""Nothing of a turn is lost when its client goes on, whatever the client makes of its copy."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from gateway import tails
from gateway.models import Tail as Row
from gateway.wire import Tail
from tests.gateway.playing import call, play, tool, whole
from tools.base import Image, ToolCall, ToolResult

USER = {"role": "user", "content": "Weather in Rome, and look it up."}
LOOKUP = call("call_1", "lookup", '{"q": "x"}')
WEATHER = call("call_2", "weather", '{"city": "Rome", "days": 1, "units": {"t": "C"}}')
TIME = call("call_3", "time", "{}")
THEIRS = {"tools": [tool("weather"), tool("time")]}


def assistant(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id, content="sunny"):
    return {"role": "tool", "tool_call_id": id, "content": content}


def of(*calls):
    return [ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def row(hidden, *calls, words=(USER,), after=(), id=None):
    """One kept row, as `save` makes it, for the first of the client's calls."""
    return Row(
        principal="user:1",
        wire="chat",
        call_id=id or calls[0]["id"],
        calls_digest=tails.calls_digest(of(*calls)),
        words_digest=tails.words_digest(list(words)),
        turn_id=uuid4(),
        content={"messages": hidden, "after": list(after)},
        created_at=timezone.now(),
    )


# What stood there: one hidden round, and then a mixed answer with our result.
KEPT = [assistant(LOOKUP), result("call_1", "42"), assistant(WEATHER, content="Now you.")]
COPY = assistant(WEATHER, content="Now you.")
GOES_ON = [USER, COPY, result("call_2")]


def test_the_client_s_copy_is_replaced_by_all_that_stood_there():
    assert tails.restored(GOES_ON, [row(KEPT, WEATHER)]) == [USER, *KEPT, result("call_2")]


def test_without_rows_the_conversation_goes_as_sent():
    assert tails.restored(GOES_ON, []) == GOES_ON


REWRITTEN = {
    "blanks": '{"city":"Rome","days":1,"units":{"t":"C"}}',
    "order": '{"units": {"t": "C"}, "days": 1, "city": "Rome"}',
    "fractions": '{"city": "Rome", "days": 1.0, "units": {"t": "C"}}',
    "escapes": '{"city": "\\u0052ome", "days": 1, "units": {"t": "C"}}',
}


@pytest.mark.parametrize("arguments", REWRITTEN.values(), ids=REWRITTEN)
def test_arguments_that_the_client_wrote_anew_are_the_same(arguments):
    copy = assistant(call("call_2", "weather", arguments))
    assert tails.restored([USER, copy, result("call_2")], [row(KEPT, WEATHER)])[1:4] == KEPT


def test_numbers_that_javascript_writes_another_way_are_the_same():
    said, again = '{"a": 1.0, "b": 1e3, "c": 0.50}', '{"a":1,"b":1000,"c":0.5}'
    kept = [assistant(call("c", "f", said))]
    rows = [row(kept, call("c", "f", said))]
    hidden = [assistant(LOOKUP), result("call_1"), *kept]
    rows[0].content["messages"] = hidden
    assert tails.restored([USER, assistant(call("c", "f", again))], rows) == [USER, *hidden]


@pytest.mark.parametrize("arguments", ["", "{}", None, {}])
def test_no_arguments_are_the_same_however_they_are_written(arguments):
    kept = [*KEPT[:2], assistant(call("call_3", "time", ""))]
    copy = assistant(call("call_3", "time", arguments))
    assert tails.restored([USER, copy], [row(kept, call("call_3", "time", ""))]) == [USER, *kept]


def test_arguments_as_an_object_are_the_same_as_their_text():
    copy = assistant(call("call_2", "weather", json.loads(WEATHER["function"]["arguments"])))
    assert tails.restored([USER, copy], [row(KEPT, WEATHER)]) == [USER, *KEPT]


@pytest.mark.parametrize(
    "arguments",
    ['{"city": "Rome', "not JSON", "[" * 100_000, "1" * 5000],
    ids=["cut", "words", "deep", "long"],
)
def test_arguments_that_are_not_json_are_known_by_their_text(arguments):
    odd = call("call_2", "weather", arguments)
    assert tails.restored([USER, assistant(odd)], [row(KEPT, odd)]) == [USER, *KEPT]
    other = assistant(call("call_2", "weather", arguments + "x"))
    assert tails.restored([USER, other], [row(KEPT, odd)]) == [USER, other]


CHANGED = {
    "another argument": call("call_2", "weather", '{"city": "Oslo"}'),
    "true for 1": call("call_2", "weather", '{"city": "Rome", "days": true, "units": {"t": "C"}}'),
    "a text for a number": call(
        "call_2", "weather", WEATHER["function"]["arguments"].replace("1", '"1"')
    ),
    "another name": call("call_2", "time", WEATHER["function"]["arguments"]),
    "another id": call("call_9", "weather", WEATHER["function"]["arguments"]),
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_an_answer_that_is_another_one_is_not_replaced(changed):
    messages = [USER, assistant(changed), result(changed["id"])]
    assert tails.restored(messages, [row(KEPT, WEATHER)]) == messages


def test_calls_in_another_order_are_the_same_answer():
    kept = [assistant(LOOKUP, WEATHER, TIME), result("call_1")]
    rows = [row(kept, WEATHER, TIME), row(kept, WEATHER, TIME, id="call_3")]
    for copy in (assistant(WEATHER, TIME), assistant(TIME, WEATHER)):
        results = [result("call_3"), result("call_2")]
        assert tails.restored([USER, copy, *results], rows) == [USER, *kept, *results]


def test_results_that_the_client_leaves_out_are_not_invented():
    kept = [assistant(LOOKUP, WEATHER, TIME), result("call_1")]
    messages = [USER, assistant(WEATHER, TIME), result("call_3")]
    assert tails.restored(messages, [row(kept, WEATHER, TIME)]) == [USER, *kept, result("call_3")]


@pytest.mark.parametrize(
    "user",
    [
        {"role": "user", "content": [{"type": "text", "text": USER["content"]}]},
        {"role": "user", "content": USER["content"].replace(" ", "\n  ") + "\n"},
        {"role": "user", "content": USER["content"], "name": "ann", "x": 1},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Weather in Rome,", "cache_control": {"type": "x"}},
                {"type": "image_url", "image_url": {"url": "data:,"}},
                {"type": "text", "text": "and look it up."},
            ],
        },
    ],
    ids=["list", "blanks", "more members", "parts"],
)
def test_the_same_words_in_another_form_are_the_same(user):
    assert tails.restored([user, *GOES_ON[1:]], [row(KEPT, WEATHER)])[1:4] == KEPT


def test_a_history_that_was_trimmed_is_restored_too():
    messages = [{"role": "system", "content": "Be brief."}, *GOES_ON[1:]]
    assert tails.restored(messages, [row(KEPT, WEATHER)]) == [messages[0], *KEPT, result("call_2")]
    assert tails.restored(GOES_ON[1:], [row(KEPT, WEATHER)]) == [*KEPT, result("call_2")]


def test_of_conversations_that_repeat_an_id_each_gets_its_own():
    words = [{"role": "user", "content": text} for text in ("One.", "Two.", "Three.")]
    kept = [[assistant(LOOKUP), result("call_1", str(n)), COPY] for n in range(3)]
    rows = [row(kept[n], WEATHER, words=[words[n]]) for n in (2, 0, 1)]
    for n in range(3):
        assert tails.restored([words[n], COPY], rows) == [words[n], *kept[n]]


def test_a_conversation_without_hidden_rounds_gets_nothing_of_another_with_the_same_id():
    other = {"role": "user", "content": "Something else."}
    messages = [other, COPY, result("call_2")]
    assert tails.restored(messages, [row(KEPT, WEATHER)]) == messages


def test_of_equal_ones_the_newest_counts():
    newer = [assistant(LOOKUP), result("call_1", "newer"), COPY]
    assert tails.restored(GOES_ON, [row(newer, WEATHER), row(KEPT, WEATHER)])[1:4] == newer


def test_several_tails_of_one_conversation_are_all_restored():
    later = {"role": "user", "content": "And the time?"}
    kept = [assistant(call("call_8", "lookup")), result("call_8"), assistant(TIME)]
    messages = [*GOES_ON, {"role": "assistant", "content": "Sunny."}, later, assistant(TIME)]
    messages += [result("call_3", "noon"), {"role": "user", "content": "Thanks."}]
    rows = [row(kept, TIME, words=[later]), row(KEPT, WEATHER)]
    assert tails.restored(messages, rows) == [
        USER,
        *KEPT,
        *messages[2:5],
        *kept,
        *messages[6:],
    ]


def test_tails_of_one_turn_in_several_steps_are_all_restored():
    second = [assistant(call("call_8", "lookup")), result("call_8"), assistant(TIME)]
    messages = [*GOES_ON, assistant(TIME), result("call_3")]
    rows = [row(second, TIME), row(KEPT, WEATHER)]
    assert tails.restored(messages, rows) == [
        USER,
        *KEPT,
        result("call_2"),
        *second,
        result("call_3"),
    ]


IMAGES = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}


@pytest.mark.parametrize("then", [[], [{"role": "user", "content": "Thanks."}], [assistant(TIME)]])
def test_images_follow_the_client_s_results(then):
    kept = [assistant(LOOKUP, WEATHER, TIME), result("call_1")]
    results = [result("call_2"), result("call_3")]
    messages = [USER, assistant(WEATHER, TIME), *results, *then]
    restored = tails.restored(messages, [row(kept, WEATHER, TIME, after=[IMAGES])])
    assert restored == [USER, *kept, *results, IMAGES, *then]


def test_what_the_client_sent_is_not_changed():
    before = json.dumps(GOES_ON)
    tails.restored(GOES_ON, [row(KEPT, WEATHER, after=[IMAGES])])
    assert json.dumps(GOES_ON) == before


ODD = [
    {"role": "assistant", "tool_calls": [{}]},
    {"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": "f"}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": None, "custom": []}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": [], "arguments": [1]}}]},
    {"role": "assistant", "tool_calls": None},
    {"role": "user", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
]


@pytest.mark.parametrize("message", ODD)
def test_odd_messages_go_as_sent(message):
    messages = [{"role": "user", "content": None}, {"role": "user", "content": [{}]}, message]
    assert tails.restored(messages, [row(KEPT, WEATHER)]) == messages
    assert all(isinstance(id, str) for id in tails.ids_in(messages))


def test_a_custom_tool_s_call_is_recognised():
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    kept = [*KEPT[:2], assistant(custom)]
    digest = tails.calls_digest([ToolCall("c", "sql", "select 1")])
    kept_row = Row(call_id="c", calls_digest=digest, words_digest=tails.words_digest([USER]))
    kept_row.content = {"messages": kept, "after": []}
    assert tails.restored([USER, assistant(custom)], [kept_row]) == [USER, *kept]


# --- through the wire


async def mixed_turn(**more):
    asked = [call("call_5", "lookup"), WEATHER]
    turn = await play(
        THEIRS | {"messages": [USER]}, [whole(None, LOOKUP), whole("Hm.", *asked)], **more
    )
    ((tail, theirs),) = turn.kept
    return turn, tail, theirs


async def test_a_continued_turn_holds_what_one_model_would_have_seen():
    turn, tail, theirs = await mixed_turn(
        results=lambda call: ToolResult("42", images=(Image("image/png", "AA"),)), images=True
    )
    kept = Row(
        call_id="call_2",
        calls_digest=tails.calls_digest(theirs),
        words_digest=tails.words_digest([USER]),
        content={"messages": tail.messages, "after": tail.after},
    )
    restored = tails.restored([USER, turn.message, result("call_2")], [kept])
    assert [m["role"] for m in restored] == [
        "user",
        "assistant",
        "tool",
        "user",  # the images of the first round
        "assistant",
        "tool",
        "tool",
        "user",  # those of the second, after the client's own result
    ]
    asked = [c["id"] for m in restored for c in m.get("tool_calls", [])]
    answered = [m["tool_call_id"] for m in restored if m["role"] == "tool"]
    assert sorted(asked) == sorted(answered) == ["call_1", "call_2", "call_5"]


# --- the table


def save(tail=None, calls=(WEATHER,), *, principal="user:1", wire="chat"):
    tail = tail or Tail(messages=KEPT, hidden=True)
    tails.save(tail, of(*calls), principal=principal, wire=wire, turn_id=uuid4(), messages=[USER])


def found(*ids, principal="user:1", wire="chat"):
    return tails.find(ids, principal=principal, wire=wire)


@pytest.mark.django_db
def test_a_tail_is_found_by_any_of_its_client_s_calls():
    save(calls=(WEATHER, TIME))
    for id in ("call_2", "call_3"):
        (kept,) = found("other", id)
        assert kept.content == {"messages": KEPT, "after": []}
    assert tails.restored([USER, assistant(TIME, WEATHER)], found("call_2")) == [USER, *KEPT]
    assert found("call_1") == []
    assert found() == []


@pytest.mark.django_db
def test_a_stranger_never_gets_another_s_tail_nor_one_of_another_wire():
    save()
    assert found("call_2", principal="user:2") == []
    assert found("call_2", principal="") == []
    assert found("call_2", wire="messages") == []
    assert len(found("call_2")) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(("age", "there"), [(23.9, 1), (24.1, 0), (1000, 0)])
def test_a_tail_is_kept_for_24_hours_and_no_longer(age, there):
    save()
    Row.objects.update(created_at=timezone.now() - timedelta(hours=age))
    assert len(found("call_2")) == there


@pytest.mark.django_db
def test_the_newest_comes_first():
    for n in range(3):
        save(Tail(messages=[result("call_1", str(n)), COPY]))
    assert [r.content["messages"][0]["content"] for r in found("call_2")] == ["2", "1", "0"]


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["a\0b", "☀\U0001f600", "\\u0000", '"\\'], ids=ascii)
def test_any_text_can_be_kept_and_any_id_asked_for(text):
    odd = call(f"call_{text}", "weather", json.dumps({"q": text}))
    hidden = [assistant(LOOKUP, content=text), {**result("call_1", text), text: [text, {text: 1}]}]
    save(Tail(messages=[*hidden, assistant(odd)]), calls=(odd,))
    (kept,) = found(odd["id"])
    whole, shown = [USER, assistant(odd)], text.replace("\0", "\ufffd")
    assert kept.content["messages"][0]["content"] == shown
    assert tails.restored(whole, [kept])[1:] == kept.content["messages"]


@pytest.mark.django_db
def test_an_id_longer_than_its_column_is_found_and_told_apart():
    long = call("call_" + "x" * 400, "weather")
    save(calls=(long,))
    kept = found(long["id"])
    assert tails.restored([USER, assistant(long)], kept) == [USER, *KEPT]
    other = assistant(call("call_" + "x" * 399 + "y", "weather"))
    assert tails.restored([USER, other], kept) == [USER, other]
