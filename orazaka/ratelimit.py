"""A key's limit of requests a minute, on `/v1` and REST together (spec 3.1)."""

import math

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from orazaka import minutes
from orazaka.caller import Caller
from orazaka.errors import OrazakaError


class RateLimited(OrazakaError):
    """The key's requests of this minute are used up."""

    status = 429
    code = "rate_limit_exceeded"


async def limited(caller: Caller) -> Caller:
    """Count a request to `/v1`; nothing for a key without a limit. Raises RateLimited."""
    if caller.rate is not None:
        _judge(caller.rate, await minutes.take(caller.key_id, limit=caller.rate))
    return caller


class KeyThrottle(BaseThrottle):
    """Counts the requests to REST, which runs in threads."""

    def allow_request(self, request: Request, view: object) -> bool:
        """True, also for those who have no limit. Raises RateLimited."""
        caller = request.auth
        if isinstance(caller, Caller) and caller.rate is not None:
            _judge(caller.rate, minutes.take_blocking(caller.key_id, limit=caller.rate))
        return True


def _judge(rate: int, wait: float) -> None:
    if wait > 0:
        seconds = max(1, math.ceil(wait))
        raise RateLimited(
            f"this key may make {rate} requests a minute; try again in {seconds} s",
            retry_after=seconds,
        )
