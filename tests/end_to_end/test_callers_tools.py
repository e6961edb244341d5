"""A caller's own tools beside the gateway's: mixed turns and what becomes of them afterwards."""

import json

import pytest

from tests.end_to_end.asking import WAYS

HIDDEN = ("add", "shout", "weather", "refuse", "meet", "wait")
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup_order",
        "description": "An order of the shop.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
}

pytestmark = pytest.mark.parametrize("way", WAYS)


def continued(script, answer, *results):
    """The conversation as the client's program goes on with it."""
    told = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(answer.reply.calls, results, strict=True)
    ]
    return [{"role": "user", "content": script}, answer.message, *told]


def test_a_mixed_turn_gives_the_client_only_its_own_calls_and_goes_on_whole(
    client, deployment, provider, mcp, way
):
    added = mcp["session"].count("added")
    servers = [mcp["session"].inline()]
    script = (
        'SAY One moment.\nCALL add {"a": 2, "b": 3}\nTHEN\n'
        'CALL shout {"text": "hey"}\nCALL lookup_order {"number": 7}\nTHEN\nSAY All done.'
    )
    first = client(script, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    [call] = first.reply.calls
    assert (call.name, json.loads(call.arguments)) == ("lookup_order", {"number": 7})
    assert first.reply.finish_reason == "tool_calls"
    assert first.reply.text == "One moment."

    provider.requests.clear()
    messages = continued(script, first, '{"state": "sent"}')
    second = client(messages, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    assert second.reply.text == "All done."
    [body] = provider.bodies
    said = [
        (m["role"], m.get("content") if m["role"] == "tool" else None) for m in body["messages"]
    ]
    assert said == [
        ("user", None),
        ("assistant", None),
        ("tool", "5"),
        ("assistant", None),
        ("tool", "HEY"),
        ("tool", '{"state": "sent"}'),
    ]
    assert mcp["session"].count("added") == added + 1, "nothing runs twice"
    record = deployment.turn(second.request_id)
    assert (record["status"], record["tool_calls"]) == ("ok", 0)


def test_a_turn_that_ends_at_once_in_the_clients_call_needs_nothing_kept(
    client, provider, mcp, way
):
    script = 'CALL lookup_order {"number": 7}\nTHEN\nSAY Found.'
    servers = [mcp["modern"].inline()]
    first = client(script, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    assert [call.name for call in first.reply.calls] == ["lookup_order"]
    messages = continued(script, first, "sent")
    second = client(messages, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    assert second.reply.text == "Found."
    assert [m["role"] for m in provider.bodies[-1]["messages"]] == ["user", "assistant", "tool"]


def test_parallel_calls_of_the_client_come_with_indexes_of_their_own(client, provider, mcp, way):
    script = (
        'CALL add {"a": 1, "b": 1}\nCALL lookup_order {"number": 1}\nCALL shout {"text": "x"}\n'
        'CALL lookup_order {"number": 2}\nTHEN\nSAY Both found.'
    )
    servers = [mcp["stateless"].inline()]
    first = client(script, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    assert [json.loads(call.arguments)["number"] for call in first.reply.calls] == [1, 2]
    messages = continued(script, first, "one", "two")
    second = client(messages, way=way, hidden=HIDDEN, mcp_servers=servers, tools=[LOOKUP])
    assert second.reply.text == "Both found."
    told = [m["content"] for m in provider.bodies[-1]["messages"] if m["role"] == "tool"]
    assert sorted(told) == ["2", "X", "one", "two"]


def test_the_callers_tool_wins_a_name_and_the_servers_is_still_callable(client, provider, mcp, way):
    parameters = {"type": "object", "properties": {"mine": {"type": "boolean"}}}
    mine = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    script = 'CALL session__add {"a": 4, "b": 4}\nTHEN\nCALL add {"mine": true}'
    answer = client(script, way=way, mcp_servers=[mcp["session"].inline()], tools=[mine])
    assert [call.name for call in answer.reply.calls] == ["add"]
    assert provider.bodies[-1]["messages"][-1]["content"] == "8"


def test_the_conversation_can_go_on_after_the_continuation(client, provider, mcp, way):
    script = 'CALL add {"a": 2, "b": 3}\nTHEN\nCALL lookup_order {"number": 7}\nTHEN\nSAY Found it.'
    asked = {"way": way, "mcp_servers": [mcp["session"].inline()], "tools": [LOOKUP]}
    first = client(script, hidden=HIDDEN, **asked)
    messages = continued(script, first, "sent")
    second = client(messages, hidden=HIDDEN, **asked)
    # Providers refuse the nulls of the SDK's dump, with a gateway and without.
    said = {name: value for name, value in second.message.items() if value is not None}
    messages += [said, {"role": "user", "content": "SAY And once more."}]
    third = client(messages, hidden=HIDDEN, **asked)
    assert third.reply.text == "And once more."
    roles = [m["role"] for m in provider.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
