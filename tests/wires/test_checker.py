"""The checker finds every fault that it is there for, however the bytes are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires import transcripts
from tests.wires.checker import Call, StreamChecker, check_plain, check_stream

USAGE = {"prompt_tokens": 300, "completion_tokens": 30, "total_tokens": 330}
ERROR = {"error": {"message": "late", "type": "upstream_error", "param": None, "code": "late"}}


def chunk(*choices, **more):
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return frame | {"choices": list(choices)} | more


def delta(finish=None, index=0, **fields):
    return chunk({"index": index, "delta": fields, "finish_reason": finish})


def call(index, id=None, name=None, arguments="", **more):
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    head = {"id": id, "type": "function"} if id else {}
    return delta(tool_calls=[{"index": index, **head, "function": function, **more}])


ROLE = delta(role="assistant", content="")
STOP = delta("stop")


def sse(*events, end=b"data: [DONE]\n\n"):
    parts = [
        e if isinstance(e, bytes) else b"data: %s\n\n" % json.dumps(e).encode() for e in events
    ]
    return b"".join(parts) + end


GOOD = sse(
    b': trace {"offered": 2}\n\n',
    ROLE,
    delta(reasoning_content="so "),
    delta(content="Zürich "),
    b": keep-alive\n\n",
    delta(content="☀️"),
    call(0, "call_1", "get_weather"),
    call(1, "call_2", "get_time", "{}"),
    call(0, arguments='{"city": "Zürich"}'),
    delta("tool_calls"),
    b': trace {"rounds": 3}\n\n',
    chunk(usage=USAGE),
)


def test_a_right_stream_is_put_together():
    reply = check_stream(GOOD, include_usage=True, hidden={"lookup"})
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Zürich ☀️", "so ", "tool_calls")
    assert reply.calls == [
        Call("call_1", "get_weather", '{"city": "Zürich"}'),
        Call("call_2", "get_time", "{}"),
    ]
    assert (reply.usage, reply.error) == (USAGE, None)
    assert reply.trace == [{"offered": 2}, {"rounds": 3}]
    assert (reply.id, reply.created, reply.model) == ("chatcmpl-1", 1, "m")


def test_an_error_event_is_an_end():
    reply = check_stream(sse(ROLE, delta(content="Well"), ERROR, end=b""))
    assert (reply.text, reply.error["code"], reply.finish_reason) == ("Well", "late", None)


def test_several_choices_each_have_a_role_and_an_end():
    roles = [delta(role="assistant", content=""), delta(index=1, role="assistant", content="")]
    texts = [delta(content="a"), delta(index=1, content="b")]
    reply = check_stream(sse(*roles, *texts, delta("stop", 1), delta("length")), n=2)
    assert [reply.choices[n].text for n in (0, 1)] == ["a", "b"]
    assert [reply.choices[n].finish_reason for n in (0, 1)] == ["length", "stop"]


def test_azures_nameless_first_chunk_is_not_a_second_id():
    nameless = {
        "id": "",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "",
        "choices": [],
    }
    assert check_stream(sse(nameless, ROLE, STOP)).id == "chatcmpl-1"


FAULTS = {
    "a second id": sse(ROLE, STOP | {"id": "chatcmpl-2"}),
    "a second created": sse(ROLE, STOP | {"created": 2}),
    "a second model": sse(ROLE, STOP | {"model": "other"}),
    "a chunk without id": sse({**ROLE, "id": None}, STOP),
    "a second role delta": sse(ROLE, ROLE, STOP),
    "a delta before the role": sse(delta(content="hello"), STOP),
    "a delta after the finish_reason": sse(ROLE, STOP, STOP),
    "before every choice has its finish_reason": sse(ROLE, delta(content="and")),
    "a choice without finish_reason": sse(chunk({"index": 0, "delta": {"role": "assistant"}})),
    "usage before the end": sse(ROLE, chunk(usage=USAGE), STOP),
    "usage in a chunk with choices": sse(ROLE, STOP | {"usage": USAGE}),
    "a chunk follows the usage": sse(ROLE, STOP, chunk(usage=USAGE), chunk(usage=USAGE)),
    "neither [DONE] nor an error": sse(ROLE, STOP, end=b""),
    "something follows the end of the stream": sse(ROLE, STOP) + b": bye\n\n",
    "follows the end": sse(ROLE, ERROR),
    "within an event": sse(ROLE, STOP) + b"data: {",
    "tool index 1 where 0 is next": sse(ROLE, call(1, "call_1", "get_time")),
    "a tool call delta without index": sse(ROLE, call(None, "call_1", "get_time")),
    "a call without id": sse(ROLE, call(0, name="get_time")),
    "a call without its name": sse(ROLE, call(0, "call_1")),
    "a call without its type": sse(ROLE, call(0, "call_1", "get_time", type=None)),
    "a call's name a second time": sse(ROLE, *[call(0, "call_1", "get_time")] * 2),
    "a call's id changes": sse(ROLE, call(0, "call_1", "get_time"), call(0, "call_2")),
    "two calls with one id": sse(
        ROLE, call(0, "call_1", "get_time"), call(1, "call_1", "get_date"), delta("tool_calls")
    ),
    "the client sees our tool lookup": sse(ROLE, delta(content="I use lookup."), STOP),
    "sees our tool ['lookup']": sse(ROLE, call(0, "call_1", "look"), STOP),
    "no choice 1 was asked for": sse(ROLE, delta(index=1, role="assistant")),
    "an event that is not a chunk": sse({"object": "chat.completion"}),
    "an event that is not an object": sse([ROLE]),
    "not JSON": sse(b"data: {oops}\n\n"),
    "an event of several lines": sse(b"data: {}\nevent: message\n\n"),
    "an event that is not one data line": sse(b"event: message\ndata: {}\n\n"),
    "a comment and a field in one block": sse(b": hm\ndata: {}\n\n"),
    "an error without {'code'}": sse(ROLE, {"error": ERROR["error"] | {"c": 1}}, end=b"").replace(
        b'"code"', b'"cod"'
    ),
    "an error without message": sse({"error": ERROR["error"] | {"message": ""}}, end=b""),
    "content that is not text": sse(ROLE, delta(content=["a"]), STOP),
}


@pytest.mark.parametrize("sentence", FAULTS)
def test_each_fault_has_its_sentence(sentence):
    with pytest.raises(AssertionError) as fault:
        check_stream(FAULTS[sentence], include_usage=True, hidden={"lookup"})
    assert sentence in str(fault.value)


def test_usage_is_only_for_those_who_asked():
    with pytest.raises(AssertionError, match="usage that was not asked for"):
        check_stream(sse(ROLE, STOP, chunk(usage=USAGE)))
    assert check_stream(sse({**ROLE, "usage": None}, STOP)).usage is None


def test_a_callers_own_tool_may_be_called_like_the_beginning_of_ours():
    stream = sse(ROLE, call(0, "call_1", "look"), delta("tool_calls"))
    assert check_stream(stream, hidden={"lookup"}, callers={"look"}).calls[0].name == "look"


def outcome(pieces):
    checker = StreamChecker(include_usage=True, hidden={"lookup"})
    try:
        for piece in pieces:
            checker.feed(piece)
        return checker.close()
    except AssertionError as fault:
        return str(fault)


def cut_at(raw, places):
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


@given(st.sampled_from([GOOD, *FAULTS.values()]), st.lists(st.integers(min_value=0), max_size=12))
def test_the_outcome_does_not_depend_on_how_the_bytes_are_cut(raw, places):
    assert outcome(cut_at(raw, places)) == outcome([raw])


def test_a_stream_that_comes_byte_by_byte_is_read():
    assert outcome([bytes([byte]) for byte in GOOD]) == outcome([GOOD])


def plain(**fields):
    message = {"role": "assistant", "content": "hello"} | fields.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    frame = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return frame | {"choices": [choice], "usage": USAGE} | fields


def made(name="get_time", **more):
    return {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
    } | more


def test_a_right_plain_reply_gives_the_same_values():
    whole = plain(message={"tool_calls": [made()]}, orazaka={"trace": [{"tool": "lookup"}]})
    reply = check_plain(json.dumps(whole).encode(), hidden={"lookup"})
    assert (reply.text, reply.calls) == ("hello", [Call("call_1", "get_time", "{}")])
    assert (reply.usage, reply.trace) == (USAGE, [{"tool": "lookup"}])


def test_a_plain_error_is_a_reply_too():
    assert check_plain(ERROR).error["message"] == "late"


PLAIN_FAULTS = {
    "a reply without id": plain(id=None),
    "a reply that is not a completion": plain(object="chat.completion.chunk"),
    "an empty list of tool calls": plain(message={"tool_calls": []}),
    "two calls with one id": plain(message={"tool_calls": [made(), made()]}),
    "the client sees our tool lookup": plain(message={"tool_calls": [made("lookup")]}),
    "an incomplete call": plain(message={"tool_calls": [made(id=None)]}),
    "a role that is not the assistant's": plain(message={"role": "tool"}),
    "the trace is not the last member": {"orazaka": {"trace": []}} | plain(),
    "an error without": {"error": {"message": "late"}},
    "1 choices were asked for": plain(
        choices=[
            *plain()["choices"] * 1,
            {"index": 1, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"},
        ]
    ),
}


@pytest.mark.parametrize("sentence", PLAIN_FAULTS)
def test_each_fault_of_a_plain_reply_has_its_sentence(sentence):
    with pytest.raises(AssertionError) as fault:
        check_plain(PLAIN_FAULTS[sentence], hidden={"lookup"})
    assert sentence in str(fault.value)


@pytest.mark.parametrize("case", transcripts.cases("chat"), ids=str)
def test_what_a_transcript_expects_is_a_right_stream(case):
    reply = check_stream(
        case.expected,
        hidden=case.owned,
        callers={tool["function"]["name"] for tool in case.request.get("tools", [])},
        include_usage=case.request.get("stream_options", {}).get("include_usage", False),
        n=case.request.get("n", 1),
    )
    first = next(event["id"] for part in case.rounds for event in part if event.get("id"))
    assert reply.id == first
    assert set(case.results) <= {call["id"] for call in called(case)}


def called(case):
    choices = [c for part in case.rounds for event in part for c in event.get("choices", [])]
    return [call for c in choices for call in c["delta"].get("tool_calls") or [] if "id" in call]


def test_a_stream_says_the_same_however_it_is_cut_into_chunks():
    head, tail = call(0, "call_1", "get_time"), call(0, arguments="{}")
    one = sse(ROLE, delta(content="Zü"), delta(content="rich"), head, tail, delta("tool_calls"))
    whole = call(0, "call_1", "get_time", "{}")
    other = sse(delta(role="assistant", content="Zürich"), whole, delta("tool_calls", content=None))
    assert transcripts.fold(one) == transcripts.fold(other)
    for changed in (b"call_2", b"get_date", b"assistent"):
        was = {b"call_2": b"call_1", b"get_date": b"get_time", b"assistent": b"assistant"}[changed]
        assert transcripts.fold(one.replace(was, changed)) != transcripts.fold(one)
    assert transcripts.fold(sse(ROLE, head, delta(content="so"))) != transcripts.fold(
        sse(ROLE, delta(content="so"), head)
    )
