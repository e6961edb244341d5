"""REST about oneself: `/api/v1/keys` (spec 3.1)."""

from django.contrib.auth.models import User
from django.http import Http404
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orazaka.caller import Caller
from orazaka.grants import ExceedsKey, issue
from orazaka.keys import as_caller
from orazaka.models import ApiKey
from orazaka.serializers import KeySerializer, KeyWishSerializer, MadeKeySerializer


def caller_of(request: Request) -> Caller | None:
    """The caller that a key made; None for a person who is signed in."""
    return request.auth if isinstance(request.auth, Caller) else None


def user_of(request: Request) -> User:
    """The user of the key or session; the permissions let nobody else through."""
    assert isinstance(request.user, User)
    return request.user


def principal_of(request: Request) -> str:
    """Whom the user's turns and other belongings are kept under."""
    return as_caller(user_of(request), ()).principal


class Keys(APIView):
    """One's own API keys."""

    @extend_schema(
        operation_id="listKeys",
        description="Your keys, revoked and expired ones too, the newest first.",
        responses=KeySerializer(many=True),
        tags=["keys"],
    )
    def get(self, request: Request) -> Response:
        keys = ApiKey.objects.owned_by(user_of(request)).select_related("use")
        return Response(KeySerializer(keys, many=True).data)

    @extend_schema(
        operation_id="makeKey",
        description="Make a key. It is shown in this answer only; a key can't make one that may do "
        "more than itself.",
        request=KeyWishSerializer,
        responses={201: MadeKeySerializer},
        tags=["keys"],
    )
    def post(self, request: Request) -> Response:
        wish = KeyWishSerializer(data=request.data)
        wish.is_valid(raise_exception=True)
        try:
            key, plain = issue(user_of(request), wish.validated_data, maker=_maker(request))
        except ExceedsKey as error:
            fields = wish.fields.items()
            error.param = next(name for name, field in fields if field.source == error.param)
            raise
        return Response({**KeySerializer(key).data, "key": plain}, status=201)


class Key(APIView):
    """One of one's own API keys."""

    @extend_schema(
        operation_id="revokeKey",
        description="Revoke a key for good. It stops working within a second.",
        responses={204: None},
        tags=["keys"],
    )
    def delete(self, request: Request, id: int) -> Response:
        keys = ApiKey.objects.owned_by(user_of(request)).filter(pk=id)
        if not keys.exists():
            raise Http404
        keys.revoke()
        return Response(status=204)


def _maker(request: Request) -> ApiKey | None:
    caller = caller_of(request)
    return ApiKey.objects.get(pk=caller.key_id or 0) if caller else None


urlpatterns = [
    path("keys", Keys.as_view()),
    path("keys/<int:id>", Key.as_view()),
]
