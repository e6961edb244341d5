"""The ASGI application: the lifespan's runtime, and two chains.

`/v1` and the health probes go the short way (`orazaka.shortchain`), everything else is Django's.
"""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orazaka.settings")
django = get_asgi_application()

import structlog  # noqa: E402 - after Django's set-up

from orazaka import shortchain  # noqa: E402
from orazaka.bodies import Bounded  # noqa: E402
from orazaka.runtime import Runtime  # noqa: E402
from orazaka.shortchain import Message, Receive, Send  # noqa: E402
from orazaka.stopping import STOPPING, noticed  # noqa: E402

logger = structlog.get_logger(__name__)
SHORT = ("/v1/", "/healthz", "/readyz", "/metrics")


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one connection of the server (ASGI 3)."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"].startswith(SHORT):
        await shortchain.respond(scope, receive, send)
    else:
        await django(scope, Bounded(scope, receive), send)  # type: ignore[arg-type]


async def lifespan(receive: Receive, send: Send) -> None:
    """Hold the runtime from the server's start to its stop."""
    await receive()
    runtime = Runtime()
    try:
        await runtime.__aenter__()
    except Exception as error:
        logger.exception("the runtime could not start")
        await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
        return
    await send({"type": "lifespan.startup.complete"})
    try:
        with noticed(runtime[STOPPING]):
            await receive()
    finally:
        await runtime.__aexit__(None, None, None)
    await send({"type": "lifespan.shutdown.complete"})
