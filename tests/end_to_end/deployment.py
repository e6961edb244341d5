"""The project's server as a real process, on a database of its own."""

import base64
import json
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
from django.conf import settings
from psycopg import sql

from tests.end_to_end.processes import Child, child, clean_environment, done, free_port, until

MANAGE = (sys.executable, "manage.py")


@dataclass(frozen=True)
class Database:
    """Where a deployment keeps its rows; they are read past Django, as another program would."""

    url: str

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a query with `?` in the places of the values."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(urlsplit(self.url).path[1:], timeout=20)) as lite:
                lite.row_factory = sqlite3.Row
                return [dict(row) for row in lite.execute(query, values)]
        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(query.replace("?", "%s"), values).fetchall()

    def change(self, statement: str, *values: Any) -> int:
        """Carry out a statement; how many rows it changed."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(urlsplit(self.url).path[1:], timeout=20)) as lite, lite:
                return lite.execute(statement, values).rowcount
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement.replace("?", "%s"), values).rowcount


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    """A fresh one, of the kind that the tests themselves run on."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        yield Database(f"sqlite:///{folder / 'deployment.sqlite3'}")
        return
    url = urlsplit(os.environ["DATABASE_URL"])
    name = f"orazaka_e2e_{secrets.token_hex(6)}"
    with psycopg.connect(url.geturl(), autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield Database(url._replace(path=f"/{name}").geturl())
        finally:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            server.execute(drop.format(sql.Identifier(name)))


@dataclass
class Deployment:
    """A set-up project: environment, database and a key; `serve` starts a server of it."""

    env: dict[str, str]
    database: Database
    folder: Path
    key: str = ""

    def manage(self, *arguments: str) -> str:
        """What a management command says."""
        return done([*MANAGE, *arguments], env=self.env)

    def new_key(self, username: str = "e2e") -> str:
        """An API key of that user, who is made if need be."""
        return str(json.loads(self.manage("createkey", username, "--create", "--json"))["key"])

    @contextmanager
    def serve(self, **env: str) -> Iterator["Server"]:
        """Run a server, ready when the block begins, and stop it in order at its end."""
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "orazaka.asgi:application"]
        log = self.folder / f"server-{port}.log"
        command += ["--port", str(port)]
        with child(command, log=log, env={**self.env, **env}) as process:
            server = Server(f"http://127.0.0.1:{port}", process, self)
            until(lambda: server.ready or process.process.poll() is not None, 60)
            assert process.process.poll() is None, process.said
            yield server
            assert process.stop() in (0, -15), process.said  # uvicorn passes the signal on

    def turn(self, request_id: str) -> dict[str, Any]:
        """The record of a turn and its `steps`, once it is written."""
        return until(lambda: self._turn(request_id)) or {}

    def _turn(self, request_id: str) -> dict[str, Any] | None:
        turns = self.database.rows("SELECT * FROM gateway_turn WHERE request_id = ?", request_id)
        if not turns:
            return None
        assert len(turns) == 1, "one turn, one record"
        steps = "SELECT * FROM gateway_turnstep WHERE turn_id = ? ORDER BY position"
        return {**turns[0], "steps": self.database.rows(steps, turns[0]["id"])}


def loopback(**options: Any) -> httpx.Client:
    """A client for this machine: no proxy, and no time lost on certificates, which are not used."""
    return httpx.Client(**{"trust_env": False, "verify": False, "timeout": 30, **options})


@dataclass
class Server:
    """A running server of a deployment."""

    url: str
    process: Child
    deployment: Deployment

    @property
    def ready(self) -> bool:
        try:
            with loopback() as client:
                return client.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def key(self) -> str:
        return self.deployment.key

    def http(self, **headers: str) -> httpx.Client:
        """A client with the deployment's key; to be closed."""
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        return loopback(base_url=self.url, headers=headers)


@contextmanager
def deployed(folder: Path, **env: str) -> Iterator[Deployment]:
    """Set the project up as its documentation says: database, migrations, a user with a key."""
    with database(folder) as rows:
        own = {
            "ORAZAKA_DOTENV": "",
            "SECRET_KEY": secrets.token_urlsafe(48),
            "ORAZAKA_SECRET_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "DATABASE_URL": rows.url,
            "CACHE_URL": os.environ.get("CACHE_URL", "locmemcache://"),
        }
        deployment = Deployment({**clean_environment(), **own, **env}, rows, folder)
        deployment.manage("migrate", "--verbosity=0")
        deployment.key = deployment.new_key()
        yield deployment
