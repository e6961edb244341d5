"""What a tool is, to everyone: values and one protocol, plain Python.

Wires turn them into a provider's JSON, sources run them, the toolbox stands between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orazaka.caller import Caller

Json = Any  # a JSON edge: whatever a provider, a server or a client sent


class ToolError(Exception):
    """A tool's failure, in words for the model: it becomes an error result, the turn goes on."""


class ToolLate(ToolError):
    """The tool did not answer within its limit; the words say whether it may have run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class ToolSpec:
    """A tool as its source knows it. Compared by identity: one object per listing, so that what is
    made from it (a compiled schema, a wire's definition) can be kept beside it.

    `name` is the source's own name, not the one shown to the model. `schema` is JSON Schema of the
    arguments, whole. `timeout` is seconds for one call (None = the toolbox's default). `scope` and
    `config_id` are opaque to all but the cache: whose results may be shared, and which row of
    configuration governs it.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Json] = field(default_factory=dict)
    title: str | None = None
    output_schema: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] = field(default_factory=dict)
    read_only: bool = False
    timeout: float | None = None
    scope: str = ""
    config_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request: `id` as the provider gave it, `name` as shown, `arguments` as raw text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a result: `media_type` such as image/png, `data` base64 text."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: `text` for the model, images for those that see, `is_error` if it failed.

    `content` and `structured` are the source's own JSON for REST callers (spec 1.6). `cached` says
    that no tool ran.
    """

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    content: Json = None
    structured: Json = None
    cached: bool = False


class Source(Protocol):
    """Where tools come from. Wrappers (filtered, cached, sandboxed) are sources too."""

    async def list(self) -> Sequence[ToolSpec]:
        """The tools, in the source's order. Raises OrazakaError if they can't be had."""
        ...

    async def call(
        self, spec: ToolSpec, arguments: Mapping[str, Json], *, caller: Caller
    ) -> ToolResult:
        """Run one of the tools that `list` gave. `arguments` fit its schema.

        Raises ToolError with words for the model; cancellation stops the tool.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one server (or the registry) brings to one turn.

    `origin` is where it stands in the order of names and in records: caller, inline, resolved,
    registered, platform or user. `label` is what prefixes a name on a clash. `hint` and `context`
    go into the block before the conversation. `reason` says in the record why it was offered.
    """

    source: Source
    specs: Sequence[ToolSpec]
    origin: str
    label: str
    hint: str = ""
    context: str = ""
    reason: str = ""
