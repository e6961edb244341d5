"""The gateway over a real socket, in the test's own loop and in its database transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvicorn

from orazaka import shortchain
from orazaka.models import ApiKey
from orazaka.runtime import RunSync, Runtime
from orazaka.writer import WRITER
from tests.factories import UserFactory


@dataclass
class Gateway:
    """A running gateway: its address, a key for it, and what it is made of."""

    base: str
    key: str
    runtime: Runtime
    client: httpx.AsyncClient

    async def chat(self, **body: object) -> httpx.Response:
        """POST a chat completion; the model is the strict provider's unless it is given."""
        body = {"model": "openai:strict-1", **body}
        return await self.client.post("/v1/chat/completions", json=body)

    async def written(self) -> None:
        """Wait until what the turns left behind is in the database."""
        assert await self.runtime[WRITER].flush(limit=5)


@asynccontextmanager
async def gateway(run_sync: RunSync) -> AsyncIterator[Gateway]:
    """Serve `/v1` with one user and a key."""
    _, key = await run_sync(lambda: ApiKey.objects.issue(UserFactory.create(), name="tests"))
    async with Runtime(run_sync=run_sync) as runtime, _server() as base:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=20) as client:
            yield Gateway(base, key, runtime, client)


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    config = uvicorn.Config(
        shortchain.respond,
        port=0,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving
