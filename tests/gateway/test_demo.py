"""The built-in model: it does what a user's words ask for, and never fails."""

import time

import pytest
from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import demo, loop
from gateway.chat import Chat
from gateway.loop import TooManyRounds
from gateway.sse import DONE
from tests.wires.checker import check_plain, check_stream
from tools.base import ToolResult


def function(name, **properties):
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


ADD = function("add", a={"type": "integer"}, b={"type": "number"})
SEARCH = function("search", query={"type": "string"}, limit={"type": "integer"})


async def events(body):
    return [event async for batch in demo.answer(body) for event in batch]


async def said(words, *after, tools=(ADD, SEARCH), **more):
    """The demo model's next answer: its text and its calls as (name, arguments)."""
    user = words if isinstance(words, dict) else {"role": "user", "content": words}
    body = {"model": "demo", "messages": [user, *after], "tools": list(tools), **more}
    (answer,) = await events(body)
    reply = check_plain(answer)
    return reply.text, [(call.name, call.arguments) for call in reply.calls]


def played(*results, name="add"):
    """A round that is over: the calls, and what they gave."""
    asked = [{"id": f"c{n}", "function": {"name": name}} for n in range(len(results))]
    answers = [
        {"role": "tool", "tool_call_id": f"c{n}", "content": r} for n, r in enumerate(results)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": asked}, *answers]


# --- scripts


async def test_a_line_calls_a_tool_with_its_json():
    assert await said('CALL add {"a": 1, "b": 2}') == ("", [("add", '{"a": 1, "b": 2}')])


@pytest.mark.parametrize("line", ["CALL add", "CALL add ", "  CALL   add", "CALL\tadd\t"])
async def test_a_call_without_arguments_has_none(line):
    assert await said(line) == ("", [("add", "{}")])


async def test_several_lines_are_parallel_calls():
    _, calls = await said('CALL add {"a": 1}\nand\nCALL search {"query": "x"}\nCALL add {"a": 2}')
    assert [name for name, _ in calls] == ["add", "search", "add"]


async def test_arguments_need_not_be_sound():
    assert await said('CALL add {"a": ') == ("", [("add", '{"a":')])


async def test_a_tool_that_nobody_offers_can_be_called():
    assert await said("CALL frobnicate {}") == ("", [("frobnicate", "{}")])


async def test_a_call_without_a_name_is_none():
    text, calls = await said("CALL")
    assert calls == [] and text.startswith("I am the demo model")


async def test_say_is_text_and_stands_before_the_calls():
    assert await said("SAY Hm.\nSAY So.\nCALL add") == ("Hm.\nSo.", [("add", "{}")])


async def test_text_alone_ends_the_turn():
    assert await said("SAY Hello.\nTHEN\nCALL add") == ("Hello.", [])


async def test_then_begins_the_next_round():
    script = 'CALL add {"a": 1}\nTHEN\nSAY Now.\nCALL search\nTHEN\nSAY Done.'
    assert await said(script) == ("", [("add", '{"a": 1}')])
    one = played("3")
    assert await said(script, *one) == ("Now.", [("search", "{}")])
    two = [*one, *played("found", name="search")]
    assert await said(script, *two) == ("Done.", [])


async def test_after_its_calls_it_tells_what_they_gave():
    text, calls = await said("CALL add\nCALL add", *played("3", "4"))
    assert (text, calls) == ("The tools answered:\n- 3\n- 4", [])


async def test_an_empty_last_round_tells_too():
    assert await said("CALL add\nTHEN", *played("3")) == ("The tools answered:\n- 3", [])


async def test_a_new_message_of_the_user_is_a_new_script():
    after = [*played("3"), {"role": "assistant", "content": "Done."}]
    again = {"role": "user", "content": "CALL search"}
    assert await said("CALL add", *after, again) == ("", [("search", "{}")])


async def test_images_of_results_are_no_new_message_but_the_user_s_own_are():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    pictures = {"role": "user", "content": [{"type": "text", "text": "Images:"}, image]}
    assert (await said("CALL add", *played("3"), pictures))[0] == "The tools answered:\n- 3"
    asked = {"role": "user", "content": [image, {"type": "text", "text": "CALL add"}]}
    assert await said(asked) == ("", [("add", "{}")])


async def test_tools_that_were_taken_away_are_not_called_again():
    script = "CALL add\nTHEN\nCALL add"
    assert await said(script, *played("3")) == ("", [("add", "{}")])
    text, calls = await said(script, *played("3"), tools=[SEARCH])
    assert (text, calls) == ("The tools answered:\n- 3", [])


async def test_the_choice_none_is_obeyed():
    assert (await said("CALL add", tool_choice="none"))[1] == []
    text, calls = await said("CALL add\nTHEN\nCALL add", *played("3"), tool_choice="none")
    assert (text, calls) == ("The tools answered:\n- 3", [])
    assert await said("SAY Hello.\nCALL add", tool_choice="none") == ("Hello.", [])


# --- plain words


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("Please add 2 and 3.5!", [("add", '{"a":2,"b":3.5}')]),
        ('Use add {"a": 7}', [("add", '{"a":7}')]),
        ("search: cats and dogs?", [("search", '{"query":"cats and dogs"}')]),
        ("search cats 5", [("search", '{"query":"cats 5","limit":5}')]),
        ("first add 1 then search x", None),
        ("add", [("add", "{}")]),
        ("add 007", [("add", '{"a":7}')]),
        ("add -3", [("add", '{"a":-3}')]),
        ("add { not json }", [("add", "{}")]),
    ],
)
async def test_a_tool_that_is_named_in_plain_words_is_called(words, calls):
    _, got = await said(words)
    if calls is None:
        assert [name for name, _ in got] == ["add", "search"]
    else:
        assert got == calls


@pytest.mark.parametrize("words", ["Hello.", "An addition, please.", "preadd", "", "Add it."])
async def test_words_that_name_no_tool_get_an_answer_that_says_what_it_is(words):
    text, calls = await said(words)
    assert calls == []
    assert text.startswith("I am the demo model")


@pytest.mark.parametrize("tools", [(), None])
async def test_without_tools_it_says_what_it_is(tools):
    body = {"model": "demo", "messages": [{"role": "user", "content": "add 1"}], "tools": tools}
    (answer,) = await events(body)
    assert check_plain(answer).text.startswith("I am the demo model")


async def test_without_a_user_it_answers_too():
    text, calls = await said({"role": "system", "content": "CALL add"})
    assert calls == [] and text


ODD_TOOLS = [
    {},
    {"type": "custom", "custom": {"name": "add"}},
    {"function": {"name": "add", "parameters": "x"}},
    {"function": {"name": "add", "parameters": {"properties": [1]}}},
    {"function": {"name": "add", "parameters": {"properties": {"a": True, "b": {"type": [1]}}}}},
    {"function": {"name": "", "parameters": None}},
    {"type": "web_search"},
]


@pytest.mark.parametrize("tool", ODD_TOOLS, ids=range(len(ODD_TOOLS)))
async def test_tools_of_any_form_do_no_harm(tool):
    text, calls = await said("add 1 {", tools=[tool])
    assert text or calls


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["CALL", "SAY", "THEN", "add", "search", " ", "\n", "{", '{"a": 1}', "9" * 30]
        )
        | st.text(max_size=4)
    ),
    st.booleans(),
)
def test_any_words_get_an_answer_and_the_stream_says_the_same(words, results):
    messages = [{"role": "user", "content": "".join(words)}]
    messages += played(" \n x", "\n") if results else []
    body = {"model": "demo", "messages": messages, "tools": [ADD, SEARCH]}
    (whole,) = async_to_sync(events)(body)
    plain = check_plain(whole)
    shown = async_to_sync(events)(body | {"stream": True})
    streamed = check_stream(b"".join(map(Chat.encode, shown)), include_usage=True)
    assert shown[-1] is DONE
    assert (streamed.text, streamed.calls) == (plain.text, plain.calls)
    assert (streamed.finish_reason, streamed.usage) == (plain.finish_reason, plain.usage)
    assert plain.text or plain.calls


@pytest.mark.parametrize(
    "words",
    ["{" * 200_000, "add " + "9" * 200_000, " " * 200_000, "add" * 99_999],
    ids=["brackets", "digits", "blanks", "names"],
)
async def test_long_words_are_answered_at_once(words):
    began = time.process_time()
    await said(words)
    assert time.process_time() - began < 2


# --- in a turn


async def turn(words, *, streamed, limit=10, tools=()):
    body = {"model": "demo", "messages": [{"role": "user", "content": words}], "stream": streamed}
    body |= {"tools": list(tools), "stream_options": {"include_usage": True}}
    theirs = {tool["function"]["name"] for tool in tools}
    wire = Chat(body, tools=[ADD, SEARCH], claims=lambda name: name not in theirs)

    async def run(calls):
        return [ToolResult(f"{call.name} {call.arguments}") for call in calls]

    async def keep(tail, calls):
        pass

    shown = [e async for b in loop.run(wire, demo.answer, run, limit=limit, keep=keep) for e in b]
    if not streamed:
        return check_plain(shown[0])
    return check_stream(b"".join(map(wire.encode, shown)), include_usage=True)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_the_whole_path_runs_offline(streamed):
    reply = await turn('SAY Hm.\nCALL add {"a": 1}\nCALL search\nTHEN\nCALL add', streamed=streamed)
    assert reply.text == "Hm.\n\nThe tools answered:\n" + "\n".join(
        ['- add {"a": 1}', "- search {}", "- add {}"]
    )
    assert reply.usage["prompt_tokens"] > 0
    assert reply.calls == []


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_at_the_limit_it_makes_an_answer_of_what_it_has(streamed):
    script = "\nTHEN\n".join(["CALL add"] * 9)
    for tools in ([], [function("weather")]):
        reply = await turn(script, streamed=streamed, limit=3, tools=tools)
        assert reply.text == "The tools answered:\n- add {}\n- add {}"
    with pytest.raises(TooManyRounds):
        await turn(script, streamed=streamed, limit=1)


async def test_ids_of_calls_are_not_repeated_in_a_conversation():
    bodies = [[], played("1"), [*played("1"), *played("2")]]
    ids = []
    for after in bodies:
        user = {"role": "user", "content": "CALL add\nCALL add\nTHEN\nCALL add\nTHEN\nCALL add"}
        (answer,) = await events({"messages": [user, *after], "tools": [ADD]})
        ids += [call.id for call in check_plain(answer).calls]
    assert len(ids) == len(set(ids)) == 4
