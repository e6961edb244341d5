"""`manage.py serve`: the server, with as many workers as wanted (spec 5)."""

import sys
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from orazaka.workers import serve

MOST_WORKERS = 256


def number(least: int, most: int) -> Any:
    """A parser of whole numbers in these bounds."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text[:9]) <= most):
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


class Command(BaseCommand):
    help = "Serve until SIGTERM or Ctrl-C; turns that run then have ORAZAKA_DRAIN_SECONDS to end."
    requires_system_checks: list[str] = []  # they come when the number of workers is known

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=number(0, 65535), default=8000, help="0: any free one")
        parser.add_argument(
            "--workers",
            type=number(1, MOST_WORKERS),
            default=settings.WEB_CONCURRENCY,
            help="processes; else WEB_CONCURRENCY",
        )

    def handle(self, *, host: str, port: int, workers: int, **_: Any) -> None:
        settings.WEB_CONCURRENCY = workers  # the checks judge what is about to run
        self.check()
        if code := serve(host=host, port=port, workers=workers):
            sys.exit(code)
