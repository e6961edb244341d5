"""The loop: how often a model is called, what is run, and what is kept before a turn ends."""

import asyncio

import pytest

from gateway import loop
from gateway.chat import Chat
from gateway.loop import TooManyRounds
from gateway.wire import UpstreamError
from tests.gateway.playing import ASKED, call, calls, chunk, play, stream, tool, whole
from tools.base import ToolResult

LOOKUP, WEATHER = call("call_1", "lookup"), call("call_2", "weather")
THEIRS = {"tools": [tool("weather")]}


async def nothing_runs(calls):
    raise AssertionError("no tool was asked for")


async def nothing_is_kept(tail, calls):
    raise AssertionError("nothing was hidden")


def asked(**more):
    return {"model": "m", "messages": ASKED, **more}


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_limit_is_the_most_model_calls_of_a_turn(limit):
    turn = await play({}, [whole(None, LOOKUP)] * 9, limit=limit)
    assert isinstance(turn.error, TooManyRounds)
    assert (turn.error.status, turn.error.code) == (422, "max_tool_iterations")
    assert str(limit) in turn.error.message
    assert len(turn.bodies) == limit
    assert len(turn.ran) == limit - 1  # what the last one asked for is not run


@pytest.mark.parametrize("limit", [1, 3])
async def test_an_answer_on_the_last_permitted_call_is_an_answer(limit):
    turn = await play({}, [whole(None, LOOKUP)] * (limit - 1) + [whole("42.")], limit=limit)
    assert turn.message["content"] == "42."
    assert len(turn.bodies) == limit


async def test_a_mixed_last_answer_asks_for_ours_and_so_ends_the_turn():
    turn = await play(THEIRS, [whole(None, LOOKUP, WEATHER)], limit=1)
    assert isinstance(turn.error, TooManyRounds)
    assert turn.ran == [] and turn.kept == []


async def test_the_client_s_own_call_may_come_on_the_last_call():
    turn = await play(THEIRS, [whole(None, LOOKUP), whole(None, WEATHER)], limit=2)
    assert turn.message["tool_calls"] == [WEATHER]


async def test_usage_so_far_is_known_when_there_were_too_many_rounds():
    used = {"prompt_tokens": 5}
    turn = await play({}, [whole(None, LOOKUP, usage=used)] * 3, limit=3)
    assert turn.wire.usage == {"prompt_tokens": 15}


async def test_all_calls_of_an_answer_are_handed_over_at_once():
    batches = []

    async def run(calls):
        batches.append([call.id for call in calls])
        return [ToolResult("") for _ in calls]

    answers = iter([whole(None, LOOKUP, call("call_5", "search")), whole("42.")])

    async def upstream(body):
        yield next(answers)

    wire = Chat(asked(), claims=lambda name: True)
    async for _ in loop.run(wire, upstream, run, limit=3, keep=nothing_is_kept):
        pass
    assert batches == [["call_1", "call_5"]]


async def test_a_wrong_number_of_results_does_not_pass_silently():
    async def upstream(body):
        yield whole(None, LOOKUP)

    async def none(calls):
        return []

    wire = Chat(asked(), claims=lambda name: True)
    with pytest.raises(ValueError):
        async for _ in loop.run(wire, upstream, none, limit=3, keep=nothing_is_kept):
            pass


# --- what is kept


async def test_a_turn_without_hidden_rounds_keeps_nothing():
    assert (await play(THEIRS, [whole("Hm.", WEATHER)])).kept == []


async def test_a_mixed_turn_keeps_the_whole_answer_and_our_results():
    turn = await play(THEIRS, [whole("Hm.", LOOKUP, WEATHER)])
    ((tail, theirs),) = turn.kept
    assert [c.id for c in theirs] == ["call_2"]
    assert tail.messages == [
        {"role": "assistant", "content": "Hm.", "tool_calls": [LOOKUP, WEATHER]},
        {"role": "tool", "tool_call_id": "call_1", "content": "<call_1>"},
    ]
    assert tail.hidden


async def test_a_turn_that_ends_in_the_client_s_call_after_hidden_rounds_keeps_all_of_them():
    turn = await play(THEIRS, [whole(None, LOOKUP), whole("Now you.", WEATHER)])
    ((tail, _),) = turn.kept
    assert tail.messages == [
        {"role": "assistant", "content": None, "tool_calls": [LOOKUP]},
        {"role": "tool", "tool_call_id": "call_1", "content": "<call_1>"},
        {"role": "assistant", "content": "Now you.", "tool_calls": [WEATHER]},
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_it_is_kept_before_the_client_may_see_that_the_turn_ends(streamed):
    order = []

    async def upstream(body):
        asked = [LOOKUP, WEATHER]
        yield stream(calls(*asked), finish="tool_calls") if streamed else whole(None, *asked)

    async def run(calls):
        return [ToolResult("") for _ in calls]

    async def keep(tail, calls):
        order.append("kept")

    wire = Chat(asked(stream=streamed, **THEIRS), claims=lambda name: name != "weather")
    async for batch in loop.run(wire, upstream, run, limit=3, keep=keep):
        ends = [c["finish_reason"] for e in batch for c in e.get("choices", [])]
        order += ["ended"] * any(ends)
    assert order == ["kept", "ended"]


async def test_a_turn_whose_tail_can_not_be_kept_does_not_end_as_if_it_were():
    async def upstream(body):
        yield whole(None, LOOKUP, WEATHER)

    async def run(calls):
        return [ToolResult("") for _ in calls]

    async def keep(tail, calls):
        raise OSError("the disk is full")

    wire = Chat(asked(**THEIRS), claims=lambda name: name != "weather")
    shown = []
    with pytest.raises(OSError):
        async for batch in loop.run(wire, upstream, run, limit=3, keep=keep):
            shown += batch
    assert shown == []


# --- failures and ends


async def test_what_came_before_an_error_in_one_read_is_shown():
    batch = [chunk({"content": "4"}), chunk({"content": "2"}), {"error": {"message": "no"}}]

    async def upstream(body):
        yield batch

    shown = []
    wire = Chat(asked(stream=True))
    with pytest.raises(UpstreamError, match="no"):
        run = loop.run(wire, upstream, nothing_runs, limit=3, keep=nothing_is_kept)
        async for batch in run:
            shown += batch
    assert [e["choices"][0]["delta"]["content"] for e in shown] == ["4", "2"]


@pytest.mark.parametrize("how", ["closed", "cancelled", "a failed answer"])
async def test_the_upstream_call_is_closed_however_the_turn_ends(how):
    closed = asyncio.Event()
    began = asyncio.Event()

    async def upstream(body):
        try:
            yield [chunk({"content": "4"})]
            began.set()
            if how == "a failed answer":
                yield [{"error": "no"}]
            await asyncio.Event().wait()
        finally:
            closed.set()

    wire = Chat(asked(stream=True))
    run = loop.run(wire, upstream, nothing_runs, limit=3, keep=nothing_is_kept)
    async with asyncio.timeout(5):
        assert await anext(run)
        if how == "closed":
            await run.aclose()
        elif how == "cancelled":
            task = asyncio.create_task(anext(run))
            await began.wait()
            task.cancel()
            await asyncio.wait([task])
        else:
            with pytest.raises(UpstreamError):
                await anext(run)
    assert closed.is_set()


async def test_each_model_call_is_closed_before_the_next_begins():
    running = []
    answers = iter([stream(calls(LOOKUP)), stream({"content": "42."})])

    async def upstream(body):
        assert not running
        running.append(1)
        try:
            yield next(answers)
        finally:
            running.clear()

    async def run(calls):
        assert not running
        return [ToolResult("") for _ in calls]

    wire = Chat(asked(stream=True), claims=lambda name: True)
    async for _ in loop.run(wire, upstream, run, limit=3, keep=nothing_is_kept):
        pass
    assert next(answers, None) is None
