"""Who is asking: keys in headers, sessions with CSRF, and the same keys on REST."""

import asyncio
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth import login
from django.contrib.auth.models import Permission, User
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from orazaka.auth import Forbidden, KeyAuthentication, Unauthenticated, authenticate, from_session
from orazaka.caller import Caller
from orazaka.models import ApiKey, ApiKeyUse
from orazaka.runtime import RunSync, Runtime
from orazaka.writer import WRITER
from tests.factories import UserFactory, issue

pytestmark = pytest.mark.django_db
new_key = sync_to_async(issue)


# --- Keys in headers ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "headers",
    [
        {"Otari-Key": "KEY"},
        {"Authorization": "Bearer KEY"},
        {"Authorization": "bearer  KEY "},
        {"x-api-key": "KEY"},
        {"Otari-Key": "KEY", "Authorization": "Bearer nonsense", "x-api-key": "nonsense"},
        {"Authorization": "Bearer KEY", "x-api-key": "nonsense"},
        {"Authorization": "Basic cHJveHk6cGFzcw==", "x-api-key": "KEY"},
    ],
)
async def test_the_first_header_that_is_there_decides(
    headers: dict[str, str], run_sync: RunSync
) -> None:
    key, plain = await new_key()
    sent = {name: value.replace("KEY", plain) for name, value in headers.items()}
    async with Runtime(run_sync=run_sync):
        caller = await authenticate(sent, request_id="r1")
    assert (caller.principal, caller.key_id) == (f"user:{key.user_id}", key.pk)
    assert caller.request_id == "r1"


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Otari-Key": "nonsense", "x-api-key": "KEY"}, "Otari-Key"),
        ({"Otari-Key": "", "x-api-key": "KEY"}, "Otari-Key"),
        ({"Authorization": "Bearer ", "x-api-key": "KEY"}, "Authorization"),
        ({"Authorization": "Bearer nonsense", "x-api-key": "KEY"}, "Authorization"),
        ({"x-api-key": "KEYx"}, "x-api-key"),
        ({"x-api-key": "KEY,KEY"}, "x-api-key"),
        ({"x-api-key": "ozk_é"}, "x-api-key"),
        ({"x-api-key": "ozk_\ud800"}, "x-api-key"),
        ({"x-api-key": "ozk_\x00\x1b[2J"}, "x-api-key"),
        ({"x-api-key": "ozk_" + "x" * 1_000_000}, "x-api-key"),
    ],
)
async def test_a_key_that_does_not_work_is_a_401_that_names_its_header_and_not_the_key(
    headers: dict[str, str], named: str, run_sync: RunSync
) -> None:
    _, plain = await new_key()
    sent = {name: value.replace("KEY", plain) for name, value in headers.items()}
    async with Runtime(run_sync=run_sync):
        with pytest.raises(Unauthenticated) as raised:
            await authenticate(sent)
    assert (raised.value.status, raised.value.code) == (401, "invalid_api_key")
    assert f"`{named}`" in raised.value.message
    assert "ozk_" not in raised.value.message


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eDp5"}, {"Cookie": "a=b"}])
async def test_without_a_key_the_401_says_where_to_put_one(
    headers: dict[str, str], run_sync: RunSync
) -> None:
    async with Runtime(run_sync=run_sync):
        with pytest.raises(Unauthenticated, match="Authorization: Bearer") as raised:
            await authenticate(headers)
    assert raised.value.code == "missing_api_key"


async def test_a_key_needs_the_scope(run_sync: RunSync) -> None:
    _, plain = await new_key(scopes=["rest"])
    async with Runtime(run_sync=run_sync):
        assert await authenticate({"x-api-key": plain}, scope="rest")
        with pytest.raises(Forbidden, match="`gateway`") as raised:
            await authenticate({"x-api-key": plain})
    assert (raised.value.status, raised.value.code) == (403, "missing_scope")


async def test_a_key_expires_on_time_though_the_snapshot_still_holds_it(run_sync: RunSync) -> None:
    async with Runtime(run_sync=run_sync):
        _, plain = await new_key(expires_at=timezone.now() + timedelta(seconds=0.3))
        assert await authenticate({"x-api-key": plain})
        async with asyncio.timeout(5):
            with pytest.raises(Unauthenticated):
                while True:
                    await authenticate({"x-api-key": plain})
                    await asyncio.sleep(0.02)


async def test_a_caller_has_its_users_permissions(run_sync: RunSync) -> None:
    def with_permission() -> str:
        user = UserFactory.create(is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="add_logentry"))
        return issue(user)[1]

    plain = await sync_to_async(with_permission)()
    async with Runtime(run_sync=run_sync):
        caller = await authenticate({"x-api-key": plain})
    assert caller.is_staff
    assert caller.may("admin.add_logentry")
    assert not caller.may("admin.delete_logentry")


async def test_the_last_use_is_written_once_a_minute_behind_the_request(run_sync: RunSync) -> None:
    key, plain = await new_key()
    async with Runtime(run_sync=run_sync) as runtime:
        for _ in range(3):
            await authenticate({"x-api-key": plain})
            assert await runtime[WRITER].flush()
            use = await ApiKeyUse.objects.aget(key=key)
            await ApiKeyUse.objects.filter(key=key).aupdate(last_used_at=key.created_at)
    assert use.last_used_at == key.created_at


# --- Sessions -------------------------------------------------------------------------------------
def signed_in(user: User, *, method: str = "GET", token: bool = False) -> HttpRequest:
    """A request with the cookies of a person who signed in, as the short chain sees it."""
    before = RequestFactory().get("/")
    before.session = import_module(django_settings.SESSION_ENGINE).SessionStore()
    login(before, user, backend="django.contrib.auth.backends.ModelBackend")
    before.session.save()
    csrf = get_token(before)
    request = RequestFactory().generic(method, "/v1/models", b"{}", content_type="application/json")
    request.COOKIES = {
        django_settings.SESSION_COOKIE_NAME: str(before.session.session_key),
        django_settings.CSRF_COOKIE_NAME: before.META["CSRF_COOKIE"],
    }
    if token:
        request.META["HTTP_X_CSRFTOKEN"] = csrf
    return request


async def ask(request: HttpRequest) -> Caller:
    return await authenticate(request.headers, session=partial(from_session, request))


@pytest.mark.parametrize(("method", "token"), [("GET", False), ("POST", True)])
async def test_a_signed_in_person_is_a_caller(method: str, token: bool, run_sync: RunSync) -> None:
    user = await sync_to_async(UserFactory.create)()
    request = await sync_to_async(signed_in)(user, method=method, token=token)
    async with Runtime(run_sync=run_sync):
        caller = await ask(request)
    assert (caller.principal, caller.key_id) == (f"user:{user.pk}", None)
    assert caller.scopes == {"gateway", "rest"}


async def test_a_session_without_its_csrf_token_cant_post(run_sync: RunSync) -> None:
    user = await sync_to_async(UserFactory.create)()
    request = await sync_to_async(signed_in)(user, method="POST")
    async with Runtime(run_sync=run_sync):
        with pytest.raises(Forbidden, match="X-CSRFToken") as raised:
            await ask(request)
    assert raised.value.code == "csrf_failed"


async def test_a_key_in_a_header_goes_before_the_session(run_sync: RunSync) -> None:
    user = await sync_to_async(UserFactory.create)()
    request = await sync_to_async(signed_in)(user)
    request.META["HTTP_X_API_KEY"] = "ozk_nonsense"
    async with Runtime(run_sync=run_sync):
        with pytest.raises(Unauthenticated, match="x-api-key"):
            await ask(request)


@pytest.mark.parametrize("change", ["logout", "deactivate", "nonsense"])
async def test_a_session_that_ended_is_no_caller(change: str, run_sync: RunSync) -> None:
    user = await sync_to_async(UserFactory.create)()
    request = await sync_to_async(signed_in)(user)
    name = django_settings.SESSION_COOKIE_NAME
    if change == "logout":
        store = import_module(django_settings.SESSION_ENGINE).SessionStore
        await sync_to_async(store(request.COOKIES[name]).flush)()
    elif change == "deactivate":
        await User.objects.filter(pk=user.pk).aupdate(is_active=False)
    else:
        request.COOKIES[name] = "../../\x00"
    async with Runtime(run_sync=run_sync):
        with pytest.raises(Unauthenticated):
            await ask(request)


# --- REST -----------------------------------------------------------------------------------------
class Whoami(APIView):
    authentication_classes = [KeyAuthentication]

    def get(self, request: Any) -> Response:
        return Response({"user": request.user.pk, "principal": request.auth.principal})


def rest(**headers: str) -> Response:
    response: Response = Whoami.as_view()(APIRequestFactory().get("/", headers=headers))
    return response


def test_the_same_key_works_on_rest() -> None:
    key, plain = issue()
    for headers in ({"x-api-key": plain}, {"authorization": f"Bearer {plain}"}):
        response = rest(**headers)
        assert response.status_code == 200
        assert response.data == {"user": key.user_id, "principal": f"user:{key.user_id}"}


def test_rest_notes_the_last_use_once_a_minute() -> None:
    key, plain = issue()
    rest(**{"x-api-key": plain})
    first = ApiKeyUse.objects.get(key=key).last_used_at
    rest(**{"x-api-key": plain})
    assert ApiKeyUse.objects.get(key=key).last_used_at == first
    long_ago = first - timedelta(seconds=61)
    ApiKeyUse.objects.update(last_used_at=long_ago)
    rest(**{"x-api-key": plain})
    assert ApiKeyUse.objects.get(key=key).last_used_at > first


def test_a_stopped_key_is_a_401_on_rest() -> None:
    key, plain = issue()
    ApiKey.objects.filter(pk=key.pk).revoke()
    for sent in (plain, "", "ozk_nonsense", "ozk_\x00", "x" * 10_000):
        response = rest(**{"x-api-key": sent})
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"
        assert "ozk_" not in str(response.data)


def test_without_a_key_rest_is_a_401() -> None:
    assert rest().status_code == 401


def test_a_key_without_the_scope_is_a_403_on_rest() -> None:
    _, plain = issue(scopes=["gateway"])
    response = rest(**{"x-api-key": plain})
    assert response.status_code == 403
    assert "`rest`" in str(response.data)
