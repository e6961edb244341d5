"""Structured results against the schema that their tool declares."""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from mcp_servers.encoding import encoded
from tools.base import Json, ToolSpec
from tools.schema import BrokenSchema, Checker

_checkers: "WeakKeyDictionary[ToolSpec, Checker | None]" = WeakKeyDictionary()

MISSING = "[note: the tool declares structured output but sent none]"
MISFIT = "[note: the structured output does not fit the schema that the tool declares]"


def output_note(spec: ToolSpec, raw: Mapping[str, Json]) -> str:
    """What to tell the model of a result that breaks its tool's promise; empty if it keeps it.

    The result is passed on all the same, and an error is never checked (spec 2.2).
    """
    checker = None if raw.get("isError") is True else _checker(spec)
    if checker is None:
        return ""
    structured = raw.get("structuredContent")
    if structured is None:
        return MISSING
    fits = checker.fits(structured, length=len(encoded(structured)))
    return "" if fits else MISFIT


def _checker(spec: ToolSpec) -> Checker | None:
    """None when there is no schema, or none that can be used: then there is no promise."""
    if spec.output_schema is None:
        return None
    if spec not in _checkers:
        try:
            _checkers[spec] = Checker(spec.output_schema)
        except BrokenSchema:
            _checkers[spec] = None
    return _checkers[spec]
