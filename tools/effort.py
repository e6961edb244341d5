"""How much work a check can be, counted before it is done.

A schema of a few kilobytes can make a validator visit one value 2^n times (`a0` is all of `a1` and
`a1`, which is all of `a2` and `a2`, …), and a validator in native code can't be interrupted.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from tools.base import Json
from tools.pointer import pointed

Pairs = Iterator[tuple[Json, Json]]

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS = ("$anchor", "$dynamicAnchor")
# Work is counted in units of one keyword on one value; a pattern may backtrack (up to 0.3 ms).
PATTERN = 50
# Below this product of schema and values, a schema without references can't be much work.
SMALL = 1_000_000


class Effort:
    """Counts for one schema, a tree of plain dicts and lists. `patterns` is how many it has."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = dict(schema)
        self._nodes = nodes = list(_dicts(self._schema))
        # Where a reference may start from. Its base is not worked out: with several embedded
        # resources all that it could mean are counted, so that none can hide.
        self._resources = [n for n in nodes if n is self._schema or isinstance(_id(n), str)]
        self._refers = any(key in node for node in nodes for key in REFERENCES)
        self._size = len(nodes) + sum(map(_weight, nodes))
        self.patterns = sum(map(_patterns_in, nodes))
        self._targets: dict[str, list[Json]] = {}

    def is_small(self, values: int) -> bool:
        """Whether checking a document of so many values is cheap without counting."""
        return not self._refers and self._size * values <= SMALL

    def exceeds(self, most: int, document: Json) -> bool:
        """Whether checking a document may take more than so many units of work."""
        done, stack = _weight(self._schema), [(self._schema, document)]
        while stack:
            for part, value in self._below(*stack.pop()):
                done += 1
                if isinstance(part, dict):
                    done += _weight(part)
                    stack.append((part, value))
                if done > most:
                    return True
        return False

    def _below(self, node: dict[str, Json], value: Json) -> Pairs:
        for keyword, part in node.items():
            if keyword in REFERENCES:
                for target in self._meant(part):
                    yield target, value
            elif apply := APPLY.get(keyword):
                yield from apply(part, value)

    def _meant(self, reference: Json) -> list[Json]:
        if not isinstance(reference, str):
            return []
        if reference not in self._targets:
            self._targets[reference] = list(self._resolve(reference))
        return self._targets[reference]

    def _resolve(self, reference: str) -> Iterator[Json]:
        base, _, fragment = reference.partition("#")
        if fragment and not unquote(fragment).startswith("/"):
            yield from (node for node in self._nodes if _is_anchor(node, unquote(fragment)))
            return
        named = [r for r in self._resources if base and _last(str(_id(r))) == _last(base)]
        for resource in named or self._resources:
            target = pointed(resource, fragment)
            if target is not None:
                yield target


def _dicts(schema: Json) -> Iterator[dict[str, Json]]:
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _id(node: dict[str, Json]) -> Json:
    return node.get("$id", node.get("id"))  # draft 4 says `id`


def _is_anchor(node: dict[str, Json], name: str) -> bool:
    return name in map(node.get, ANCHORS) or _id(node) == f"#{name}"  # so did draft 7


def _weight(node: dict[str, Json]) -> int:
    inside = sum(len(part) for part in node.values() if isinstance(part, list | dict))
    return inside + PATTERN * ("pattern" in node)


def _patterns_in(node: dict[str, Json]) -> int:
    named = node.get("patternProperties")
    return isinstance(node.get("pattern"), str) + (len(named) if isinstance(named, dict) else 0)


def _last(uri: str) -> str:
    return uri.rstrip("#").rsplit("/", 1)[-1]


def _same(part: Json, value: Json) -> Pairs:
    yield part, value


def _same_each(part: Json, value: Json) -> Pairs:
    for inner in _members(part):
        yield inner, value


def _property(part: Json, value: Json) -> Pairs:
    if isinstance(value, dict) and isinstance(part, dict):
        for name in part.keys() & value.keys():
            yield part[name], value[name]


def _all_members(part: Json, value: Json) -> Pairs:
    if isinstance(part, list):  # `items` of draft 7 and older
        yield from _by_place(part, value)
        return
    for inner in _members(value):
        yield part, inner


def _patterns(part: Json, value: Json) -> Pairs:
    for inner in _members(value):
        yield from _same_each(part, inner)


def _by_place(part: Json, value: Json) -> Pairs:
    if isinstance(part, list) and isinstance(value, list):
        yield from zip(part, value, strict=False)


def _members(part: Json) -> Iterator[Json]:
    return iter(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())


APPLY: dict[str, Callable[[Any, Any], Pairs]] = {
    **dict.fromkeys(("not", "if", "then", "else"), _same),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"), _same_each),
    **dict.fromkeys(
        ("items", "additionalItems", "unevaluatedItems", "contains", "propertyNames"), _all_members
    ),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _all_members),
    "properties": _property,
    "patternProperties": _patterns,
    "prefixItems": _by_place,
}
