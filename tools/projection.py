"""A foreign schema as the OpenAI family of providers takes it: a guide for the model. What comes
back is still checked against the original."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tools.base import Json
from tools.pointer import pointed

# What these providers refuse at the top of a tool's parameters (B04).
REFUSED = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
# What speaks only of the properties beside it, and would now shut out those of the branches.
NARROWING = ("additionalProperties", "unevaluatedProperties")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
ONES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
INTO_BRANCH = re.compile(r'"\$ref": "#/(anyOf|oneOf|allOf)/(\d+)')
DEEPEST = 64
# A schema that needs more to be gathered is a trap, or so rich that a summary of it says nothing.
MOST_PARTS = 200
MOST_BYTES = 128 * 1024


class TooMuch(Exception):
    """A schema can't be gathered into an object of a bearable size."""


class Shape(NamedTuple):
    """The properties of an object with all that must hold for each, and those it must have."""

    properties: dict[str, list[Json]]
    required: dict[str, None]


def provider_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema whole, definitions included, but for what is known to be refused.

    No `$schema`; an object has `properties` (B01) and an array `items`, if empty ones; what stands
    at the top in `anyOf`, `oneOf`, `allOf` or behind a `$ref` is gathered into one object whose
    description says what goes together (B04). The input is not changed, but parts may be shared.
    """
    made: dict[str, Json] = _repaired(dict(schema), 0)
    made.pop("$schema", None)
    if any(word in made for word in REFUSED):
        made = _gathered(_with_branches_kept(made))
    return {**made, "type": "object", "properties": made.get("properties", {})}


def _repaired(node: Json, depth: int) -> Json:
    if not isinstance(node, dict) or depth > DEEPEST:
        return node
    made = {word: _repaired_part(word, part, depth + 1) for word, part in node.items()}
    kind = made.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "object" in kinds:
        made.setdefault("properties", {})
    if isinstance(made.get("items"), list):  # a tuple as draft 7 says it
        rest = made.pop("additionalItems", None)
        made |= {"prefixItems": made["items"], "items": rest if isinstance(rest, dict) else {}}
    if "array" in kinds:
        made.setdefault("items", {})
    return made


def _repaired_part(word: str, part: Json, depth: int) -> Json:
    if word in MAPS and isinstance(part, dict):
        return {name: _repaired_member(one, depth) for name, one in part.items()}
    if (word in LISTS or word == "items") and isinstance(part, list):
        return [_repaired_member(one, depth) for one in part]
    return _repaired(part, depth) if word in ONES else part


def _repaired_member(node: Json, depth: int) -> Json:
    return {} if node is True else _repaired(node, depth)  # `true` is refused where `{}` is taken


def _with_branches_kept(schema: dict[str, Json]) -> dict[str, Json]:
    """References into branches that will be gathered away lead to copies of them in `$defs`."""
    text = json.dumps(schema)
    branches = sorted({match.groups() for match in INTO_BRANCH.finditer(text)})
    if not branches:
        return schema
    made: dict[str, Json] = json.loads(INTO_BRANCH.sub(r'"$ref": "#/$defs/\1.\2', text))
    copies = {f"{word}.{at}": made[word][int(at)] for word, at in branches if _has(made, word, at)}
    return {**made, "$defs": {**made.get("$defs", {}), **copies}}


def _has(schema: dict[str, Json], word: str, at: str) -> bool:
    return len(_list(schema, word)) > int(at)


def _gathered(schema: dict[str, Json]) -> dict[str, Json]:
    dropped = (*REFUSED, *NARROWING, "properties", "required")
    made = {word: part for word, part in schema.items() if word not in dropped}
    try:
        properties, required = Gathering(schema).shape(schema)
        made["properties"] = {name: _all(parts) for name, parts in properties.items()}
        if len(json.dumps(made)) > MOST_BYTES:
            raise TooMuch
    except TooMuch:
        return {**made, "properties": {}}
    if required:
        made["required"] = list(required)
    if words := "; ".join(_alternatives(schema)):
        made["description"] = f"{made.get('description', '')} {words}.".strip()
    return made


class Gathering:
    """One schema's branches and references, followed a limited number of times."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._left = MOST_PARTS

    def shape(self, node: Json) -> Shape:
        """What an object must be like to fit a node. Raises TooMuch."""
        self._left -= 1
        if self._left < 0:
            raise TooMuch
        if not isinstance(node, dict):
            return Shape({}, {})
        properties = node.get("properties")
        known = properties if isinstance(properties, dict) else {}
        required = (name for name in _list(node, "required") if isinstance(name, str))
        found = Shape({name: [part] for name, part in known.items()}, dict.fromkeys(required))
        for part in self._also(node):
            _join(found, self.shape(part))
        for word in ("anyOf", "oneOf"):
            if branches := _list(node, word):
                _join(found, _either([self.shape(branch) for branch in branches]))
        return found

    def _also(self, node: dict[str, Json]) -> Iterator[Json]:
        yield from _list(node, "allOf")
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            yield pointed(self._root, reference[1:])


def _list(node: dict[str, Json], word: str) -> list[Json]:
    part = node.get(word)  # a reference may lead anywhere, so no type is sure
    return part if isinstance(part, list) else []


def _join(found: Shape, other: Shape) -> None:
    for name, parts in other.properties.items():
        known = found.properties.setdefault(name, [])
        known.extend(part for part in parts if part not in known)
    found.required.update(other.required)


def _either(shapes: list[Shape]) -> Shape:
    properties: dict[str, list[Json]] = {}
    for shape in shapes:
        for name, parts in shape.properties.items():
            known = properties.setdefault(name, [])
            if (whole := _all(parts)) not in known:
                known.append(whole)
    required = [name for name in shapes[0].required if all(name in s.required for s in shapes)]
    return Shape(
        {name: [_any(parts)] for name, parts in properties.items()}, dict.fromkeys(required)
    )


def _all(parts: list[Json]) -> Json:
    told = [part for part in parts if part != {}]
    return {"allOf": told} if len(told) > 1 else told[0] if told else {}


def _any(parts: list[Json]) -> Json:
    if len(parts) == 1 or {} in parts:
        return parts[0] if len(parts) == 1 else {}
    if all(isinstance(part, dict) and "const" in part for part in parts):
        return {"enum": [part["const"] for part in parts]}
    return {"anyOf": parts}


def _alternatives(schema: dict[str, Json]) -> Iterator[str]:
    """What the branches demand, in words; nothing where they demand the same."""
    for word, lead in (("anyOf", "Give at least one of"), ("oneOf", "Give exactly one of")):
        branches = [b for b in schema.get(word, ()) if isinstance(b, dict)]
        sets = [" and ".join(branch.get("required", ())) for branch in branches]
        if len(set(sets)) > 1:
            yield f"{lead}: {', or '.join(one or 'nothing more' for one in sets)}"
