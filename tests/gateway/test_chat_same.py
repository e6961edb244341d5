"""A streamed turn says what the plain one says, however a provider cuts its chunks."""

from itertools import pairwise

from asgiref.sync import async_to_sync
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sse import DONE
from tests.gateway.playing import call, chunk, play, tool, whole
from tests.wires.checker import check_plain, check_stream

# `look` begins like one of ours; nobody has `frobnicate`.
OURS, THEIRS, NOBODYS = ["lookup", "search"], ["look", "get_time"], "frobnicate"
TEXT = st.text(alphabet="aé☀\U0001f600 \n", max_size=12)
ARGUMENTS = st.sampled_from(["", "{}", '{"q": "ü☀"}', '{"n": [1, 2.5, null]}', '{"q": "cut', "[1]"])
USAGE = st.none() | st.fixed_dictionaries(
    {
        "prompt_tokens": st.integers(0, 1000),
        "total_tokens": st.integers(0, 1000),
        "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": st.integers(0, 9)}),
        "cost": st.sampled_from([0.5, 0.25]),
    }
)


@st.composite
def answers(draw, names, *, least=0, number=0):
    """One answer: its text, reasoning, calls and usage. Call ids are unique in the turn."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=least, max_size=4)) if names else []
    given = [call(f"call_{number}_{at}", n, draw(ARGUMENTS)) for at, n in enumerate(chosen)]
    ends = "tool_calls" if given else "stop"
    return {
        "content": draw(TEXT),
        "reasoning_content": draw(TEXT),
        "calls": given,
        "usage": draw(USAGE),
        "finish": draw(st.sampled_from([ends, "stop"])),
    }


@st.composite
def turns(draw):
    """The answers of a turn: some that only ask for what is not the client's, and a last one."""
    hidden = draw(st.integers(0, 3))
    rounds = [draw(answers([*OURS, NOBODYS], least=1, number=n)) for n in range(hidden)]
    last = draw(st.sampled_from([[], THEIRS, [*THEIRS, *OURS]]))
    rounds.append(draw(answers(last, number=hidden)))
    if not any(c["function"]["name"] in THEIRS for c in rounds[-1]["calls"]):
        rounds[-1]["calls"] = []  # else it would not be the last
    if draw(st.booleans()):
        rounds[-1]["finish"] = draw(st.sampled_from(["length", "content_filter"]))
    return rounds


def plain(answer):
    return whole(
        answer["content"] or None,
        *answer["calls"],
        finish=answer["finish"],
        usage=answer["usage"],
        reasoning_content=answer["reasoning_content"] or None,
        refusal=None,
    )


def pieces(draw, text):
    """A text cut anywhere; nothing for an empty one."""
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=3)) if text else []
    ends = sorted({0, len(text), *cuts})
    return [text[a:b] for a, b in pairwise(ends)]


def fragments(draw, at, given, style):
    """One call as a provider cuts it: the name in pieces or repeated, then the arguments."""
    function = given["function"]
    names = pieces(draw, function["name"]) if style["names cut"] else [function["name"]]
    parts = [{"name": name} for name in names]
    parts += [{"arguments": piece} for piece in pieces(draw, function["arguments"])]
    if style["names repeated"] and not style["names cut"]:
        parts = [{"arguments": "", **part, "name": function["name"]} for part in parts]
    where = {"index": {"index": at}, "one index": {"index": 0}}.get(style["where"], {})
    null = {"index": None} if style["where"] == "null index" else {}
    for nth, part in enumerate(parts):
        first = nth == 0 or style["where"] != "index"
        id = {"id": given["id"]} if first else {"id": draw(st.sampled_from(["", None]))}
        kind = {"type": "function"} if nth == 0 or draw(st.booleans()) else {"type": None}
        yield {**where, **null, **id, **kind, "function": part}


def mixed(draw, several):
    """Several calls' fragments as one list, each call's in their order; calls begin in order."""
    several = [list(one) for one in several]
    begun = 0
    while any(several):
        able = [one for at, one in enumerate(several) if one and at <= begun]
        one = draw(st.sampled_from(able))
        begun = max(begun, several.index(one) + 1)
        yield one.pop(0)


def chunks(draw, answer):
    """The answer as a stream."""
    style = {
        "where": draw(st.sampled_from(["index", "one index", "no index", "null index"])),
        "names cut": draw(st.booleans()),
        "names repeated": draw(st.booleans()),
    }
    parts = [fragments(draw, at, one, style) for at, one in enumerate(answer["calls"])]
    several = style["where"] != "one index" and draw(st.booleans())
    asked = mixed(draw, parts) if several else [f for one in parts for f in one]
    said = [
        *({"reasoning_content": piece} for piece in pieces(draw, answer["reasoning_content"])),
        *({"content": piece} for piece in pieces(draw, answer["content"])),
        *({"tool_calls": [fragment]} for fragment in asked),
    ]
    every, together = draw(st.booleans()), draw(st.booleans())
    usage = {"usage": answer["usage"]} if answer["usage"] else {}
    said = [{"role": "assistant", **one} if every else one for one in said]
    last = said.pop() if said and together else {"content": ""}
    yield chunk({"role": "assistant", "content": draw(st.sampled_from(["", None]))})
    yield from (chunk(one, **(usage if every else {"usage": None})) for one in said)
    yield chunk(last, answer["finish"], **(usage if together else {}))
    if not together and answer["usage"]:
        yield chunk(usage=answer["usage"])
    if draw(st.booleans()):
        yield DONE


@settings(max_examples=200, deadline=None)
@given(st.data(), turns(), st.booleans(), st.booleans())
def test_stream_and_plain_are_the_same_turn(data, rounds, structured, mine):
    body = {"tools": [tool(name) for name in THEIRS]}
    if structured:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "n"}}
    owned = OURS if mine else []
    if not mine:
        rounds = rounds[-1:]
    one = async_to_sync(play)(body, [plain(answer) for answer in rounds], owned=owned)
    cut = [list(chunks(data.draw, answer)) for answer in rounds]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    two = async_to_sync(play)(body | options, cut, owned=owned)

    hidden = {"hidden": [*OURS, NOBODYS], "callers": THEIRS} if mine else {}
    asked = check_plain(one.reply, **hidden)
    streamed = check_stream(two.raw, include_usage=True, **hidden)
    assert streamed.error is None
    for member in ("text", "reasoning", "calls", "finish_reason", "usage"):
        assert getattr(streamed, member) == getattr(asked, member), member
    assert one.ran == two.ran
    assert [b["messages"] for b in one.bodies] == [b["messages"] for b in two.bodies]
    assert one.kept == two.kept


@settings(max_examples=60, deadline=None)
@given(st.data(), turns())
def test_usage_that_was_not_asked_for_is_not_shown(data, rounds):
    cut = [list(chunks(data.draw, answer)) for answer in rounds]
    body = {"stream": True, "tools": [tool(name) for name in THEIRS]}
    turn = async_to_sync(play)(body, cut, owned=OURS)
    check_stream(turn.raw, hidden=OURS, callers=THEIRS)
    assert all(b["stream_options"]["include_usage"] for b in turn.bodies)
