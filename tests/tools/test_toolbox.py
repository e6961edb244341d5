import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orazaka.errors import OrazakaError
from tests.tools.fakes import ANYONE, FakeSource, call, failing, giving, offer
from tools import toolbox
from tools.base import Image, Offer, ToolCall, ToolError, ToolResult
from tools.toolbox import Toolbox, ToolRun, TooManyTools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def box(*offers: Offer, **options) -> tuple[Toolbox, list[ToolRun]]:
    """A toolbox with ample limits, and the runs that it reports."""
    runs: list[ToolRun] = []
    given = {"limit": 128, "max_chars": 10_000, "default_timeout": 10, **options}
    return Toolbox(offers, observe=runs.append, **given), runs


async def outcome(offered: Offer, asked: ToolCall, **options) -> tuple[ToolResult, ToolRun]:
    """The result of one call, and the one run that was reported."""
    tools, runs = box(offered, **options)
    result = await tools.call(asked, caller=ANYONE)
    [run] = runs
    return result, run


def called(offered: Offer) -> list[tuple[str, dict]]:
    source = offered.source
    assert isinstance(source, FakeSource)
    return source.called


async def forever(spec, arguments) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError


# --- one call -------------------------------------------------------------------------------------


async def test_a_call_runs_the_sources_own_tool():
    web = offer("search", label="web", schema=CITY)
    tools, runs = box(offer("search", label="docs"), web)
    result = await tools.call(call("web__search", '{"city": "Rom"}', id="c7"), caller=ANYONE)
    assert result == ToolResult("search ran")
    assert called(web) == [("search", {"city": "Rom"})]
    [run] = runs
    assert (run.call_id, run.name, run.tool, run.server) == ("c7", "web__search", "search", "web")
    assert (run.origin, run.outcome, run.argument_names) == ("inline", "ok", ("city",))
    assert (run.argument_bytes, run.result_chars) == (15, 10)
    assert (run.arguments, run.result) == ('{"city": "Rom"}', "search ran")
    assert 0 <= run.duration < 10
    assert timedelta(0) <= datetime.now(UTC) - run.started < timedelta(seconds=60)


async def test_an_unknown_name_is_answered_with_the_nearest_ones():
    result, run = await outcome(offer("frobnicate", "search", "fetch", "roll"), call("frobnicat"))
    assert result.is_error
    assert result.text.startswith("There is no tool named frobnicat. The nearest names are: frob")
    assert result.text.count(",") == 2
    assert (run.outcome, run.tool) == ("unknown", "")


async def test_an_unknown_name_of_any_length_is_answered_shortly():
    result, run = await outcome(offer("search"), call("x" * 10**6))
    assert len(result.text) < 300
    assert len(run.name) < 100


async def test_arguments_that_do_not_fit_are_refused_and_the_tool_is_not_run():
    weather = offer("weather", schema=CITY)
    result, run = await outcome(weather, call("weather", '{"town": 1}'))
    assert result.is_error
    assert result.text == "weather was not run: the arguments are wrong: $.city is required"
    assert (run.outcome, run.tool, called(weather)) == ("refused", "weather", [])


async def test_a_tool_with_a_broken_schema_is_not_run():
    broken = offer("broken", schema={"type": "objekt"})
    result, run = await outcome(broken, call("broken"))
    assert result.text.startswith("broken was not run: its schema is not valid")
    assert (run.outcome, called(broken)) == ("refused", [])


async def test_a_late_tool_is_named_with_its_server_limit_and_elapsed_time():
    slow = offer("report", label="wiki", act=forever, timeout=0.02)
    result, run = await outcome(slow, call("report"))
    assert result.is_error
    assert result.text.startswith("report of wiki did not answer within 0.02 s (0.")
    assert "s passed" in result.text
    assert run.outcome == "late"
    assert run.duration >= 0.02


async def test_a_tool_without_a_limit_of_its_own_has_the_default_one():
    result, _ = await outcome(offer("slow", act=forever), call("slow"), default_timeout=0.01)
    assert "within 0.01 s" in result.text


async def test_a_tool_that_makes_an_error_of_its_deadline_is_late():
    async def act(spec, arguments) -> ToolResult:
        try:
            return await forever(spec, arguments)
        except asyncio.CancelledError:
            raise RuntimeError("stream closed") from None

    result, run = await outcome(offer("slow", act=act, timeout=0.01), call("slow"))
    assert (run.outcome, "within 0.01 s" in result.text) == ("late", True)


@pytest.mark.parametrize(
    ("error", "text", "expected"),
    [
        (ToolError("no such city"), "no such city", "error"),
        (ToolError(""), "t of srv failed and did not say why.", "error"),
        (OrazakaError("srv is gone", status=502), "srv is gone", "error"),
        (OrazakaError("srv is late", status=504), "srv is late", "late"),
        (
            KeyError("hunter2"),
            "t of srv failed because of a fault on our side, not of the arguments.",
            "error",
        ),
        (
            TimeoutError(),
            "t of srv failed because of a fault on our side, not of the arguments.",
            "error",
        ),
        (
            asyncio.CancelledError(),
            "t of srv failed because of a fault on our side, not of the arguments.",
            "error",
        ),
    ],
)
async def test_a_failure_is_an_error_result(error, text, expected):
    result, run = await outcome(offer("t", act=failing(error)), call("t"))
    assert (result.text, result.is_error, run.outcome) == (text, True, expected)


async def test_an_unforeseen_failure_is_logged_without_values(caplog):
    weather = offer("weather", schema=CITY, act=failing(ValueError("hunter2")))
    with caplog.at_level(logging.ERROR, logger="tools.toolbox"):
        await outcome(weather, call("weather", '{"city": "hunter2"}'))
    [record] = caplog.records
    assert "weather of srv failed: ValueError (request req-1)" in record.getMessage()
    assert "fakes.py" in record.getMessage()
    assert "hunter2" not in caplog.text


async def test_an_error_result_of_the_tool_stays_one():
    told = ToolResult("refused", is_error=True)
    result, run = await outcome(offer("t", act=giving(told)), call("t"))
    assert (result, run.outcome) == (told, "error")


async def test_an_error_result_is_never_empty():
    result, _ = await outcome(offer("t", act=giving(ToolResult("", is_error=True))), call("t"))
    assert result.text == "t of srv failed and did not say why."


async def test_a_kept_result_is_reported_as_such():
    _, run = await outcome(offer("t", act=giving(ToolResult("x", cached=True))), call("t"))
    assert run.outcome == "cached"


async def test_a_long_result_is_cut_and_says_its_full_size():
    long = ToolResult("é" * 5_000, images=(Image("image/png", "aGk="),), structured={"a": 1})
    result, run = await outcome(offer("t", act=giving(long)), call("t"), max_chars=1_000)
    assert result.text.startswith("é" * 900)
    assert result.text.endswith("[cut: the whole has 5000 characters]")
    assert len(result.text) == run.result_chars == 1_000
    assert (result.images, result.structured) == (long.images, long.structured)


async def test_a_result_at_the_limit_is_whole():
    whole = ToolResult("x" * 1_000)
    result, _ = await outcome(offer("t", act=giving(whole)), call("t"), max_chars=1_000)
    assert result is whole


async def test_a_long_error_is_cut_as_well():
    result, _ = await outcome(offer("t", act=failing(ToolError("x" * 10**6))), call("t"))
    assert len(result.text) == 10_000


async def test_characters_that_are_none_are_replaced():
    odd = giving(ToolResult("a\0b\ud800c"))
    result, _ = await outcome(offer("t", act=odd), call("t"))
    assert result.text == "a\ufffdb\ufffdc"


@given(st.text(), st.text(), st.text())
def test_whatever_a_model_and_a_tool_say_the_result_can_be_sent(name, arguments, text):
    async def both() -> None:
        tools, runs = box(offer("t", act=giving(ToolResult(text))), max_chars=20)
        for asked in (call("t", arguments), call(name, "{}")):
            result = await tools.call(asked, caller=ANYONE)
            assert json.loads(orjson.dumps(result.text)) == result.text
        assert len(runs) == 2

    asyncio.run(both())


async def test_a_cancelled_call_cancels_the_tool_and_is_reported_once():
    started, ended = asyncio.Event(), asyncio.Event()

    async def act(spec, arguments) -> ToolResult:
        started.set()
        try:
            return await forever(spec, arguments)
        finally:
            ended.set()

    tools, runs = box(offer("t", act=act))
    task = asyncio.create_task(tools.call(call("t"), caller=ANYONE))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert [run.outcome for run in runs] == ["cancelled"]


def test_a_run_does_not_show_private_values():
    run = ToolRun(call_id="c", name="t", arguments="hunter2", result="hunter2")
    assert "hunter2" not in repr(run)


# --- several calls --------------------------------------------------------------------------------


async def test_calls_run_at_once_and_results_come_in_the_order_of_calls():
    everyone = asyncio.Barrier(3)

    async def act(spec, arguments) -> ToolResult:
        await asyncio.wait_for(everyone.wait(), 5)
        return ToolResult(spec.name)

    tools, runs = box(offer("a", "b", "c", act=act))
    calls = [call(name) for name in "cab"]
    results = await tools.call_all(calls, caller=ANYONE)
    assert [result.text for result in results] == ["c", "a", "b"]
    assert len(runs) == 3


async def test_each_call_has_its_own_deadline():
    slow, fast = offer("slow", act=forever, timeout=0.01), offer("fast")
    tools, _ = box(slow, fast)
    results = await tools.call_all([call("slow"), call("fast"), call("nope")], caller=ANYONE)
    assert [result.is_error for result in results] == [True, False, True]


@pytest.mark.parametrize("count", [1, 3])
async def test_cancelling_cancels_all(count):
    left = asyncio.Semaphore(0)

    async def act(spec, arguments) -> ToolResult:
        left.release()
        return await forever(spec, arguments)

    tools, runs = box(offer("t", act=act))
    task = asyncio.create_task(tools.call_all([call("t")] * count, caller=ANYONE))
    for _ in range(count):
        await asyncio.wait_for(left.acquire(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [run.outcome for run in runs] == ["cancelled"] * count


async def test_no_calls_give_no_results():
    tools, _ = box(offer("t"))
    assert await tools.call_all([], caller=ANYONE) == []


# --- what is in it --------------------------------------------------------------------------------


def test_a_toolbox_owns_shown_names_only():
    tools, _ = box(offer("search", label="web"), taken={"search"})
    assert [shown.name for shown in tools.shown] == ["web__search"]
    assert (tools.owns("web__search"), tools.owns("search")) == (True, False)
    assert tools.notes == []


@pytest.mark.parametrize("origin", ["caller", "inline", "resolved"])
def test_too_many_tools_that_the_request_names_are_an_error(origin):
    with pytest.raises(TooManyTools) as caught:
        box(offer("a", "b", origin=origin), taken={"own"}, limit=2)
    assert (caught.value.status, caught.value.code) == (400, "too_many_tools")
    assert caught.value.message == "the request names more than 2 tools"


def test_the_callers_tools_alone_can_be_too_many():
    with pytest.raises(TooManyTools):
        box(taken={"a", "b", "c"}, limit=2)


def test_stored_tools_over_the_limit_are_left_out_last_first_and_named():
    offers = [
        offer("u1", "u2", origin="user", label="mine"),
        offer("p1", "p2", origin="platform", label="wiki"),
        offer("r1", origin="registered", label="registry"),
        offer("i1", origin="inline"),
    ]
    tools, _ = box(*offers, taken={"own"}, limit=4)
    assert [shown.name for shown in tools.shown] == ["i1", "r1", "p1"]
    assert tools.notes == [
        "wiki: left out, a turn may have 4 tools: p2",
        "mine: left out, a turn may have 4 tools: u1, u2",
    ]
    assert not tools.owns("p2")


def test_a_tool_listed_twice_by_one_server_is_named():
    tools, _ = box(offer("a", "b", "a", "a", label="wiki"))
    assert [shown.name for shown in tools.shown] == ["a", "b"]
    assert tools.notes == ["wiki: listed more than once, the first is used: a"]


def test_a_long_list_of_left_out_tools_is_counted():
    tools, _ = box(offer(*(f"t{n}" for n in range(200)), origin="user"), limit=10)
    assert tools.notes[0].endswith("t59 and 140 more")


def test_an_app_registers_its_provider_once(monkeypatch):
    monkeypatch.setattr(toolbox, "providers", [])

    async def provide(caller, turn) -> list[Offer]:
        return []

    toolbox.register(provide)
    toolbox.register(provide)
    assert toolbox.providers == [provide]
