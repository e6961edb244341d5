"""A process of a deployment, driven over its pipes: one JSON request a line, one answer a line.

{"new": null}             -> [key's id, plain key]     makes a Scene
{"change": [id, name]}    -> null                      changes it
{"ask": "ozk_…"}          -> [permissions] or null     what the snapshot says of a key
{"deaf": null}            -> null                      cuts the connection that is notified
"""

import asyncio
import json
import sys
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402

from orazaka.auth import Unauthenticated, authenticate  # noqa: E402
from orazaka.runtime import Runtime  # noqa: E402
from tests.orazaka.changes import GRANTING, STOPPING, Scene  # noqa: E402

SCENES: dict[int, Scene] = {}


def new(_: None) -> Any:
    scene = Scene()
    SCENES[scene.key.pk] = scene
    return scene.key.pk, scene.plain


def change(what: tuple[int, str]) -> None:
    (STOPPING | GRANTING)[what[1]](SCENES[what[0]])


def deaf(_: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
        )


async def ask(key: str) -> list[str] | None:
    try:
        caller = await authenticate({"x-api-key": key})
    except Unauthenticated:
        return None
    return sorted(caller.permissions)


async def main() -> None:
    async with Runtime() as runtime:
        while line := await asyncio.to_thread(sys.stdin.readline):
            [(verb, what)] = json.loads(line).items()
            answer = await ask(what) if verb == "ask" else await runtime.db(globals()[verb], what)
            print(json.dumps(answer), flush=True)


asyncio.run(main())
