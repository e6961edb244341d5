"""Foreign JSON Schemas: arguments checked against them, and what a provider is sent of them."""

from collections.abc import Iterator, Mapping
from itertools import islice
from weakref import WeakKeyDictionary

import jsonschema_rs
import orjson
from jsonschema_rs import FancyRegexOptions, ValidationError

from tools.arguments import BadArguments, levels, read
from tools.base import Json, ToolError, ToolSpec
from tools.effort import Effort
from tools.problems import Problem, at, problems
from tools.projection import provider_schema

__all__ = [
    "BadArguments", "BrokenSchema", "Checker", "Problem", "arguments_of", "checker",
    "provider_schema",
]  # fmt: skip

MAX_BYTES = 64 * 1024
MAX_LEVELS = 64
# In units of tools.effort: what is checked at all, and what is told in detail. Each error that a
# validator reports costs it a copy of the arguments (15 GB were seen), so length counts as well.
MAX_WORK = 100_000
MAX_DETAIL = 2_000
MAX_DETAIL_TIMES_LENGTH = 5_000_000
MOST_ERRORS = 1_000
# Memory that compiled patterns may take, together and each at least: 50 short ones took 600 MB.
MAX_PATTERN_BYTES = 2**22
MIN_PATTERN_BYTES = 2**14

Path = tuple[str | int, ...]


class BrokenSchema(ToolError):
    """A schema that no call can be checked against. The message says why."""


_kept: "WeakKeyDictionary[ToolSpec, Checker]" = WeakKeyDictionary()


def checker(spec: ToolSpec) -> "Checker":
    """The tool's compiled schema, kept as long as the spec. Raises BrokenSchema."""
    made = _kept.get(spec)
    if made is None:
        made = _kept[spec] = Checker(spec.schema)
    return made


def arguments_of(text: str, spec: ToolSpec) -> dict[str, Json]:
    """A model's arguments text as what the tool may be called with.

    Empty text is no arguments; null for an optional property that can't be null is left out, at
    any depth (spec 3.4). Raises BadArguments with words for the model, BrokenSchema.
    """
    value = read(text)
    if found := checker(spec).problems(value, length=len(text)):
        raise BadArguments(*found)
    return value


class Checker:
    """A compiled schema. The draft is the one that `$schema` names, else 2020-12.

    Nothing outside the schema is ever fetched, and neither a schema nor arguments can make a check
    long. Raises BrokenSchema.
    """

    def __init__(self, schema: Mapping[str, Json]) -> None:
        whole = dict(schema)
        _refuse_unbounded(whole)
        self._effort = Effort(whole)
        self._validator = _compiled(whole, patterns=self._effort.patterns)
        _refuse_no_object(whole)

    def fits(self, value: Json, *, length: int) -> bool:
        """Whether a value is as the schema says, to the letter; `length` is that of its text.

        One that would take too long to check does not fit.
        """
        return self._is_bearable(value, length) and self._validator.is_valid(value)

    def problems(self, value: dict[str, Json], *, length: int) -> list[Problem]:
        """What is wrong with arguments (none: they fit); `length` is that of their text.

        Nulls that stand for "not given" are taken out of `value`.
        """
        if not self._is_bearable(value, length):
            return [Problem("$", "is too large or too deeply nested for the tool's schema")]
        if self._validator.is_valid(value):
            return []
        if self._effort.exceeds(min(MAX_DETAIL, MAX_DETAIL_TIMES_LENGTH // (length + 1)), value):
            return [Problem("$", "does not fit the tool's schema, and is too large to say where")]
        errors = self._errors(value)
        if dropped := _drop_nulls(errors, value):
            errors = self._errors(value)
            if _restore(dropped, errors, value):
                errors = self._errors(value)
        return problems(errors, value)

    def _is_bearable(self, value: Json, length: int) -> bool:
        return self._effort.is_small(length) or not self._effort.exceeds(MAX_WORK, value)

    def _errors(self, value: Json) -> list[ValidationError]:
        return list(islice(self._validator.iter_errors(value), MOST_ERRORS))


def _compiled(schema: dict[str, Json], *, patterns: int) -> jsonschema_rs.Validator:
    limits = FancyRegexOptions(
        backtrack_limit=10_000,
        size_limit=max(MIN_PATTERN_BYTES, MAX_PATTERN_BYTES // max(1, patterns)),
    )
    try:
        return jsonschema_rs.validator_for(
            schema, retriever=_deny, mask="…", pattern_options=limits
        )
    except ValueError as error:
        raise BrokenSchema(f"its schema is not valid: {_reason(error)}") from None


def _refuse_unbounded(schema: dict[str, Json]) -> None:
    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError):  # what can't be written can't be sent to a model either
        raise BrokenSchema("its schema is not JSON, or far too deep") from None
    if size > MAX_BYTES:
        raise BrokenSchema(f"its schema has {size} bytes; {MAX_BYTES} are the most")
    if levels(schema) > MAX_LEVELS:
        raise BrokenSchema(f"its schema has more than {MAX_LEVELS} levels")


def _refuse_no_object(schema: dict[str, Json]) -> None:
    kind = schema.get("type", "object")
    if "object" not in (kind if isinstance(kind, list) else [kind]):
        raise BrokenSchema("its schema takes no object, and arguments are always one")


def _deny(uri: str) -> Json:
    raise ValueError("only what is inside the schema is followed")


def _reason(error: ValueError) -> str:
    """The first line of a validator's message, which may quote the schema, at a bearable length."""
    return str(getattr(error, "message", error)).partition("\n")[0][:200]


def _drop_nulls(errors: list[ValidationError], value: dict[str, Json]) -> set[Path]:
    """Take out the properties that are null where the schema wants something else."""
    paths = set(_nulls(errors, value))
    for path in paths:
        del at(value, path[:-1])[path[-1]]
    return paths


def _nulls(errors: list[ValidationError], value: Json) -> Iterator[Path]:
    stack = list(errors)
    while stack:
        error = stack.pop()
        path = tuple(error.instance_path)
        if path and isinstance(path[-1], str) and at(value, path) is None:
            yield path
        for branch in getattr(error.kind, "context", ()):
            stack.extend(branch)


def _restore(dropped: set[Path], errors: list[ValidationError], value: dict[str, Json]) -> bool:
    """Put back what is required: it came, and null is what is wrong with it."""
    missing = {
        (*error.instance_path, error.kind.as_dict()["property"])
        for error in errors
        if error.kind.name == "required"
    }
    for path in dropped & missing:
        at(value, path[:-1])[path[-1]] = None
    return bool(dropped & missing)
