"""`manage.py pruneturns`: delete the records of old turns."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from rich.console import Console
from rich.progress import Progress

from gateway.models import Turn
from gateway.retention import MOST_DAYS, limit, prune


def days(text: str) -> int:
    """A number of days that makes sense."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_DAYS):
        raise ArgumentTypeError(f"must be a whole number from 1 to {MOST_DAYS}")
    return int(text)


class Command(BaseCommand):
    help = "Delete turns that are too old, with their steps. The server does so by itself."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days", type=days, help="keep this many; else ORAZAKA_TURN_RETENTION_DAYS"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        before = limit(options["days"])
        if before is None:
            self.stdout.write("turns are kept for ever (ORAZAKA_TURN_RETENTION_DAYS=0)")
            return
        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("turns", total=Turn.objects.too_old(before).count())
            total = prune(before, each=lambda count: progress.advance(task, count))
        self.stdout.write(f"{total} turns that began before {before:%Y-%m-%d %H:%M} UTC are gone")
