"""What the tests of public fault cases share."""

from typing import Any

import pytest

from tests.gateway.serving import Gateway
from tests.gateway.talking import said
from tests.mcp_servers.scripted import (
    Scripted,
)
from tests.wires.checker import Reply, check_plain
from tests.wires.strict import StrictProvider

Json = Any
PIXEL = "iVBORw0KGgo="
IMAGE = {"type": "image", "mimeType": "image/png", "data": PIXEL}
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def inline(server: Scripted, name: str = "shop", **more: Json) -> Json:
    return {"name": name, "url": server.url, **more}


async def turn(gate: Gateway, *lines: str, **request: Json) -> Reply:
    """One plain turn that must go well."""
    response = await gate.chat(messages=said(*lines), **request)
    assert response.status_code == 200, response.text
    return check_plain(response.json())


def told(provider: StrictProvider) -> list[str]:
    """The tool results that the last model call held."""
    return [m["content"] for m in provider.bodies[-1]["messages"] if m["role"] == "tool"]


def offered(provider: StrictProvider) -> dict[str, Json]:
    """The tools of the last model call by the names shown."""
    functions = [entry["function"] for entry in provider.bodies[-1].get("tools", ())]
    return {function["name"]: function for function in functions}
