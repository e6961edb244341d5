"""A server's tool definitions as `ToolSpec`s: what can't be used is left out and reported."""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from mcp_servers.encoding import encoded
from tools.base import Json, ToolSpec
from tools.schema import BrokenSchema, checker

NAME_MAX = 256  # characters
DESCRIPTION_MAX = 32_768  # characters: it goes to the model every turn
# The limit of a call is the session pool's, which progress extends; this one stands behind it.
LAST_RESORT = 330.0  # seconds
AT_A_TIME = 20  # schemas compiled before others get their turn


class _LeftOut(Exception):
    """Why a tool can't be offered, in words."""


async def read_tools(
    tools: Sequence[Json], *, known: Mapping[bytes, ToolSpec]
) -> tuple[dict[bytes, ToolSpec], list[str], int]:
    """The usable tools by digest of their definition, notes on the others, and bytes in all.

    A tool whose definition is in `known` keeps its object. Of two with one name the first counts.
    """
    specs: dict[bytes, ToolSpec] = {}
    names: set[str] = set()
    notes: list[str] = []
    size = 0
    for number, tool in enumerate(tools):
        if number % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(0)
        definition = encoded(tool)
        digest = sha256(definition).digest()
        try:
            spec = known.get(digest) or _spec(tool)
            if spec.name in names:
                raise _LeftOut("listed twice, the first is used")
        except (_LeftOut, BrokenSchema) as error:
            notes.append(f"{_name(tool)}: left out, {error}")
        else:
            names.add(spec.name)
            specs[digest] = spec
            size += len(definition)
    return specs, notes, size


def _spec(tool: Json) -> ToolSpec:
    if not isinstance(tool, dict):
        raise _LeftOut("it is not an object")
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        raise _LeftOut(f"its name is not 1 to {NAME_MAX} characters")
    if not isinstance(schema, dict):
        raise _LeftOut("its schema is not an object")
    annotations = _object(tool.get("annotations"))
    spec = ToolSpec(
        name=name,
        description=_text(tool.get("description"))[:DESCRIPTION_MAX],
        schema=schema,
        title=_text(tool.get("title")) or _text(annotations.get("title")) or None,
        output_schema=_object(tool.get("outputSchema")) or None,
        annotations=annotations,
        read_only=annotations.get("readOnlyHint") is True,
        timeout=LAST_RESORT,
    )
    checker(spec)  # kept for the calls to come
    return spec


def _name(tool: Json) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name[:64] if isinstance(name, str) and name else "a tool without a name"


def _object(value: Any) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
