"""Rows that turns leave behind; a test states only what matters to it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from gateway.models import Turn, TurnStep
from tests.factories import UserFactory

Json = Any
START = datetime(2026, 11, 1, tzinfo=UTC)


def turn(user: User | None = None, *, at: float = 0, **fields: Json) -> Turn:
    """A turn that began `at` seconds after START, of a new user if none is given."""
    user = user or UserFactory.create()
    whole = {
        "user": user,
        "principal": f"user:{user.pk}",
        "wire": "chat",
        "model": "demo:demo",
        "streamed": False,
        "status": "ok",
        "started_at": START + timedelta(seconds=at),
        "duration_ms": 12.5,
    }
    return Turn.objects.create(**{**whole, **fields})


def step(turn: Turn, position: int, **fields: Json) -> TurnStep:
    whole = {"kind": "tool", "name": "weekday", "outcome": "ok", "started_ms": 1, "duration_ms": 2}
    return TurnStep.objects.create(turn=turn, position=position, **{**whole, **fields})
