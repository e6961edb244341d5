"""`manage.py servelocalmodel`: a small real model behind an OpenAI-compatible server."""

import signal
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.local_model import NotInstalled, serve


def port(text: str) -> int:
    """A port to listen on."""
    if not (text.isascii() and text.isdigit() and 0 <= int(text[:9]) <= 65535):
        raise ArgumentTypeError("must be a whole number from 0 to 65535")
    return int(text)


class Command(BaseCommand):
    help = "Serve the small model of the extra [local-model] on this machine, until Ctrl-C."
    requires_system_checks: list[str] = []  # it needs nothing of the project

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=port, default=8081)
        parser.add_argument("--threads", type=int, default=1, help="Of the processor.")

    def handle(self, *, port: int, threads: int, **_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            server, url = serve(port=port, threads=max(1, threads))
        except NotInstalled as error:
            raise CommandError(str(error)) from error
        except RuntimeError as error:
            raise CommandError(f"the model's server did not start: {error}") from error
        self.stdout.write(f"ORAZAKA_LOCAL_MODEL_URL={url}")
        self.stdout.write("Set this for the gateway; the model is local:smollm2. Ctrl-C stops it.")
        self.stdout.flush()
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            del server  # its threads end with it
