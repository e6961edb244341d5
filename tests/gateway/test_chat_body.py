"""What a chat completion's model gets: hints, tools, tool choice, results, images (spec 3.4)."""

import pytest

from tests.gateway.playing import ASKED, call, calls, play, stream, tool, whole
from tools.base import Image, ToolResult

LOOKUP, WEATHER = call("call_1", "lookup"), call("call_2", "weather")
THEIRS = {"tools": [tool("weather")]}
HINTS = "Some tools are from:\n- a: use it"


async def sent(body, **more):
    """The body of a turn's only model call."""
    return (await play(body, [whole("42.")], **more)).bodies[0]


# --- hints


async def test_without_a_system_message_the_hints_are_a_new_one_before_all():
    body = await sent({}, hints=HINTS)
    assert body["messages"] == [{"role": "system", "content": HINTS}, *ASKED]


async def test_without_hints_the_messages_are_the_client_s():
    assert (await sent({}))["messages"] == ASKED


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_hints_stand_before_the_text_and_a_blank_line(role):
    body = await sent({"messages": [{"role": role, "content": "Be brief."}, *ASKED]}, hints=HINTS)
    assert body["messages"] == [{"role": role, "content": f"{HINTS}\n\nBe brief."}, *ASKED]


@pytest.mark.parametrize("content", [None, ""])
async def test_hints_are_the_text_of_an_empty_system_message(content):
    body = await sent({"messages": [{"role": "system", "content": content}]}, hints=HINTS)
    assert body["messages"] == [{"role": "system", "content": HINTS}]


async def test_hints_are_a_first_text_part_of_a_list_and_the_others_are_untouched():
    part = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    message = {"role": "system", "content": [part], "name": "boss"}
    body = await sent({"messages": [message, *ASKED]}, hints=HINTS)
    first = {"type": "text", "text": HINTS}
    assert body["messages"][0] == {"role": "system", "content": [first, part], "name": "boss"}


async def test_only_the_first_system_or_developer_message_gets_hints_where_it_stands():
    messages = [
        *ASKED,
        {"role": "developer", "content": "One."},
        {"role": "system", "content": "Two."},
    ]
    body = await sent({"messages": messages}, hints=HINTS)
    assert [m["content"] for m in body["messages"]] == [
        ASKED[0]["content"],
        f"{HINTS}\n\nOne.",
        "Two.",
    ]


async def test_hints_are_said_once_in_a_turn_of_several_rounds():
    turn = await play({}, [whole(None, LOOKUP), whole(None, LOOKUP), whole("42.")], hints=HINTS)
    assert [str(body["messages"]).count("use it") for body in turn.bodies] == [1, 1, 1]


# --- tools


async def test_the_client_s_tools_come_first_and_all_are_offered_in_every_round():
    turn = await play(THEIRS, [whole(None, LOOKUP), whole("42.")])
    names = ["weather", "lookup", "search"]
    assert [[t["function"]["name"] for t in b["tools"]] for b in turn.bodies] == [names, names]


@pytest.mark.parametrize("more", [{}, {"tools": []}, {"tools": None}])
async def test_without_tools_of_ours_nothing_is_added(more):
    body = await sent({"temperature": 0.5, "x": [None], **more}, owned=[])
    assert body == {"model": "model-1", "messages": ASKED, "temperature": 0.5, "x": [None], **more}


async def test_everything_else_goes_upstream_as_it_is_in_every_round():
    more = {
        "temperature": 0.5,
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "store": True,
        "reasoning_effort": "low",
        "x_vendor": [1, None],
    }
    turn = await play(more, [whole(None, LOOKUP), whole("42.")])
    for body in turn.bodies:
        assert {name: body[name] for name in more} == more


# --- tool choice

ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": n}} for n in ("lookup", "weather")],
    },
    "x": 1,
}


def auto(names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return ALLOWED | {"allowed_tools": {"mode": "auto", "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "then"),
    [
        ("required", "auto"),
        ({"type": "function", "function": {"name": "lookup"}}, "auto"),
        ({"type": "custom", "custom": {"name": "sql"}}, "auto"),
        (ALLOWED, auto(["lookup", "weather"])),
        ("auto", "auto"),
        ("none", "none"),
        (None, None),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_forced_choice_holds_for_the_first_round_only(choice, then, streamed):
    rounds = [whole(None, LOOKUP), whole(None, LOOKUP), whole("42.")]
    if streamed:
        rounds = [stream(calls(LOOKUP)), stream(calls(LOOKUP)), stream()]
    turn = await play({"tool_choice": choice, "stream": streamed}, rounds)
    assert [body["tool_choice"] for body in turn.bodies] == [choice, then, then]


async def test_no_choice_is_invented():
    turn = await play({}, [whole(None, LOOKUP), whole("42.")])
    assert all("tool_choice" not in body for body in turn.bodies)


# --- the last permitted call


async def test_on_the_last_permitted_call_only_the_client_s_tools_stay():
    turn = await play(THEIRS, [whole(None, LOOKUP), whole("42.")], limit=2)
    assert turn.bodies[1]["tools"] == THEIRS["tools"]
    assert "tool_choice" not in turn.bodies[1]
    assert turn.message["content"] == "42."


async def test_if_it_has_none_the_tools_stay_and_the_choice_is_none():
    turn = await play({"tool_choice": "required"}, [whole(None, LOOKUP), whole("42.")], limit=2)
    assert turn.bodies[1]["tool_choice"] == "none"
    assert turn.bodies[1]["tools"] == turn.bodies[0]["tools"]


@pytest.mark.parametrize(
    ("tools", "then"), [(["weather"], auto(["weather"])), (["time"], "none")], ids=["some", "none"]
)
async def test_the_choice_of_the_last_call_names_no_tool_that_is_not_offered(tools, then):
    body = {"tools": [tool(name) for name in tools], "tool_choice": ALLOWED}
    turn = await play(body, [whole(None, LOOKUP), whole("42.")], limit=2)
    assert turn.bodies[1]["tool_choice"] == then


async def test_the_last_call_offers_everything_if_no_tool_was_used():
    body = (await play(THEIRS, [whole("42.")], limit=1)).bodies[0]
    assert len(body["tools"]) == 3
    assert "tool_choice" not in body


# --- results


async def test_results_stand_in_the_order_of_the_calls_right_after_the_answer():
    asked = [call(f"call_{n}", "lookup") for n in range(3)]
    turn = await play({}, [whole("Hm.", *asked), whole("42.")])
    assert turn.appended == [
        {"role": "assistant", "content": "Hm.", "tool_calls": asked},
        *({"role": "tool", "tool_call_id": c["id"], "content": f"<{c['id']}>"} for c in asked),
    ]


async def test_a_failed_call_s_result_says_so():
    turn = await play(
        {},
        [whole(None, LOOKUP), whole("42.")],
        results=lambda call: ToolResult("no such page", is_error=True),
    )
    assert turn.appended[1]["content"] == "Error: no such page"


def seen(call):
    return ToolResult(f"<{call.id}>", images=(Image("image/png", "AAAA"),))


async def test_images_follow_all_results_of_an_answer_as_the_user_s():
    asked = [call("call_1", "lookup"), call("call_2", "search")]
    turn = await play({}, [whole(None, *asked), whole("42.")], results=seen, images=True)
    assert [m["role"] for m in turn.appended] == ["assistant", "tool", "tool", "user"]
    parts = turn.appended[-1]["content"]
    assert [p["type"] for p in parts] == ["text", "image_url", "text", "image_url"]
    assert "lookup" in parts[0]["text"] and "search" in parts[2]["text"]
    assert parts[1]["image_url"] == {"url": "data:image/png;base64,AAAA"}


async def test_images_of_an_earlier_round_stay_before_the_next_answer():
    rounds = [whole(None, LOOKUP), whole(None, call("call_9", "lookup")), whole("42.")]
    turn = await play({}, rounds, results=seen, images=True)
    roles = ["assistant", "tool", "user", "assistant", "tool", "user"]
    assert [m["role"] for m in turn.appended] == roles


async def test_a_model_that_takes_no_images_gets_none():
    turn = await play({}, [whole(None, LOOKUP), whole("42.")], results=seen, images=False)
    assert [m["role"] for m in turn.appended] == ["assistant", "tool"]


async def test_images_of_a_mixed_turn_are_kept_for_after_the_client_s_results():
    turn = await play(THEIRS, [whole(None, LOOKUP, WEATHER)], results=seen, images=True)
    ((tail, _),) = turn.kept
    assert [m["role"] for m in tail.messages] == ["assistant", "tool"]
    assert [m["role"] for m in tail.after] == ["user"]
