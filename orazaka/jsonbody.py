"""REST speaks JSON: bodies are bounded, UTF-8, and no deeper than anyone needs (spec 5)."""

from collections.abc import Iterable, Mapping
from typing import IO, Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from orazaka.errors import OrazakaError

MAX_DEPTH = 100


class BodyTooLarge(OrazakaError):
    """The body is over ORAZAKA_MAX_BODY_BYTES."""

    status = 413
    code = "body_too_large"

    def __init__(self) -> None:
        super().__init__(f"the body is larger than {settings.ORAZAKA_MAX_BODY_BYTES} bytes")


class JSONParser(BaseParser):
    """In the place of DRF's own, which reads without end and fails on what is nested deeply."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The value in the body. Raises BodyTooLarge, ParseError."""
        raw = stream.read(settings.ORAZAKA_MAX_BODY_BYTES + 1)
        if len(raw) > settings.ORAZAKA_MAX_BODY_BYTES:
            raise BodyTooLarge
        try:
            value = orjson.loads(raw)
        except ValueError:
            raise ParseError("the body is not valid JSON in UTF-8") from None
        if is_deeper(value, MAX_DEPTH):
            raise ParseError(f"the body is nested deeper than {MAX_DEPTH} levels")
        return value


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in more than so many levels; without recursion."""
    level = [value]
    for _ in range(levels + 1):
        containers = [node for node in level if isinstance(node, dict | list)]
        if not containers:
            return False
        level = [
            inner
            for node in containers
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
    return True


class OneForm(BaseContentNegotiation):
    """One form of answer, whatever is in `Accept`; RFC 9110 (12.5.1) allows that."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """None is a 415."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type
