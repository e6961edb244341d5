"""What does not fit a schema, in words that a model or a client can act on.

Values are never repeated: they may be huge or private, and who sent them has them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jsonschema_rs import ValidationError

from tools.base import Json

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_OPTIONS = 12
LONGEST = 80  # characters of a name, an option or a pattern

WORDS = {
    "additionalItems": "has more items than it may",
    "contains": "has no item of the kind that it must have",
    "exclusiveMaximum": "must be less than {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "format": "must be a valid {format}",
    "maxItems": "must have at most {limit} items",
    "maxLength": "must have at most {limit} characters",
    "maxProperties": "must have at most {limit} properties",
    "maximum": "must be at most {limit}",
    "minItems": "must have at least {limit} items",
    "minLength": "must have at least {limit} characters",
    "minProperties": "must have at least {limit} properties",
    "minimum": "must be at least {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "not": "must not be of this form",
    "propertyNames": "has a property whose name is not allowed",
    "unevaluatedItems": "has more items than it may",
    "uniqueItems": "must not repeat an item",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` is a JSON path (`$.days[0]`), `message` what is wrong there."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def problems(errors: Iterable[ValidationError], value: Json) -> list[Problem]:
    """A validator's errors in words, each once; `value` is what was checked."""
    return list(dict.fromkeys(p for error in errors for p in _problems(error, value)))


def at(value: Json, path: Iterable[str | int]) -> Json:
    """What stands at a path of keys and positions."""
    for step in path:
        value = value[step]
    return value


def cut(text: str) -> str:
    """A name or the like, at a length that can be shown."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _problems(error: ValidationError, whole: Json) -> Iterator[Problem]:
    kind, path = error.kind.name, list(error.instance_path)
    facts = {} if kind in ("anyOf", "oneOf") else error.kind.as_dict()
    if kind == "required":
        yield Problem(_json_path([*path, facts["property"]]), "is required")
    elif kind in ("additionalProperties", "unevaluatedProperties"):
        for name in facts["unexpected"]:
            yield Problem(_json_path([*path, name]), "is not a known property")
    else:
        yield Problem(_json_path(path), _message(kind, facts, error, whole))


def _message(kind: str, facts: dict[str, Any], error: ValidationError, whole: Json) -> str:
    value = at(whole, error.instance_path)
    if kind == "type":
        return f"must be {' or '.join(facts['types'])}, not {_type(value)}"
    if kind == "enum":
        return f"must be one of {_options(facts['options'])}"
    if kind == "const":
        return f"must be {_shown(facts['expected_value'])}"
    if kind == "pattern":
        return f"must match the pattern {cut(facts['pattern'])}"
    if kind == "falseSchema":
        return "takes no properties" if isinstance(value, dict) else "must not be given"
    if kind in ("anyOf", "oneOf"):
        return _alternatives(error, whole)
    return WORDS.get(kind, f"does not fit the schema ({cut(kind)})").format(**facts)


def _alternatives(error: ValidationError, whole: Json) -> str:
    """What keeps the nearest alternative from fitting says more than that none fits."""
    context: list[list[ValidationError]] = error.kind.context  # type: ignore[attr-defined]
    if not all(context):
        return "fits more than one of the alternatives; it must fit exactly one"
    depth = len(error.instance_path)
    types = [branch[0].kind.as_dict()["types"] for branch in context if _other_type(branch, depth)]
    if len(types) == len(context):
        wanted = dict.fromkeys(name for names in types for name in names)
        return f"must be {' or '.join(wanted)}, not {_type(at(whole, error.instance_path))}"
    return f"fits none of the alternatives; nearest: {next(_problems(_nearest(error), whole))}"


def _nearest(error: ValidationError) -> ValidationError:
    """What is wrong in the alternative that has least wrong, through alternatives within it."""
    while (context := getattr(error.kind, "context", None)) and all(context):
        depth = len(error.instance_path)
        branch: list[ValidationError] = min(context, key=partial(_distance, depth=depth))
        if _other_type(branch, depth):
            break
        error = branch[0]
    return error


def _distance(branch: list[ValidationError], *, depth: int) -> tuple[bool, int]:
    return _other_type(branch, depth), len(branch)


def _other_type(branch: list[ValidationError], depth: int) -> bool:
    return branch[0].kind.name == "type" and len(branch[0].instance_path) == depth


def _json_path(path: Iterable[str | int]) -> str:
    return "$" + "".join(map(_step, path))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{cut(step)}" if PLAIN.fullmatch(step) else f"[{_shown(step)}]"


def _options(options: list[Json]) -> str:
    more = len(options) - MOST_OPTIONS
    listed = ", ".join(map(_shown, options[:MOST_OPTIONS]))
    return f"{listed} and {more} others" if more > 0 else listed


def _shown(value: Json) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str))


def _type(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", type(None): "null", int: "integer"}
    return names.get(type(value), "number")
