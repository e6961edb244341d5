"""The first start's turn: over HTTP, with the demo model and the sample MCP server."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson

Json = Any

QUESTION = (
    'CALL weekday {"day": "1969-07-20"}\nCALL convert {"value": 26.2, "unit": "mile", "into": "km"}'
)


def body(mcp_url: str) -> Json:
    """The request: two tools of the sample server, called at once."""
    return {
        "model": "demo:demo",
        "messages": [{"role": "user", "content": QUESTION}],
        "mcp_servers": [{"name": "sample", "url": mcp_url}],
    }


def ask(base: str, *, key: str, mcp_url: str) -> Json:
    """The reply with its trace. Raises httpx.HTTPError if there is none."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        response = client.post(
            f"{base}/v1/chat/completions",
            headers={"Authorization": f"Bearer {key}"},
            json={**body(mcp_url), "orazaka_trace": True},
        )
    response.raise_for_status()
    return response.json()


def worked(reply: Json) -> bool:
    """Whether both tools ran, and what they gave is in the answer."""
    tools = [step for step in reply["orazaka"]["trace"] if step["kind"] == "tool"]
    said = reply["choices"][0]["message"]["content"] or ""
    return len(tools) == 2 and all(t["outcome"] == "ok" for t in tools) and "Sunday" in said


def transcript(reply: Json) -> Iterator[tuple[str, str]]:
    """Who said or did what, line by line."""
    yield "you", QUESTION
    for step in reply["orazaka"]["trace"]:
        took = f"{step['duration_ms']:.0f} ms"
        if step["kind"] == "server":
            yield f"server {step['name']}", f"tools {step['outcome']}, {took}"
        elif step["kind"] == "model":
            yield "model", f"call {step['detail']['round']}, {took}"
        elif step["kind"] == "tool":
            yield f"tool {step['name']}", f"on {step['server']}: {step['outcome']}, {took}"
    yield "answer", reply["choices"][0]["message"]["content"]


def curl(base: str, *, key: str, mcp_url: str) -> str:
    """The same turn as a line to paste into a shell."""
    data = orjson.dumps(body(mcp_url)).decode().replace("'", "'\\''")
    return (
        f"curl {base}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{data}'"
    )
