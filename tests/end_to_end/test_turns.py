"""Whole turns: a client, the server's own process, a strict provider, real MCP servers."""

import json

import pytest

from tests.end_to_end.asking import WAYS

TOOLS = ("add", "shout", "weather", "refuse", "meet", "wait")
KINDS = ("session", "stateless", "modern", "sse")
SUM = 'SAY Let me see.\nCALL add {"a": 2, "b": 3}\nTHEN\nSAY It is five.'

pytestmark = pytest.mark.parametrize("way", WAYS)


def tool_steps(record):
    return [(s["server"], s["name"], s["outcome"]) for s in record["steps"] if s["kind"] == "tool"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_calls_a_tool_on_a_real_server(client, deployment, provider, mcp, kind, way):
    added = mcp[kind].count("added")
    answer = client(SUM, way=way, hidden=TOOLS, mcp_servers=[mcp[kind].inline()])
    assert answer.status == 200, answer.reply.error
    assert answer.reply.text == "Let me see.\n\nIt is five."
    assert (answer.reply.finish_reason, answer.reply.calls) == ("stop", [])
    assert mcp[kind].count("added") == added + 1
    first, second = provider.bodies
    assert {tool["function"]["name"] for tool in first["tools"]} == set(TOOLS)
    assert second["messages"][-1]["content"] == "5"
    record = deployment.turn(answer.request_id)
    assert (record["status"], record["rounds"]) == ("ok", 2)
    assert tool_steps(record) == [(kind, "add", "ok")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_usage_is_the_sum_of_all_rounds_in_reply_and_record(
    client, deployment, provider, mcp, kind, way
):
    answer = client(SUM, way=way, mcp_servers=[mcp[kind].inline()])
    usage = answer.reply.usage
    if way == "streamed":
        assert usage is None
    else:
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (300, 30)
        assert usage["total_tokens"] == 330
        assert usage["prompt_tokens_details"]["cached_tokens"] == 15
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 6
    record = deployment.turn(answer.request_id)
    counted = [record[f"{name}_tokens"] for name in ("prompt", "completion", "cached", "reasoning")]
    assert counted == [300, 30, 15, 6]


@pytest.mark.services
def test_a_turn_calls_tools_of_npms_server_everything(
    client, deployment, provider, everything, way
):
    script = (
        'CALL echo {"message": "hello"}\nCALL get-sum {"a": 2, "b": 40}\n'
        'CALL get-structured-content {"location": "Chicago"}\nCALL get-tiny-image\nTHEN\nSAY Done.'
    )
    answer = client(script, way=way, mcp_servers=[{"name": "everything", "url": everything}])
    assert answer.reply.text == "Done."
    results = [m for m in provider.bodies[-1]["messages"] if m["role"] == "tool"]
    told = [m["content"] for m in results]
    assert told[0] == "Echo: hello"
    assert "42" in told[1]
    assert "temperature" in told[2]
    assert "image/png" in told[3]
    assert [step[2] for step in tool_steps(deployment.turn(answer.request_id))] == ["ok"] * 4


def test_two_servers_in_one_turn_and_their_equal_names_stay_apart(client, provider, mcp, way):
    one, two = mcp["session"].inline("one"), mcp["modern"].inline("two")
    added = [mcp[kind].count("added") for kind in ("session", "modern")]
    script = 'CALL add {"a": 1, "b": 1}\nCALL two__add {"a": 20, "b": 1}\nTHEN\nSAY Both.'
    answer = client(script, way=way, hidden=[*TOOLS, "two__add"], mcp_servers=[one, two])
    assert answer.reply.text == "Both."
    assert [m["content"] for m in provider.bodies[-1]["messages"][-2:]] == ["2", "21"]
    assert [mcp[kind].count("added") for kind in ("session", "modern")] == [n + 1 for n in added]


@pytest.mark.parametrize("kind", KINDS)
def test_parallel_calls_are_under_way_at_once(client, provider, mcp, kind, way):
    # Each comes back when all four are there: one after the other they never would.
    parties = mcp[kind].count("met") + 4
    script = f'CALL meet {{"parties": {parties}}}\n' * 4 + "THEN\nSAY All met."
    answer = client(script, way=way, hidden=TOOLS, mcp_servers=[mcp[kind].inline()])
    assert answer.reply.text == "All met."
    assert [m["content"] for m in provider.bodies[-1]["messages"][-4:]] == ["met"] * 4


def test_calls_that_come_interleaved_and_without_indexes_are_told_apart(client, provider, mcp, way):
    script = (
        'INTERLEAVE\nNOINDEX\nCALL add {"a": 1, "b": 2}\nCALL shout {"text": "so what"}\n'
        'CALL add {"a": 10, "b": 20}\nTHEN\nSAY Done.'
    )
    answer = client(script, way=way, hidden=TOOLS, mcp_servers=[mcp["session"].inline()])
    assert answer.reply.text == "Done."
    told = [m["content"] for m in provider.bodies[-1]["messages"][-3:]]
    assert told == ["3", "SO WHAT", "30"]


def test_a_list_of_several_pages_is_offered_whole(client, provider, mcp, way):
    script = "CALL tool_0\nCALL tool_25\nCALL tool_43\nTHEN\nSAY Done."
    answer = client(script, way=way, mcp_servers=[mcp["pages"].inline()])
    assert answer.reply.text == "Done."
    names = [tool["function"]["name"] for tool in provider.bodies[0]["tools"]]
    assert names == [f"tool_{n}" for n in range(44)]
    told = [m["content"] for m in provider.bodies[-1]["messages"][-3:]]
    assert told == [f"tool_{n} was called" for n in (0, 25, 43)]


def test_what_goes_wrong_in_a_tool_is_told_to_the_model(client, deployment, provider, mcp, way):
    script = (
        'CALL refuse\nCALL add {"a": "x"}\nRAW add not json\nCALL nonsense {}\nTHEN\nSAY I see.'
    )
    answer = client(script, way=way, mcp_servers=[mcp["session"].inline()])
    assert answer.reply.text == "I see."
    refused, mistyped, garbled, unknown = [
        m["content"] for m in provider.bodies[-1]["messages"][-4:]
    ]
    assert "this tool never works" in refused
    assert "integer" in mistyped
    assert "JSON" in garbled
    assert "nonsense" in unknown
    steps = tool_steps(deployment.turn(answer.request_id))
    assert len(steps) == 4
    assert "ok" not in {step[2] for step in steps}


def test_structured_output_is_the_last_rounds_text_alone(client, provider, mcp, way):
    wanted = {"city": "Oslo", "degrees": 21.5}
    script = 'SAY Let me look.\nCALL weather {"city": "Oslo"}\nTHEN\n' + f"SAY {json.dumps(wanted)}"
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
        "required": ["city", "degrees"],
        "additionalProperties": False,
    }
    answer = client(
        script,
        way=way,
        mcp_servers=[mcp["stateless"].inline()],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "weather", "strict": True, "schema": schema},
        },
    )
    assert json.loads(answer.reply.text) == wanted
    assert json.loads(provider.bodies[-1]["messages"][-1]["content"]) == wanted


def test_a_trace_that_was_asked_for_disturbs_no_client(client, provider, mcp, way):
    answer = client(SUM, way=way, mcp_servers=[mcp["session"].inline()], orazaka_trace=True)
    assert answer.reply.text == "Let me see.\n\nIt is five."
    if trace := answer.reply.trace:  # the SDK has no place for it in a stream
        assert [step["kind"] for step in trace] == ["server", "model", "tool", "model"]
        assert {step["outcome"] for step in trace[1:]} == {"ok"}


def test_without_servers_a_turn_goes_through_as_it_is(client, provider, way):
    answer = client("SAY Hello there.", way=way, temperature=0.25, metadata={"a": "b"})
    assert answer.reply.text == "Hello there."
    [body] = provider.bodies
    assert body["model"] == "strict-1"
    assert (body["temperature"], body["metadata"]) == (0.25, {"a": "b"})
    assert "tools" not in body


def test_the_hints_of_servers_stand_before_the_conversation(client, provider, mcp, way):
    given = mcp["session"].inline("sums", purpose_hint="For sums of whole numbers.")
    for _ in range(2):
        client("SAY Hello.", way=way, mcp_servers=[given])
    first, second = ([m["role"] for m in body["messages"]] for body in provider.bodies)
    assert first == second == ["system", "user"]
    hints = [body["messages"][0]["content"] for body in provider.bodies]
    assert "- sums: For sums of whole numbers." in hints[0]
    assert hints[0] == hints[1], "or the provider's prompt cache is of no use"


def test_a_turn_that_never_ends_is_ended_after_its_rounds(client, deployment, provider, mcp, way):
    script = 'CALL add {"a": 1, "b": 1}\nSTUBBORN\nLOOP'
    answer = client(script, way=way, max_tool_iterations=3, mcp_servers=[mcp["session"].inline()])
    assert answer.reply.error["code"] == "max_tool_iterations"
    assert answer.status in (422, 200)
    assert len(provider.bodies) == 3
    record = deployment.turn(answer.request_id)
    assert (record["status"], record["error_code"]) == ("error", "max_tool_iterations")
    assert record["rounds"] == 3


def test_the_last_round_may_not_call_ours_so_that_an_answer_comes(client, provider, mcp, way):
    script = 'CALL add {"a": 1, "b": 1}\nLOOP'
    answer = client(script, way=way, max_tool_iterations=3, mcp_servers=[mcp["session"].inline()])
    assert answer.reply.text == 'GOT ["2", "2"]'
    assert provider.bodies[-1]["tool_choice"] == "none"
