"""Schemas of tools that tests share."""

from typing import Any

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


def doubling(reference: str = "#/$defs/a{}", **each: str) -> dict[str, Any]:
    """Forty definitions, each twice the next: 2^40 visits for who follows them all."""
    defs: dict[str, Any] = {
        f"a{at}": {"anyOf": [{"$ref": reference.format(at + 1)}] * 2}
        | {word: value.format(at) for word, value in each.items()}
        for at in range(40)
    }
    return defs | {"a40": {"type": "string"} | {w: v.format(40) for w, v in each.items()}}


WEATHER = {
    **properties(
        city={"type": "string", "minLength": 2},
        unit={"enum": ["celsius", "fahrenheit"]},
        days={"type": "integer", "minimum": 1, "maximum": 14},
        tags={"type": "array", "items": {"type": "string"}, "maxItems": 2},
        odd={"type": ["string", "boolean"]},
        code={"type": "string", "pattern": "^[A-Z]{3}$"},
        where={"anyOf": [{"$ref": "#/$defs/place"}, {"type": "string"}]},
        fixed={"const": 7},
    ),
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {**properties(lat={"type": "number"}), "required": ["lat"]}},
}
