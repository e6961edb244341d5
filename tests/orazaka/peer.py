"""A process of a deployment, driven over its pipes: one JSON request a line, one answer a line.

{"new": null}             -> [key's id, plain key]     makes a Scene
{"change": [id, name]}    -> null                      changes it
{"ask": "ozk_…"}          -> [permissions] or null     what the snapshot says of a key
{"hurry": 150}            -> 0                         makes keys, uses each at once; refusals
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
from orazaka.runtime import Runtime, current  # noqa: E402
from tests.factories import UserFactory, issue  # noqa: E402
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


async def hurry(times: int) -> int:
    user, refused = await current().db(UserFactory.create), 0
    for _ in range(times):
        _, plain = await current().db(issue, user)
        refused += await ask(plain) is None
    return refused


async def main() -> None:
    async with Runtime() as runtime:
        while line := await asyncio.to_thread(sys.stdin.readline):
            [(verb, what)] = json.loads(line).items()
            work = globals()[verb]
            asynchronous = verb in ("ask", "hurry")
            answer = await (work(what) if asynchronous else runtime.db(work, what))
            print(json.dumps(answer), flush=True)


asyncio.run(main())
