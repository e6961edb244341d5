"""What turns leave in the metrics, and which names stay out of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway import metrics
from gateway.record import Record
from gateway.wire import Usage
from orazaka.caller import Caller
from orazaka.metrics import exposition, take
from orazaka.runtime import RunSync, Runtime
from tests.gateway.serving import gateway
from tests.orazaka.test_metrics import samples


class Growth:
    """What has been added to the samples since it was made."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> dict[str, float]:
        return samples(exposition("").decode())

    @property
    def added(self) -> dict[str, float]:
        now = self._now()
        changes = {name: now[name] - self._before.get(name, 0.0) for name in now}
        return {name: change for name, change in changes.items() if change}


@pytest.fixture
def growth() -> Iterator[Growth]:
    yield Growth()


def record() -> Record:
    return Record(Caller(principal="user:1"), wire="chat", model="demo:demo", streamed=True)


def counted(turn: Record, usage: Usage | None = None) -> None:
    metrics.count(turn, wire="chat", provider="demo", status="ok", usage=usage or Usage())


def tool(turn: Record, *, origin: str, **more: Any) -> None:
    turn.step("tool", "shown", "ok", started=0, server="a-server", tool="lookup", origin=origin)


def test_a_turn_counts_once_with_its_times_and_tokens(growth: Growth) -> None:
    turn = record()
    turn.output()
    turn.step("model", "demo", "ok", started=0)
    turn.step("model", "demo", "late", started=0)
    turn.step("server", "mine", "kept", started=0)
    turn.step("note", "left out", "left_out", started=0)
    counted(turn, Usage(prompt=100, completion=10, cached=5))
    added = growth.added
    assert added["orazaka_turns_total provider=demo status=ok wire=chat"] == 1
    assert added["orazaka_turn_duration_seconds_count provider=demo wire=chat"] == 1
    assert added["orazaka_turn_first_output_seconds_count provider=demo wire=chat"] == 1
    assert added["orazaka_model_calls_total outcome=ok provider=demo"] == 1
    assert added["orazaka_model_calls_total outcome=late provider=demo"] == 1
    assert added["orazaka_mcp_tool_lists_total outcome=kept"] == 1
    assert added["orazaka_tokens_total kind=prompt provider=demo"] == 100
    assert added["orazaka_tokens_total kind=cached provider=demo"] == 5
    assert not [name for name in added if "reasoning" in name or "note" in name]


def test_a_turn_without_output_has_no_time_to_it(growth: Growth) -> None:
    counted(record())
    assert not [name for name in growth.added if "first_output" in name]


@pytest.mark.parametrize("origin", ["registered", "platform"])
def test_tools_that_the_operator_set_are_named(origin: str, growth: Growth) -> None:
    turn = record()
    tool(turn, origin=origin)
    counted(turn)
    name = f"orazaka_tool_calls_total origin={origin} outcome=ok server=a-server tool=lookup"
    assert growth.added[name] == 1


@pytest.mark.parametrize("origin", ["inline", "resolved", "user", "caller", ""])
def test_names_that_callers_choose_are_no_labels(origin: str, growth: Growth) -> None:
    turn = record()
    tool(turn, origin=origin)
    counted(turn)
    assert growth.added[f"orazaka_tool_calls_total origin={origin} outcome=ok server= tool="] == 1
    assert growth.added[f"orazaka_tool_call_duration_seconds_count origin={origin}"] == 1
    assert not [name for name in growth.added if "lookup" in name or "a-server" in name]


@pytest.mark.django_db
async def test_a_real_turn_is_counted_when_its_answer_is_there(
    run_sync: RunSync, growth: Growth
) -> None:
    async with gateway(run_sync) as here:
        messages = [{"role": "user", "content": "hi"}]
        reply = await here.chat(model="demo:demo", messages=messages)
        assert reply.status_code == 200
        used = reply.json()["usage"]["prompt_tokens"]
        added = growth.added
    assert added["orazaka_turns_total provider=demo status=ok wire=chat"] == 1
    assert added["orazaka_tokens_total kind=prompt provider=demo"] == used


@pytest.mark.django_db
async def test_turns_and_sessions_that_are_open_are_states(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync) as runtime:
        take(runtime)
    values = samples(exposition("").decode())
    assert values["orazaka_turns_running"] == values["orazaka_mcp_sessions"] == 0
