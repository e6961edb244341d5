"""How long what turns leave behind is kept: records as the operator says, tails for a day."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils import timezone

from gateway import tails
from gateway.models import Tail, Turn
from orazaka.periodic import every

BATCH = 200  # rows that one transaction deletes: it takes about 0.1 s, and others wait for it

MOST_DAYS = 36_500


@register
def days_make_sense(**_: Any) -> Iterator[CheckMessage]:
    """E009."""
    if not 0 <= settings.ORAZAKA_TURN_RETENTION_DAYS <= MOST_DAYS:
        yield Error(
            f"ORAZAKA_TURN_RETENTION_DAYS is not from 0 to {MOST_DAYS}.",
            hint="Set the days that turn records are kept, such as 30; 0 keeps them for ever.",
            id="orazaka.E009",
        )


def limit(days: int | None = None) -> datetime | None:
    """Turns that began before it are too old; None when they are kept for ever.

    `days` None is ORAZAKA_TURN_RETENTION_DAYS.
    """
    days = settings.ORAZAKA_TURN_RETENTION_DAYS if days is None else days
    return timezone.now() - timedelta(days=days) if days > 0 else None


def prune(before: datetime, *, each: Callable[[int], object] = lambda _: None) -> int:
    """Delete all turns that began before then, with their steps; `each` is told of every batch."""
    total = 0
    while count := Turn.objects.prune(before=before, limit=BATCH):
        total += count
        each(count)
    return total


@every(3600, lock="prune-turns")
def prune_turns() -> bool:
    """Delete a batch of turns that are too old."""
    before = limit()
    return before is not None and Turn.objects.prune(before=before, limit=BATCH) == BATCH


@every(3600, lock="prune-tails")
def prune_tails() -> bool:
    """Delete a batch of tails whose clients did not come back."""
    return Tail.objects.prune(before=timezone.now() - tails.KEPT, limit=BATCH) == BATCH
