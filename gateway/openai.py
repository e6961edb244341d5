"""How OpenAI's APIs say that something went wrong, in answers and in streams."""

from typing import Any

from gateway.sse import Event
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
    """The provider's own words in an error that it sent."""
    error = event.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return words if isinstance(words, str) and words else "the provider reported an error"
