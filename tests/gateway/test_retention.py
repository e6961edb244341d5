"""What turns leave behind goes in time: records after days, tails after a day."""

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from gateway import retention
from gateway.models import Tail, Turn, TurnStep
from gateway.retention import days_make_sense, limit, prune, prune_tails, prune_turns

pytestmark = pytest.mark.django_db


def turns(*ages: float) -> list[Turn]:
    """Turns that began so many days ago, with two steps each."""
    made = [
        Turn(
            principal="user:1",
            wire="chat",
            model=str(age),
            streamed=False,
            status="ok",
            started_at=timezone.now() - timedelta(days=age),
            duration_ms=1,
        )
        for age in ages
    ]
    Turn.objects.bulk_create(made)
    TurnStep.objects.bulk_create(
        TurnStep(
            turn=turn,
            position=position,
            kind="model",
            name="m",
            outcome="ok",
            started_ms=0,
            duration_ms=1,
        )
        for turn in made
        for position in range(2)
    )
    return made


def left() -> list[str]:
    return sorted(Turn.objects.values_list("model", flat=True))


def run(*args: str) -> str:
    out = StringIO()
    call_command("pruneturns", *args, stdout=out)
    return out.getvalue()


# --- Turns ----------------------------------------------------------------------------------------
def test_turns_are_kept_for_30_days_unless_the_operator_says_otherwise(settings) -> None:
    turns(29.9, 30.1)
    assert not prune_turns()
    assert left() == ["29.9"]
    settings.ORAZAKA_TURN_RETENTION_DAYS = 29
    prune_turns()
    assert left() == []


def test_steps_go_with_their_turns() -> None:
    _, new = turns(40, 1)
    prune_turns()
    assert set(TurnStep.objects.values_list("turn", flat=True)) == {new.pk}
    assert TurnStep.objects.count() == 2


def test_nothing_goes_when_turns_are_kept_for_ever(settings) -> None:
    settings.ORAZAKA_TURN_RETENTION_DAYS = 0
    turns(10_000)
    assert not prune_turns()
    assert left() == ["10000"]
    assert "kept for ever" in run()
    assert left() == ["10000"]


def test_a_sweep_takes_the_oldest_in_batches_and_says_when_there_is_more(monkeypatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    turns(31, 33, 32)
    assert prune_turns()
    assert left() == ["31"]
    assert not prune_turns()
    assert left() == []


def test_pruning_goes_on_to_the_end_and_tells_of_each_batch(monkeypatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    turns(1, 40, 41, 42, 43, 44)
    batches: list[int] = []
    assert prune(timezone.now() - timedelta(days=30), each=batches.append) == 5
    assert batches == [2, 2, 1]
    assert left() == ["1"]


def test_a_batch_takes_few_statements(django_assert_max_num_queries) -> None:
    turns(*range(31, 131))
    with django_assert_max_num_queries(6):
        prune_turns()
    assert left() == []


@pytest.mark.parametrize(
    ("days", "sound"), [(0, True), (36_500, True), (-1, False), (10**9, False)]
)
def test_a_retention_that_makes_no_sense_is_an_error(days: int, sound: bool, settings) -> None:
    settings.ORAZAKA_TURN_RETENTION_DAYS = days
    assert [error.id for error in days_make_sense()] == ([] if sound else ["orazaka.E009"])


# --- The command ----------------------------------------------------------------------------------
def test_pruneturns_says_how_many_are_gone() -> None:
    turns(31, 32, 5)
    assert run().startswith("2 turns that began before ")
    assert left() == ["5"]


def test_pruneturns_takes_another_number_of_days() -> None:
    turns(31, 32, 5, 0.5)
    assert run("--days", "1").startswith("3 turns")
    assert left() == ["0.5"]
    assert run("--days", "1").startswith("0 turns")


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "x", "", "²", "36501", "9" * 5000])
def test_pruneturns_refuses_days_that_make_no_sense(days: str) -> None:
    turns(40)
    with pytest.raises(CommandError, match="whole number from 1 to 36500"):
        run(f"--days={days}")
    assert left() == ["40"]


# --- Tails ----------------------------------------------------------------------------------------
def tail(created_at: datetime) -> Tail:
    return Tail(
        principal="user:1",
        wire="chat",
        call_id="call_1",
        calls_digest="",
        words_digest="",
        turn_id="11111111-1111-1111-1111-111111111111",
        content={},
        created_at=created_at,
    )


def test_tails_go_after_a_day(monkeypatch) -> None:
    now = timezone.now()
    hours = (23.9, 24.1, 25, 26)
    Tail.objects.bulk_create(tail(now - timedelta(hours=age)) for age in hours)
    monkeypatch.setattr(retention, "BATCH", 2)
    assert prune_tails()
    assert not prune_tails()
    assert [round((now - at).total_seconds() / 3600, 1) for at in created()] == [23.9]


def created() -> list[datetime]:
    return list(Tail.objects.values_list("created_at", flat=True))


def test_the_limit_is_counted_in_days() -> None:
    before = limit(7)
    assert before is not None
    assert timedelta(0) <= timezone.now() - timedelta(days=7) - before < timedelta(minutes=1)
