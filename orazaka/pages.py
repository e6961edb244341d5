"""Pages of REST's long lists: `{count, next, previous, results}` (spec 5).

`next` and `previous` are links with a cursor, so a page far down costs what the first one does, and
rows that come meanwhile shift nothing.
"""

from typing import Any

from django.core.signing import BadSignature, Signer
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

MOST_COUNTED = 100_000  # 15 ms on an index; a million would be 70


class Pages(CursorPagination):
    """Subclasses say the `ordering`: a field that is nearly unique, then one that is."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "pageSize"
    page_size_query_description = "How many a page has, 1 to 200."
    cursor_query_description = "From the links `next` and `previous`."

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        """The page's rows. Raises ValidationError for a cursor or size that is none."""
        page: list[Any] | None = super().paginate_queryset(queryset, request, view)
        self.count = queryset.order_by()[:MOST_COUNTED].count()
        return page or []

    def encode_cursor(self, cursor: Any) -> str:
        """Signed: what comes back goes into a query as it is."""
        signed = cursor.position and self._signer().sign(cursor.position)
        return super().encode_cursor(cursor._replace(position=signed))

    def decode_cursor(self, request: Request) -> Any:
        try:
            cursor: Any = super().decode_cursor(request)
            if cursor and cursor.position:
                cursor = cursor._replace(position=self._signer().unsign(cursor.position))
        except (NotFound, BadSignature):
            words = "must be one that a page's links have"
            raise ValidationError({self.cursor_query_param: [words]}) from None
        return cursor

    def _signer(self) -> Signer:
        return Signer(salt="orazaka.pages")

    def get_page_size(self, request: Request) -> int:
        text = request.query_params.get(self.page_size_query_param, str(self.page_size))
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= self.max_page_size):
            words = f"must be a whole number from 1 to {self.max_page_size}"
            raise ValidationError({self.page_size_query_param: [words]})
        return int(text)

    def get_paginated_response(self, data: Any) -> Response:
        links = {"next": self.get_next_link(), "previous": self.get_previous_link()}
        return Response({"count": self.count, **links, "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        count = {"type": "integer", "description": f"Counted up to {MOST_COUNTED}."}
        return {
            "type": "object",
            "required": ["count", "next", "previous", "results"],
            "properties": {"count": count, "next": link, "previous": link, "results": schema},
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        cursor, size = super().get_schema_operation_parameters(view)
        bounds = {"minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        return [cursor, {**size, "schema": {"type": "integer", **bounds}}]
