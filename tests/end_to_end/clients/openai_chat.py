"""The official OpenAI SDK at work: a JSON job a line on standard input, its outcome on output.

It runs in an environment of its own, which has the SDK and nothing of this project.

    {"job": "chat", "base_url": …, "api_key": …, "body": {…}, "headers": {…}}
    {"job": "models" | "parsed" | "accumulated" | "many" | "retried", …}
"""

import asyncio
import json
import sys
from typing import Any

import openai  # type: ignore[import-not-found]  # not in the project's own environment
from pydantic import BaseModel

Json = Any
OURS = ("mcp_servers", "max_tool_iterations", "orazaka_trace", "tools_header")


class City(BaseModel):
    """The structured output that is asked for."""

    city: str
    degrees: float


def sorted_out(job: Json) -> dict[str, Json]:
    """The arguments of `create`: what is no argument of the SDK's goes into `extra_body`."""
    body = dict(job["body"])
    extra = {name: body.pop(name) for name in OURS if name in body}
    return {**body, "extra_body": extra, "extra_headers": job.get("headers") or {}}


def client(job: Json) -> openai.OpenAI:
    retries = job.get("retries", 0)
    where = {"base_url": job["base_url"] + "/v1", "api_key": job["api_key"]}
    return openai.OpenAI(**where, max_retries=retries, timeout=30)


def chat(job: Json) -> Json:
    """One completion, plain or put together from its chunks."""
    arguments = sorted_out(job)
    with client(job) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(**arguments)
        outcome = {"headers": dict(raw.headers), "status": raw.status_code}
        parsed = raw.parse()
        return outcome | (streamed(parsed) if arguments.get("stream") else plain(parsed))


def plain(completion: Json) -> Json:
    choice = completion.choices[0]
    return {
        "id": completion.id,
        "message": choice.message.model_dump(),
        "finish_reason": choice.finish_reason,
        "usage": completion.usage and completion.usage.model_dump(),
    }


def streamed(chunks: Json) -> Json:
    """What an ordinary program makes of the chunks."""
    text, usage, count = "", None, 0
    calls: list[dict[str, str]] = []
    finish: list[str] = []
    ids: set[str] = set()
    for chunk in chunks:
        count += 1
        ids.add(chunk.id)
        usage = chunk.usage.model_dump() if chunk.usage else usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or []:
                if piece.index == len(calls):
                    calls.append({"id": piece.id, "type": "function", "name": "", "arguments": ""})
                calls[piece.index]["name"] += piece.function.name or ""
                calls[piece.index]["arguments"] += piece.function.arguments or ""
            if choice.finish_reason:
                finish.append(choice.finish_reason)
    assert len(ids) == 1, f"one id a stream, not {ids}"
    assert len(finish) == 1, f"one finish_reason a stream, not {finish}"
    message: Json = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    return {
        "id": ids.pop(),
        "message": message,
        "finish_reason": finish[0],
        "usage": usage,
        "chunks": count,
    }


def accumulated(job: Json) -> Json:
    """A stream put together by the SDK itself, which knows better than to forgive."""
    with client(job) as sdk, sdk.chat.completions.stream(**sorted_out(job)) as stream:
        kinds = [event.type for event in stream]
        return {**plain(stream.get_final_completion()), "events": kinds}


def parsed(job: Json) -> Json:
    """Structured output as an object."""
    with client(job) as sdk:
        completion = sdk.chat.completions.parse(**sorted_out(job), response_format=City)
        value = completion.choices[0].message.parsed
        return {**plain(completion), "parsed": value and value.model_dump()}


def models(job: Json) -> Json:
    with client(job) as sdk:
        return {"models": [model.id for model in sdk.models.list()]}


def many(job: Json) -> Json:
    """The bodies all at once, over one asynchronous client."""
    return asyncio.run(_many(job))


async def _many(job: Json) -> Json:
    where = {"base_url": job["base_url"] + "/v1", "api_key": job["api_key"]}
    async with openai.AsyncOpenAI(**where, max_retries=0, timeout=60) as sdk:
        return {"texts": await asyncio.gather(*(_one(sdk, body) for body in job["bodies"]))}


async def _one(sdk: openai.AsyncOpenAI, body: Json) -> str:
    answer = await sdk.chat.completions.create(**sorted_out({"body": body}))
    if not body.get("stream"):
        return answer.choices[0].message.content or ""
    pieces = [chunk async for chunk in answer]
    return "".join(c.delta.content or "" for piece in pieces for c in piece.choices)


JOBS = {
    "chat": chat,
    "accumulated": accumulated,
    "parsed": parsed,
    "models": models,
    "many": many,
}


def outcome(job: Json) -> Json:
    """What came of a job; a refusal is told by the class of the SDK's exception."""
    try:
        return JOBS[job["job"]](job)
    except openai.APIError as error:
        response = getattr(error, "response", None)
        return {
            "error": type(error).__name__,
            "words": error.message,
            "code": error.code,
            "param": error.param,
            "status": getattr(error, "status_code", 200),
            "headers": dict(response.headers) if response is not None else {},
        }


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            told = outcome(json.loads(line))
        except Exception as error:
            told = {"error": type(error).__name__, "words": repr(error), "code": None}
        print(json.dumps(told), flush=True)
