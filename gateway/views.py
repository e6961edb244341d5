"""`/v1`: read the request, run the turn, render the answer. What decides is elsewhere."""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from gateway import fields, listing, spans
from gateway.openai import envelope
from gateway.providers import PROVIDERS, UnknownModel, route
from gateway.turn import Ask, Turn
from orazaka.auth import authenticate, from_session
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.ratelimit import limited
from orazaka.runtime import current
from orazaka.shortchain import WrittenResponse, body_of, own, request_id
from orazaka.snapshot import SNAPSHOT

Json = Any
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]

FORWARDED = ("openai-beta", "anthropic-beta", "anthropic-version")
FIRST_EVENT_SECONDS = 15  # how long headers wait, so that early failures are an HTTP status


class WrongMethod(OrazakaError):
    """The path takes another method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path takes {allowed} only")
        self.allowed = allowed


def face(method: str) -> Callable[[View], View]:
    """A view of OpenAI's APIs: one method, and errors in their envelope."""

    def decorate(view: View) -> View:
        @wraps(view)
        async def answer(request: HttpRequest, *args: Json, **kwargs: Json) -> HttpResponseBase:
            try:
                if request.method != method:
                    raise WrongMethod(method)
                return await view(request, *args, **kwargs)
            except OrazakaError as error:
                return failed(error)

        return answer

    return decorate


async def caller_of(request: HttpRequest) -> Caller:
    """Who asks: by key, or signed in with a session. Raises Unauthenticated, Forbidden,
    RateLimited."""
    session, name = partial(from_session, request), request_id(request)
    return await limited(await authenticate(request.headers, session=session, request_id=name))


@face("POST")
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    """One turn over OpenAI's chat completions."""
    caller = await caller_of(request)
    body = fields.parse(await body_of(request))
    own_fields = fields.take(body)
    fields.check_chat(body)
    fields.check_conflicts(body, own_fields)
    runtime = current()
    peers = (await runtime[SNAPSHOT].fresh())[PROVIDERS]
    ask = Ask(
        caller=caller,
        wire="chat",
        body=body,
        fields=own_fields,
        route=route(body["model"], "chat", peers=peers, caller=caller),
        headers={k: v for k in FORWARDED if (v := request.headers.get(k))},
        trace={k: v for k in spans.HEADERS if (v := request.headers.get(k))},
    )
    turn = Turn(ask, runtime)
    own(request, turn.task)
    return await (streamed(turn) if turn.stream else plain(turn))


@face("GET")
async def models(request: HttpRequest) -> HttpResponse:
    """The models that this caller may use."""
    caller = await caller_of(request)
    return json({"object": "list", "data": await listing.models(caller, current())})


@face("GET")
async def model(request: HttpRequest, name: str) -> HttpResponse:
    """One of them."""
    caller = await caller_of(request)
    for entry in await listing.models(caller, current()):
        if entry["id"] == name:
            return json(entry)
    raise UnknownModel("no such model here", param="model")


async def plain(turn: Turn) -> HttpResponse:
    """The whole answer, when it is there."""
    await turn.over()
    if turn.failed or turn.reply is None:
        return refused(turn)
    response = json(turn.reply)
    response["X-Orazaka-Rounds"] = str(turn.record.rounds)
    response["X-Orazaka-Tool-Calls"] = str(turn.record.tool_calls)
    return marked(turn, response)


async def streamed(turn: Turn) -> HttpResponseBase:
    """The events as they come; until the first one a failure is an HTTP status."""
    await turn.outlet.opened(FIRST_EVENT_SECONDS)
    if not turn.outlet.begun:
        return refused(turn)
    drain = partial(turn.outlet.drain, keepalive=settings.ORAZAKA_KEEPALIVE_SECONDS)
    response = WrittenResponse(drain, content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return marked(turn, response)


def refused(turn: Turn) -> HttpResponse:
    """The error that ended a turn before the client saw anything of it."""
    error = turn.failed or OrazakaError("the turn was ended")
    return marked(turn, failed(error, usage=turn.usage))


def marked[R: HttpResponseBase](turn: Turn, response: R) -> R:
    """The response with the turn's id and the provider's own rate limits."""
    response["X-Orazaka-Turn"] = str(turn.record.id)
    for name, value in turn.back.items():
        response[name] = value
    return response


def json(value: Json, status: int = 200) -> HttpResponse:
    """A JSON response."""
    return HttpResponse(orjson.dumps(value), status=status, content_type="application/json")


def failed(error: OrazakaError, *, usage: Json = None) -> HttpResponse:
    """An error in OpenAI's envelope, with what had been used by then."""
    response = json(envelope(error, usage=usage), error.status)
    if error.retry_after is not None:
        response["Retry-After"] = str(max(1, round(error.retry_after)))
    if isinstance(error, WrongMethod):
        response["Allow"] = error.allowed
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response
