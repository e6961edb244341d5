"""`manage.py quickstart`: from nothing to a server that has answered one real turn (spec 5)."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from rich.console import Console
from rich.table import Table

from gateway import firstturn
from orazaka import dotenv, revision
from orazaka.models import ApiKey
from orazaka.settings import hand_down

READY_SECONDS = 60
STOP_SECONDS = 40  # the server drains its turns for 30


class Command(BaseCommand):
    help = "Set up, start the server, run one turn through it, and show how to go on."
    requires_system_checks: list[str] = []  # the secrets may not exist yet

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--no-serve", action="store_true", help="Stop after the turn.")
        parser.add_argument("--no-turn", action="store_true", help="Run no turn.")

    def handle(self, *, port: int, no_serve: bool, no_turn: bool, **_: Any) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._secrets()
        base, sample = f"http://127.0.0.1:{port}", free_port(port + 1)
        mcp_url = f"http://127.0.0.1:{sample}/mcp"
        if not is_free(port):
            raise CommandError(f"port {port} is in use; choose another: make run PORT={port + 100}")
        first = self._database()
        # Made before the server reads its keys: it knows this one from the start.
        issued = self._issue() if not no_turn and (first or no_serve) else None
        if settings.ORAZAKA_LOG_LEVEL == "INFO":  # nobody chose it: the terminal is for people
            hand_down("ORAZAKA_LOG_LEVEL", "WARNING")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            with (
                child("-m", "mcp_servers.sample", "--port", str(sample)) as tools,
                child("manage.py", "serve", "--port", str(port)) as server,
                self.console.status("starting …"),
            ):
                self._wait(server, lambda: answers(f"{base}/readyz"))
                self._wait(tools, lambda: not is_free(sample))
                self.console.print(f"[bold]Orazaka[/] is ready at {base}")
                if issued:
                    self._turn(base, mcp_url, *issued, keep=first and not no_serve)
                if first:
                    self._say_once(base)
                elif not no_serve:
                    self._again(base)
                if not no_serve:
                    self.console.print("Press Ctrl-C to stop.")
                    self._serve(server)
        except KeyboardInterrupt:
            pass
        if not no_serve:
            self.console.print("Stopped.")

    def _secrets(self) -> None:
        """Make `.env` complete; settings were read before, so begin again with what it says."""
        path = Path(settings.BASE_DIR) / ".env"
        have = {
            "SECRET_KEY": has_secret_key(),
            "ORAZAKA_SECRET_KEYS": bool(settings.ORAZAKA_SECRET_KEYS),
        }
        try:
            made = dotenv.complete(path, have=have)
        except OSError as error:
            raise CommandError(f"can't write {path.name}: {error.strerror}") from error
        if made:
            self.console.print("Wrote fresh secrets to .env.")
            os.execv(sys.executable, [sys.executable, *sys.argv])

    def _database(self) -> bool:
        """Migrate; make the admin on an empty deployment. Whether it was empty."""
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if plan or revision.missing():
            with self.console.status("migrating …"):
                call_command("migrate", verbosity=0, interactive=False)
        users = get_user_model().objects
        if users.exists():
            return False
        self._password = secrets.token_urlsafe(12)
        users.create_superuser("admin", password=self._password)
        return True

    def _issue(self) -> tuple[ApiKey, str]:
        """A key of an admin."""
        admin = get_user_model().objects.filter(is_superuser=True).first()
        if admin is None:
            raise CommandError("there is no superuser; make one: manage.py createsuperuser")
        return ApiKey.objects.issue(admin, name="first start")

    def _turn(self, base: str, mcp_url: str, row: ApiKey, key: str, *, keep: bool) -> None:
        """One real turn over HTTP. The key stays if it is kept and shown, else it is revoked."""
        try:
            reply = firstturn.ask(base, key=key, mcp_url=mcp_url)
        except httpx.HTTPError as error:
            raise CommandError(f"the sample turn failed: {error}") from error
        finally:
            if not keep:
                ApiKey.objects.filter(pk=row.pk).revoke()
        self._show(reply)
        if not firstturn.worked(reply):
            raise CommandError("the sample turn did not give what it should")
        if keep:
            self.console.print(f"\nAPI key   {key}  (shown only now)")
            self.console.print("The same turn from another terminal:\n")
            self.console.print(firstturn.curl(base, key=key, mcp_url=mcp_url), markup=False)

    def _show(self, reply: Any) -> None:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for who, what in firstturn.transcript(reply):
            table.add_row(f"[bold]{who}[/]", what)
        self.console.print("\nOne turn, with the demo model and the sample MCP server:\n")
        self.console.print(table)

    def _say_once(self, base: str) -> None:
        self.console.print(f"\nAdmin     {base}/admin/")
        self.console.print(f"          user admin, password {self._password}  (shown only now)\n")

    def _again(self, base: str) -> None:
        self.console.print(f"Admin: {base}/admin/   A new key: manage.py createkey admin")

    def _wait(self, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_SECONDS
        while not ready():
            if process.poll() is not None:
                raise CommandError("the server did not start; what it said stands above")
            if time.monotonic() > until:
                raise CommandError(f"the server was not ready within {READY_SECONDS} seconds")
            time.sleep(0.05)

    def _serve(self, server: subprocess.Popen[bytes]) -> None:
        if server.wait() != 0:
            raise CommandError("the server ended by itself; what it said stands above")


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that ends with the block. In a session of its own: Ctrl-C reaches only us,
    and we stop it in order."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=settings.BASE_DIR, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def has_secret_key() -> bool:
    """Whether SECRET_KEY is set; Django refuses to read it while it is empty."""
    try:
        return bool(settings.SECRET_KEY)
    except ImproperlyConfigured:
        return False


def is_free(port: int) -> bool:
    """Whether nothing listens on the port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def free_port(wanted: int) -> int:
    """That port, or any that is free."""
    if is_free(wanted):
        return wanted
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
