"""How OpenAI's APIs say what went wrong and what was used, in answers and in streams."""

from typing import Any

import orjson

from gateway.sse import Event
from gateway.wire import Usage
from orazaka.errors import OrazakaError

Json = Any


def envelope(error: OrazakaError, *, usage: Json = None) -> Event:
    """An error as OpenAI's APIs answer it, plain or in a stream."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(error.status) or (
        "invalid_request_error" if error.status < 500 else "server_error"
    )
    inner = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": inner if usage is None else {**inner, "usage": usage}}


def message_of(event: Event) -> str:
    """The provider's own words in an error that it sent, in any of the forms that are about."""
    error = event.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    said = [inner, event.get("message"), event.get("detail")]
    words = next((one for one in said if one and isinstance(one, str)), "")
    lists = (orjson.dumps(one).decode() for one in said if one and isinstance(one, list | dict))
    return words or next(lists, "the provider reported an error")


def usage_of(usage: Json) -> Usage:
    """A chat completion's usage in our vocabulary; what is missing or not a number counts as 0."""
    usage = _dict(usage)
    prompt = _dict(usage.get("prompt_tokens_details"))
    completion = _dict(usage.get("completion_tokens_details"))
    written = prompt.get("cache_write_tokens", prompt.get("cache_creation_tokens"))
    return Usage(
        prompt=_count(usage.get("prompt_tokens")),
        completion=_count(usage.get("completion_tokens")),
        cached=_count(prompt.get("cached_tokens")),
        cache_write=_count(written),
        reasoning=_count(completion.get("reasoning_tokens")),
    )


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _count(value: Json) -> int:
    """A number of tokens, such as a table can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(max(0, min(value, 2**53)))
