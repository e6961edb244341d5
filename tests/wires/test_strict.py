"""The strict provider refuses what real ones refuse, and says what a script tells it to."""

import json
import socket

import httpx
import pytest

from tests.wires.checker import check_plain, check_stream
from tests.wires.strict import StrictProvider

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served():
    with StrictProvider() as provider:
        yield provider


@pytest.fixture
def client(served):
    headers = {"authorization": "Bearer sk-test"}
    with httpx.Client(base_url=served.url, headers=headers, trust_env=False) as client:
        yield client


def tool(name="lookup", **parameters):
    schema = {"type": "object", "properties": {}} | parameters
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def user(text):
    return {"role": "user", "content": text}


def asked(*ids, content=None):
    calls = [
        {"id": id, "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
        for id in ids
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(id, content="42"):
    return {"role": "tool", "tool_call_id": id, "content": content}


def body(*messages, **more):
    return {"model": "strict-1", "messages": list(messages)} | more


def plain(client, request):
    response = client.post(PATH, json=request)
    assert response.status_code == 200, response.text
    return check_plain(response.content)


def streamed(client, request, *, include_usage=True):
    options = {"stream": True, "stream_options": {"include_usage": include_usage}}
    response = client.post(PATH, json=request | options)
    assert response.headers["content-type"].startswith("text/event-stream")
    return check_stream(response.content, include_usage=include_usage)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
HELLO = user("hello")
REFUSED = {
    "ours: mcp_servers": body(HELLO, mcp_servers=[]),
    "ours: mcp_server_ids": body(HELLO, mcp_server_ids=[]),
    "ours: max_tool_iterations": body(HELLO, max_tool_iterations=3),
    "ours: tools_header": body(HELLO, tools_header="x"),
    "ours: orazaka_trace": body(HELLO, orazaka_trace=True),
    "no model": {"messages": [HELLO]},
    "no messages": body(),
    "a role that does not exist": body({"role": "robot", "content": "hi"}),
    "a user without content": body(user(None)),
    "content that is a number": body(user(3)),
    "content without parts": body(user([])),
    "a part that does not exist": body(user([{"type": "hologram"}])),
    "a tool message without a call": body(HELLO, result("call_1")),
    "a tool message for another call": body(HELLO, asked("call_1"), result("call_2")),
    "a call without an answer": body(HELLO, asked("call_1"), HELLO),
    "a call without an answer at the end": body(HELLO, asked("call_1")),
    "one of two calls without an answer": body(HELLO, asked("a", "b"), result("a"), HELLO),
    "a call answered twice": body(HELLO, asked("a"), result("a"), result("a")),
    "two calls with one id": body(HELLO, asked("a", "a"), result("a"), result("a")),
    "an empty list of calls": body(HELLO, asked()),
    "an image in a tool message": body(HELLO, asked("a"), result("a", [IMAGE])),
    "an empty list of tools": body(HELLO, tools=[]),
    "two tools of one name": body(HELLO, tools=[tool(), tool()]),
    "a name with a dot": body(HELLO, tools=[tool("repo.list")]),
    "a name of 65 characters": body(HELLO, tools=[tool("a" * 65)]),
    "too many tools": body(HELLO, tools=[tool(f"t{n}") for n in range(129)]),
    "a schema that is no object's": body(HELLO, tools=[tool(type="string")]),
    "$schema": body(HELLO, tools=[tool(**{"$schema": "https://json-schema.org/x"})]),
    "anyOf at the top": body(HELLO, tools=[tool(anyOf=[{"required": ["a"]}])]),
    "a $ref without its definition": body(
        HELLO, tools=[tool(properties={"a": {"$ref": "#/$defs/A"}})]
    ),
    "an array without items": body(HELLO, tools=[tool(properties={"a": {"type": "array"}})]),
    "a choice without tools": body(HELLO, tool_choice="auto"),
    "a choice of no tool": body(
        HELLO, tools=[tool()], tool_choice={"type": "function", "function": {"name": "other"}}
    ),
    "a choice that does not exist": body(HELLO, tools=[tool()], tool_choice="maybe"),
    "parallel calls without tools": body(HELLO, parallel_tool_calls=True),
    "stream options without a stream": body(HELLO, stream_options={"include_usage": True}),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_real_providers_refuse_is_refused(client, fault):
    response = client.post(PATH, json=REFUSED[fault])
    assert (response.status_code, set(response.json())) == (400, {"error"})
    assert check_plain(response.content).error["type"] == "invalid_request_error"


def test_an_object_schema_without_properties_is_refused(client):
    bare = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
    response = client.post(PATH, json=body(HELLO, tools=[bare]))
    assert (response.status_code, response.json()["error"]["param"]) == (
        400,
        "tools[0].function.parameters",
    )


def test_a_body_that_is_not_json_is_refused(client):
    assert client.post(PATH, content=b"{").status_code == 400


def test_what_real_providers_take_is_taken(client):
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = tool(properties={"list": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}})
    request = body(
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        user([{"type": "text", "text": "SAY so"}, IMAGE]),
        tools=[schema],
        tool_choice={"type": "function", "function": {"name": "lookup"}},
        temperature=0,
        stop=["x"],
    )
    assert plain(client, request).text == "so"


def test_a_missing_key_is_refused(served):
    assert httpx.post(served.url + PATH, json=body(HELLO), trust_env=False).status_code == 401


def test_a_wrong_key_is_refused_in_words_that_repeat_it():
    with StrictProvider(key="sk-right") as provider:
        headers = {"authorization": "Bearer sk-wrong"}
        response = httpx.post(
            provider.url + PATH, json=body(HELLO), headers=headers, trust_env=False
        )
    assert (response.status_code, "sk-wrong" in response.text) == (401, True)


def test_models_are_listed(client):
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["strict-1"]


def test_prose_gets_a_greeting(client):
    assert plain(client, body(HELLO)).text == "Hello."


SCRIPT = (
    'SAY I look.\nTHINK hm so\nCALL lookup {"a": 1}\nRAW lookup {"a\nTHEN\nCALL now\nTHEN\nSAY Bye.'
)


def test_a_script_is_played_round_by_round(client):
    first = plain(client, body(user(SCRIPT), tools=[tool()]))
    assert (first.text, first.reasoning, first.finish_reason) == ("I look.", "hm so", "tool_calls")
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("lookup", '{"a": 1}'),
        ("lookup", '{"a'),
    ]
    history = [user(SCRIPT), asked("a", "b"), result("a"), result("b")]
    second = plain(client, body(*history, tools=[tool()]))
    assert [(call.name, call.arguments) for call in second.calls] == [("now", "{}")]
    third = plain(client, body(*history, asked("c"), result("c")))
    assert (third.text, third.finish_reason) == ("Bye.", "stop")


def test_after_the_last_round_the_results_are_told(client):
    history = [user("CALL lookup"), asked("a", "b"), result("a", "1"), result("b", "2")]
    assert plain(client, body(*history)).text == 'GOT ["1", "2"]'


def test_images_after_results_are_not_a_new_script(client):
    history = [user("CALL lookup"), asked("a"), result("a", "1"), user([IMAGE])]
    assert plain(client, body(*history)).text == 'GOT ["1"]'


def test_plain_and_streamed_answers_are_the_same(client):
    request = body(user(SCRIPT), tools=[tool()])
    whole, put_together = plain(client, request), streamed(client, request)
    for name in ("text", "reasoning", "finish_reason", "usage"):
        assert getattr(whole, name) == getattr(put_together, name)
    named = [[(call.name, call.arguments) for call in r.calls] for r in (whole, put_together)]
    assert named[0] == named[1]


def test_round_n_reports_n_times_the_usage(client):
    history = [user("CALL lookup\nTHEN\nCALL lookup"), asked("a"), result("a")]
    assert streamed(client, body(*history, tools=[tool()])).usage == {
        "prompt_tokens": 200,
        "completion_tokens": 20,
        "total_tokens": 220,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }


def test_usage_is_left_out_when_told_or_not_asked_for(client):
    assert plain(client, body(user("NOUSAGE"))).usage is None
    assert streamed(client, body(user("NOUSAGE"))).usage is None
    assert streamed(client, body(HELLO), include_usage=False).usage is None


def deltas(client, script):
    response = client.post(PATH, json=body(user(script), tools=[tool()], stream=True))
    events = [
        json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")
    ]
    found = [event["choices"][0]["delta"].get("tool_calls", []) for event in events]
    return [fragment for fragments in found for fragment in fragments]


def test_fragments_of_parallel_calls_take_turns(client):
    script = 'INTERLEAVE\nCALL lookup {"city": "A"}\nCALL lookup {"city": "B"}'
    assert [part["index"] for part in deltas(client, script)] == [0, 1] * 4
    reply = streamed(client, body(user(script), tools=[tool()]))
    assert [call.arguments for call in reply.calls] == ['{"city": "A"}', '{"city": "B"}']


def test_fragments_may_come_without_index(client):
    alone = deltas(client, "NOINDEX\nCALL lookup")
    assert [part.keys() for part in alone] == [{"id", "type", "function"}, {"function"}]
    mixed = deltas(client, "NOINDEX\nINTERLEAVE\nCALL lookup\nCALL lookup")
    assert all("index" not in part and "id" in part for part in mixed)
    assert len({part["id"] for part in mixed}) == 2


def test_arguments_may_be_empty(client):
    assert plain(client, body(user('EMPTYARGS\nCALL now {"a": 1}'))).calls[0].arguments == ""


def test_call_ids_never_repeat(client):
    request = body(user("CALL lookup\nCALL lookup"))
    ids = [call.id for _ in range(2) for call in plain(client, request).calls]
    assert len(set(ids)) == 4


def test_a_loop_ends_when_no_tool_may_be_called(client):
    history = [user("CALL lookup\nLOOP"), asked("a"), result("a"), asked("b"), result("b")]
    again = plain(client, body(*history, tools=[tool()]))
    assert [call.name for call in again.calls] == ["lookup"]
    for last in ({"tools": [tool()], "tool_choice": "none"}, {"tools": [tool("other")]}, {}):
        reply = plain(client, body(*history, **last))
        assert (reply.text, reply.finish_reason) == ('GOT ["42", "42"]', "stop")


def test_a_stubborn_model_calls_all_the_same(client):
    script = user("CALL lookup\nLOOP\nSTUBBORN")
    request = body(script, asked("a"), result("a"), tools=[tool()], tool_choice="none")
    assert [call.name for call in plain(client, request).calls] == ["lookup"]


def test_a_finish_reason_can_be_set(client):
    assert streamed(client, body(user("TOKENS 3\nFINISH length"))).finish_reason == "length"


def test_a_refusal_is_told_with_status_and_retry_after(client):
    response = client.post(PATH, json=body(user("STATUS 429 7")))
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


def test_a_refusal_can_pass(client):
    request = body(user("STATUS 503 0 2\nSAY at last"))
    assert [client.post(PATH, json=request).status_code for _ in range(3)] == [503, 503, 200]


def test_an_error_comes_in_the_middle_of_a_stream_or_as_a_status(client):
    request = body(user("SAY So far\nERROR out of memory"))
    assert client.post(PATH, json=request).status_code == 500
    reply = streamed(client, request)
    assert (reply.text, reply.error["message"]) == ("So far", "out of memory")


def test_a_connection_is_cut(client):
    for more in ({}, {"stream": True}):
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(PATH, json=body(user("TOKENS 9\nCUT 3"), **more))


def test_silence_is_kept_before_and_between_events(client):
    took = client.post(PATH, json=body(user("FIRST 0.05\nGAP 0.01\nTOKENS 5"), stream=True)).elapsed
    assert took.total_seconds() > 0.05 + 7 * 0.01


def send(provider, request):
    """Send a request on a bare socket, which the caller closes."""
    text = json.dumps(request).encode()
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: %d\r\n\r\n"
    host, port = provider.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=5)
    connection.sendall(head % (PATH.encode(), len(text)) + text)
    return connection


def test_a_client_that_leaves_a_stream_is_noticed():
    with StrictProvider() as provider:
        with send(provider, body(user("GAP 30\nTOKENS 5"), stream=True)) as connection:
            assert connection.recv(20)
        provider.wait_until(lambda: (provider.abandoned, provider.in_flight) == (1, 0))


def test_clients_that_leave_before_the_first_byte_are_noticed():
    with StrictProvider() as provider:
        connections = [send(provider, body(user("FIRST 30"))) for _ in range(3)]
        provider.wait_until(lambda: provider.in_flight == 3)
        for connection in connections:
            connection.close()
        provider.wait_until(lambda: (provider.abandoned, provider.in_flight) == (3, 0))
        assert provider.most_in_flight == 3


def test_waiting_for_what_does_not_happen_ends():
    with pytest.raises(TimeoutError):
        StrictProvider().wait_until(lambda: False, timeout=0.01)


def test_requests_are_kept_as_they_came(client, served):
    client.post(PATH, json=body(HELLO, seed=7), headers={"X-Own": "Yes"})
    assert served.requests[-1].headers["x-own"] == "Yes"
    assert served.bodies[-1] == body(HELLO, seed=7)
