"""REST about turns: `/api/v1/turns` (spec 3.7)."""

from uuid import UUID

from django.db.models import Prefetch
from django.http import Http404
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.models import Turn, TurnRows, TurnStep
from gateway.serializers import TurnsAskedSerializer, TurnSerializer, WholeTurnSerializer
from orazaka.pages import Pages
from orazaka.rest import principal_of, user_of


class TurnPages(Pages):
    ordering = ("-started_at", "-id")


class Turns(GenericAPIView[Turn]):
    """What turns left behind."""

    pagination_class = TurnPages
    serializer_class = TurnSerializer

    @extend_schema(
        operation_id="listTurns",
        description="Your turns, the newest first; for staff with the permission everyone's.",
        parameters=[TurnsAskedSerializer],
        responses=TurnSerializer(many=True),
        tags=["turns"],
    )
    def get(self, request: Request) -> Response:
        asked = TurnsAskedSerializer(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        page = self.paginate_queryset(visible(request).filter(**asked.validated_data))
        return self.get_paginated_response(TurnSerializer(page, many=True).data)


class WholeTurn(GenericAPIView[Turn]):
    """One turn."""

    serializer_class = WholeTurnSerializer

    @extend_schema(
        operation_id="getTurn",
        description="A turn with the tools that it was offered and its steps.",
        responses=WholeTurnSerializer,
        tags=["turns"],
    )
    def get(self, request: Request, id: UUID) -> Response:
        steps = Prefetch("steps", TurnStep.objects.order_by("position"))
        turn = visible(request).filter(pk=id).prefetch_related(steps).first()
        if turn is None:
            raise Http404
        return Response(WholeTurnSerializer(turn).data)


def visible(request: Request) -> TurnRows:
    """The turns that the request's user may see."""
    user = user_of(request)
    turns = Turn.objects.select_related("user")
    if user.is_staff and user.has_perm("gateway.view_turn"):
        return turns
    return turns.of(principal_of(request))


urlpatterns = [
    path("turns", Turns.as_view()),
    path("turns/<uuid:id>", WholeTurn.as_view()),
]
