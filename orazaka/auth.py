"""Request headers → Caller. On `/v1` from the snapshot, on REST from the database (spec 3.1).

The first header that is there decides: `Otari-Key`, `Authorization: Bearer`, `x-api-key`. Without
one, a Django session with its CSRF token will do.
"""

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.keys import KEYS, as_caller
from orazaka.models import ApiKey, ApiKeyUse, digest_of
from orazaka.runtime import Resource, Runtime, current
from orazaka.snapshot import SNAPSHOT
from orazaka.writer import WRITER

KEY_LENGTH_LIMIT = 512
USE_SECONDS = 60  # how exactly a key's last use is known


class Unauthenticated(OrazakaError):
    """No key, or one that opens nothing. The message never holds the key."""

    status = 401
    code = "invalid_api_key"

    @classmethod
    def missing(cls) -> "Unauthenticated":
        return cls(
            "no API key was sent: send one as `Authorization: Bearer ozk_…`, `x-api-key` or "
            "`Otari-Key`",
            code="missing_api_key",
        )

    @classmethod
    def refused(cls, header: str) -> "Unauthenticated":
        return cls(
            f"the API key in `{header}` does not work: it is unknown, revoked or expired, or its "
            "user is inactive"
        )


class Forbidden(OrazakaError):
    """A caller that is known and may not do this."""

    status = 403
    code = "forbidden"


# --- From headers ---------------------------------------------------------------------------------
def presented(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """The header that decides, and the key in it ("" when it is empty); None without one."""
    for header in ("Otari-Key", "Authorization", "x-api-key"):
        value = headers.get(header)
        if value is None:
            continue
        if header != "Authorization":
            return header, value.strip()
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == "bearer":  # other schemes are not for us, such as a proxy's Basic
            return header, key.strip()
    return None


def _digest(header: str, key: str) -> str:
    if not key or len(key) > KEY_LENGTH_LIMIT or not (key.isascii() and key.isprintable()):
        raise Unauthenticated.refused(header)
    return digest_of(key)


async def authenticate(
    headers: Mapping[str, str],
    *,
    scope: str = "gateway",
    session: Callable[[], Awaitable[Caller | None]] | None = None,
    request_id: str = "",
) -> Caller:
    """Who sent these headers, from the snapshot alone. Their names are to compare in any case, as
    those of `request.headers`.

    `session` is asked when no key was sent: `partial(from_session, request)`.
    Raises Unauthenticated, or Forbidden if the key has not the scope.
    """
    found = presented(headers)
    if found is None:
        caller = await session() if session else None
        if caller is None:
            raise Unauthenticated.missing()
    else:
        caller = await _caller_of(*found)
    if scope not in caller.scopes:
        raise Forbidden(f"this API key does not have the scope `{scope}`", code="missing_scope")
    return replace(caller, request_id=request_id)


async def _caller_of(header: str, key: str) -> Caller:
    digest, runtime = _digest(header, key), current()
    known = (await runtime[SNAPSHOT].fresh())[KEYS].get(digest)
    if known is None or known.expires <= time.time():
        raise Unauthenticated.refused(header)
    _note_use(runtime, known.caller.key_id)
    return known.caller


@asynccontextmanager
async def _open_uses(_: Runtime) -> AsyncGenerator[dict[int | None, float]]:
    yield {}


USES: Resource[dict[int | None, float]] = Resource(_open_uses)  # key id → when last written


def _note_use(runtime: Runtime, key_id: int | None) -> None:
    now = time.monotonic()
    if key_id is not None and now - runtime[USES].get(key_id, -math.inf) >= USE_SECONDS:
        runtime[USES][key_id] = now
        runtime[WRITER].do(partial(ApiKeyUse.objects.touch, key_id, at=timezone.now()))


# --- From a session -------------------------------------------------------------------------------
async def from_session(request: HttpRequest) -> Caller | None:
    """The caller that is signed in with a session cookie, None without one.

    Raises Forbidden for an unsafe method without the CSRF token.
    """
    if settings.SESSION_COOKIE_NAME not in request.COOKIES:
        return None
    return await current().db(_signed_in, request)


def _nothing(_: HttpRequest) -> HttpResponse:
    return HttpResponse()


def _signed_in(request: HttpRequest) -> Caller | None:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(request.COOKIES[settings.SESSION_COOKIE_NAME])
    user = get_user(request)
    if isinstance(user, AnonymousUser):
        return None
    check = CSRFCheck(_nothing)
    check.process_request(request)
    reason = check.process_view(request, _nothing, (), {})
    if reason:
        raise Forbidden(
            f"{reason} A session needs its CSRF token as `X-CSRFToken`.", code="csrf_failed"
        )
    return as_caller(user, user.get_all_permissions())


# --- REST -----------------------------------------------------------------------------------------
class KeyAuthentication(BaseAuthentication):
    """The same keys on REST. `request.user` is the key's user, `request.auth` the Caller.

    It asks the database: the view needs the user's row in any case.
    """

    scope = "rest"

    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        found = presented(request.headers)
        if found is None:
            return None
        key = self._key(*found)
        if self.scope not in key.scopes:
            raise PermissionDenied(f"this API key does not have the scope `{self.scope}`")
        self._note_use(key)
        return key.user, as_caller(key.user, key.user.get_all_permissions(), key=key)

    def authenticate_header(self, request: Request) -> str:
        """What makes a refusal a 401."""
        return "Bearer"

    def _key(self, header: str, key: str) -> ApiKey:
        usable = ApiKey.objects.usable(timezone.now()).select_related("user", "use")
        try:
            return usable.get(digest=_digest(header, key))
        except ApiKey.DoesNotExist:
            raise AuthenticationFailed(Unauthenticated.refused(header).message) from None
        except Unauthenticated as error:
            raise AuthenticationFailed(error.message) from None

    def _note_use(self, key: ApiKey) -> None:
        now, use = timezone.now(), getattr(key, "use", None)
        if use is None or (now - use.last_used_at).total_seconds() >= USE_SECONDS:
            ApiKeyUse.objects.touch(key.pk, at=now)
