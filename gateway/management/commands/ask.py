"""`manage.py ask`: one turn in this process, with its trace drawn while it runs (spec 5)."""

import asyncio
import sys
from argparse import ArgumentTypeError
from typing import IO, Any, cast

import orjson
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from rich.console import Console
from rich.text import Text

from gateway import asking, trace
from gateway.asking import Answer
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.keys import as_caller
from orazaka.runtime import Runtime

Json = Any
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def rounds(text: str) -> int:
    """A number of model calls that the gateway accepts."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 25):
        raise ArgumentTypeError("must be a whole number from 1 to 25")
    return int(text)


class Command(BaseCommand):
    help = "Ask a model, with tools; no server needs to run. The turn is recorded like any other."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("question", help="What to ask; - reads it from standard input.")
        parser.add_argument("--model", default="demo:demo", help="provider:model")
        parser.add_argument(
            "--mcp-server",
            action="append",
            default=[],
            metavar="URL",
            help="An MCP server whose tools are attached; may be given several times.",
        )
        parser.add_argument("--no-stream", action="store_true", help="Show the answer as a whole.")
        parser.add_argument("--max-rounds", type=rounds, metavar="N", help="Most model calls.")
        parser.add_argument("--user", help="On whose behalf; else the first active one.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *, question: str, user: str | None, **options: Any) -> None:
        body = asking.request(
            sys.stdin.read() if question == "-" else question,
            model=options["model"],
            servers=options["mcp_server"],
            rounds=options["max_rounds"],
            stream=not options["no_stream"],
        )
        caller, title = caller_for(user), f"{options['model']}: {question[:200]}"
        stdout = cast(IO[str], self.stdout._out)  # the wrapper ends each write with a line break
        console = Console(file=stdout, highlight=False, soft_wrap=True)
        try:
            with shown_by(console, title, as_json=options["json"]) as view:
                answer = asyncio.run(turn(body, caller, view))
        except KeyboardInterrupt:
            self.stderr.write("cancelled")
            sys.exit(INTERRUPTED)
        except OrazakaError as error:
            refuse(self, error, as_json=options["json"])
        else:
            self._end(answer, console, as_json=options["json"])

    def _end(self, answer: Answer, console: Console, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(orjson.dumps(as_object(answer)).decode())
        elif not answer.error:
            words = f"{answer.rounds} rounds, {answer.tool_calls} tool calls, "
            words += f"{trace.used(answer.usage)}, {trace.took(answer.ms)}, turn {answer.turn}"
            console.print(Text(words, "dim"))
        if answer.error and not as_json:
            raise CommandError(trace.clean(answer.error.message))
        if answer.error:
            sys.exit(1)


async def turn(body: dict[str, Json], caller: Caller, view: asking.View) -> Answer:
    """The turn in a runtime of its own, whose end writes the record."""
    async with Runtime() as runtime:
        return await asking.ask(body, caller=caller, runtime=runtime, view=view)


def shown_by(
    console: Console, title: str, *, as_json: bool
) -> trace.Growing | trace.Lines | trace.Quiet:
    """A tree in a terminal, else lines, and nothing before JSON."""
    if as_json:
        return trace.Quiet()
    return trace.Growing(console, title) if console.is_terminal else trace.Lines(console)


def caller_for(username: str | None) -> Caller:
    """The named user, or the first active one, superusers before others. Raises CommandError."""
    users = get_user_model().objects.filter(is_active=True)
    try:
        found: User | None = (
            users.filter(username=username).first()
            if username
            else users.order_by("-is_superuser", "pk").first()
        )
    except DatabaseError as error:
        raise CommandError("the database is not set up; run manage.py migrate first") from error
    if found is None and username:
        raise CommandError(f"there is no active user {username!r}")
    if found is None:
        raise CommandError("there is no user yet; make one with manage.py createsuperuser")
    return as_caller(found, found.get_all_permissions())


def refuse(command: BaseCommand, error: OrazakaError, *, as_json: bool) -> None:
    """Say what was wrong with the request, and end with exit code 1."""
    if not as_json:
        raise CommandError(trace.clean(error.message))
    command.stdout.write(orjson.dumps({"error": problem(error)}).decode())
    sys.exit(1)


def as_object(answer: Answer) -> Json:
    """The whole of it, for programs."""
    return {
        "text": answer.text,
        "turn": answer.turn,
        "rounds": answer.rounds,
        "tool_calls": answer.tool_calls,
        "duration_ms": round(answer.ms, 2),
        "usage": answer.usage,
        "trace": answer.trace,
        "error": problem(answer.error) if answer.error else None,
    }


def problem(error: OrazakaError) -> Json:
    """An error for programs."""
    return {"message": error.message, "code": error.code, "param": error.param}
