"""The OpenAPI 3.1 description of REST, and the page to browse it (spec 5).

Whoever serves another API beside it adds its description by a hook of SPECTACULAR_SETTINGS.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orazaka.api import CONTENT_TYPE

type Json = Any


# --- What is served -------------------------------------------------------------------------------
@cache  # 40 ms, and the same for everyone
def document() -> Json:
    """The description."""
    generator: Any = SchemaGenerator
    return generator().get_schema(request=None, public=True)


class Schema(APIView):
    """`/api/schema`, for anyone: it holds nothing that the sources do not."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(document())


class Docs(SpectacularSwaggerSplitView):
    """`/api/docs`: Swagger's page, all of it from this server, no script inside the HTML."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def handle_exception(self, exc: Exception) -> Response:
        self.request.accepted_renderer = JSONRenderer()
        response: Response = super().handle_exception(exc)
        return response


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "orazaka.auth.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> Json:
        words = "An API key, `ozk_…`. It may be in `x-api-key` or `Otari-Key` instead."
        return {"type": "http", "scheme": "bearer", "description": words}


# --- What is described ----------------------------------------------------------------------------
PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code", "requestId", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "A stable word for programs."},
        "requestId": {"type": "string", "description": "As in X-Request-ID and the logs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {"type": "string", "description": "Such as `scopes[0]`."},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
REASONS = {
    400: "The request is not valid.",
    401: "No API key, or one that does not work.",
    403: "The key or its user may not do this.",
    404: "There is no such thing, or it is someone else's.",
    411: "The body has no Content-Length.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The key's requests of this minute are used up; Retry-After says when to come again.",
}


def with_problems(result: Json, **_: Any) -> Json:
    """A hook: give each operation of REST the errors that it may answer with."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = PROBLEM
    answers = components.setdefault("responses", {})
    for status, words in REASONS.items():
        answers[f"Problem{status}"] = _problem(words)
    for path, operations in result["paths"].items():
        for operation in operations.values():
            for status in _possible(path, operation):
                reference = {"$ref": f"#/components/responses/Problem{status}"}
                operation["responses"].setdefault(str(status), reference)
    return result


def _possible(path: str, operation: Mapping[str, Json]) -> list[int]:
    placed, sent = "{" in path, "requestBody" in operation
    only_when = {404: placed, 411: sent, 413: sent, 415: sent}
    return [status for status in REASONS if only_when.get(status, True)]


def _problem(words: str) -> Json:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": words, "content": {CONTENT_TYPE: {"schema": schema}}}
