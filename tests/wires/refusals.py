"""How a strict provider refuses, and what every provider checks alike: names and schemas."""

import re
from collections.abc import Iterator
from typing import Any

Json = Any
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# OpenAI: "schema must have type 'object' and not have … at the top level"; others mind `$schema`.
NOT_AT_THE_TOP = ("$schema", "anyOf", "oneOf", "allOf", "not", "enum")


class Refused(Exception):
    """The provider's answer is an error: `message`, the path of what is wrong, a status."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        *,
        status: int = 400,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.param = message, param
        self.status, self.retry_after = status, retry_after


def demand(fulfilled: object, message: str, param: str | None = None, *, status: int = 400) -> None:
    """Raises Refused unless this holds."""
    if not fulfilled:
        raise Refused(message, param, status=status)


def check_name(name: Json, at: str) -> str:
    """A tool's name, if it is a legal one."""
    demand(isinstance(name, str) and NAME.fullmatch(name), f"must match {NAME.pattern}", at)
    return str(name)


def check_schema(schema: Json, at: str) -> None:
    """Raises Refused for a schema of arguments that OpenAI-like providers don't take."""
    fits = isinstance(schema, dict) and schema.get("type") == "object"
    demand(fits, "schema must be a JSON Schema of 'type: \"object\"'", at)
    demand("properties" in schema, "object schema missing properties", at)
    for word in NOT_AT_THE_TOP:
        demand(word not in schema, f"schema must not have '{word}' at the top level", at)
    for part in _parts(schema):
        whole = part.get("type") != "array" or "items" in part or "prefixItems" in part
        demand(whole, "array schema missing items", at)
        reference = part.get("$ref", "#")
        demand(_resolves(reference, schema), f"{reference} points nowhere", at)


def _parts(schema: Json) -> Iterator[dict[str, Json]]:
    """A schema and all within it; the values of `properties` and `$defs` are schemas, too."""
    if not isinstance(schema, dict):
        return
    yield schema
    for word, value in schema.items():
        if word in ("properties", "$defs", "definitions", "patternProperties"):
            inner = list(value.values())
        elif word in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"):
            inner = value if isinstance(value, list) else [value]
        else:
            inner = []
        for part in inner:
            yield from _parts(part)


def _resolves(reference: str, schema: Json) -> bool:
    """Whether a `$ref` within the document leads anywhere; any other is not followed."""
    if not reference.startswith("#"):
        return False
    for step in reference.split("/")[1:]:
        if not isinstance(schema, dict) or step not in schema:
            return False
        schema = schema[step]
    return True
