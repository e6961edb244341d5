"""What a request may ask of the gateway, and what of a body must be sound before anything is sent.

The gateway's own members are taken out of the body (spec 3.2); of the rest only the shape is
checked that the gateway itself relies on, everything else is the provider's to judge.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from orazaka.errors import OrazakaError

Json = Any

MAX_DEPTH = 100
MAX_VALUES = 1_000_000  # counted by what stands between them, commas of texts included
MAX_ROUNDS, DEFAULT_ROUNDS = 25, 10


class BadBody(OrazakaError):
    """The body can't be read as JSON, or is hostile in its form."""

    status = 400
    code = "invalid_json"


class BadField(OrazakaError):
    """A member of the body has the wrong shape; `param` is its path."""

    status = 422
    code = "invalid_field"


class Conflict(OrazakaError):
    """Members that are each sound but can't go together, or name what is not served."""

    status = 400
    code = "invalid_request"


def _none_if_empty(value: Json) -> Json:
    return None if value == "" else value


class ToolConfiguration(BaseModel):
    """Anthropic's older way to limit a server's tools."""

    model_config = ConfigDict(strict=True)
    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class InlineServer(BaseModel):
    """One entry of `mcp_servers`; unknown members are ignored."""

    model_config = ConfigDict(strict=True)
    name: Annotated[str, Field(min_length=1, max_length=128)]
    url: Annotated[str, Field(min_length=1, max_length=2048)]
    authorization_token: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    purpose_hint: Annotated[str, Field(max_length=2000)] | None = None
    allowed_tools: list[str] | None = None
    tool_configuration: ToolConfiguration | None = None

    def allowed(self) -> frozenset[str] | None:
        """The tools that may be used: None = all. Both ways of saying it must agree to a tool."""
        limits = self.tool_configuration
        if limits and limits.enabled is False:
            return frozenset()
        lists = [self.allowed_tools, limits.allowed_tools if limits else None]
        sets = [frozenset(names) for names in lists if names is not None]
        return frozenset.intersection(*sets) if sets else None


class Fields(BaseModel):
    """The gateway's own members of a request, the same on all three APIs."""

    model_config = ConfigDict(strict=True)
    mcp_servers: Annotated[list[InlineServer], Field(max_length=50)] | None = None
    mcp_server_ids: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(max_length=50)] | (
        None
    ) = None
    max_tool_iterations: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] | None = None
    orazaka_tools: Literal["auto", "none"] | list[str] | None = None
    orazaka_servers: Literal["auto", "none"] | list[Annotated[UUID, Field(strict=False)]] | None = (
        None
    )
    orazaka_commit: Literal["manual", "auto"] | None = None
    orazaka_trace: bool | None = None
    tools_header: Annotated[str, Field(max_length=4000)] | None = None

    @property
    def rounds(self) -> int:
        """The most model calls of the turn."""
        return self.max_tool_iterations or DEFAULT_ROUNDS


NONE = Fields()


def parse(raw: bytes) -> dict[str, Json]:
    """The body as an object. Raises BadBody: not JSON, not UTF-8, too deep or too many values, a
    member twice."""
    # An object a value: some bytes of JSON become some hundred of memory, and time on the loop.
    if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise BadBody(f"the body may hold at most {MAX_VALUES:,} values")
    try:
        body = orjson.loads(raw)
    except ValueError as error:
        raise BadBody("the body is not valid JSON in UTF-8") from error
    if not isinstance(body, dict):
        raise BadBody("the body must be a JSON object")
    texts, depth = _measure(body)
    if depth > MAX_DEPTH:
        raise BadBody(f"the body is nested deeper than {MAX_DEPTH} levels")
    # Two readers of one body must not see two different values: a repeated member is refused. It is
    # one text more than the objects have that were read; each is written between two quotes.
    if raw.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') != 2 * texts:
        raise BadBody("the body has an object with the same member twice")
    return body


def _measure(body: Json) -> tuple[int, int]:
    """How many texts are in it, names of members included, and how deep it is; level by level, no
    recursion. Stops below MAX_DEPTH, so that its time is bounded by what it refuses."""
    texts, depth, level = 0, 0, [body]
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner: list[Json] = []
        for node in level:
            if isinstance(node, dict):
                texts += len(node)
                node = node.values()
            for value in node:
                if isinstance(value, str):
                    texts += 1
                elif isinstance(value, (dict, list)):
                    inner.append(value)
        level = inner
    return texts, depth


def take(body: dict[str, Json]) -> Fields:
    """Take the gateway's members out of the body. Raises BadField, which repeats no value."""
    own = {name: body.pop(name) for name in Fields.model_fields if name in body}
    if not own:
        return NONE
    try:
        return Fields.model_validate(own)
    except ValidationError as error:
        raise _bad_field(error) from None  # the original repeats what was sent


def _bad_field(error: ValidationError) -> BadField:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first = errors[0]
    if first["type"] == "literal_error":  # of a word or a list; what fits best got deepest
        first = max((e for e in errors if e["loc"][0] == first["loc"][0]), key=_depth)
    # A union's path names the branch that was tried; clients know only their own members.
    path = [p for p in first["loc"] if isinstance(p, int) or re.fullmatch(r"[a-z_]+", p)]
    where = str(path[0]) + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path[1:])
    # What follows a comma may quote what was sent.
    return BadField(f"{where}: {first['msg'].partition(',')[0]}", param=where)


def _depth(error: ErrorDetails) -> int:
    return len(error["loc"])


def check_chat(body: dict[str, Json]) -> None:
    """The shape of a chat completion's body, as far as the gateway relies on it (BadField)."""
    _expect(body, "model", str, "a text", required=True)
    if not body["model"].strip():
        raise BadField("model: must not be empty", param="model")
    _expect(body, "messages", list, "a list", required=True)
    if not body["messages"]:
        raise BadField("messages: must not be empty", param="messages")
    for at, message in enumerate(body["messages"]):
        _check_message(message, f"messages[{at}]")
    _expect(body, "stream", bool, "true or false")
    _expect(body, "stream_options", dict, "an object")
    _expect(body, "response_format", dict, "an object")
    _expect(body, "n", int, "a whole number")
    _expect(body, "tool_choice", str | dict, "a text or an object")
    check_tools(body)


def check_tools(body: dict[str, Json]) -> None:
    """The caller's own tools: a list of objects; the seed's built-in ones are not served here."""
    if "tools" in body and body["tools"] is None:
        raise BadField("tools: must be a list", param="tools")  # as OpenAI refuses it
    _expect(body, "tools", list, "a list")
    for at, tool in enumerate(body.get("tools") or []):
        if not isinstance(tool, dict):
            raise BadField(f"tools[{at}]: must be an object", param=f"tools[{at}]")
        for member in ("function", "custom"):
            where = f"tools[{at}].{member}"
            if not isinstance(inner := tool.get(member, {}), dict):
                raise BadField(f"{where}: must be an object", param=where)
            if not isinstance(inner.get("name", ""), str):
                raise BadField(f"{where}.name: must be a text", param=f"{where}.name")


def check_conflicts(body: dict[str, Json], fields: Fields) -> None:
    """What can't be combined or is not served (Conflict, spec 3.2)."""
    servers = fields.mcp_servers or fields.mcp_server_ids
    names = [server.name for server in fields.mcp_servers or []]
    for at, tool in enumerate(body.get("tools") or []):
        if (kind := tool.get("type")) in ("otari_code_execution", "otari_web_search"):
            raise Conflict(
                f"{kind} can't be combined with mcp_servers or mcp_server_ids"
                if servers
                else f"{kind} is not served by this gateway",
                param=f"tools[{at}].type",
            )
        if kind == "mcp_toolset" and tool.get("mcp_server_name") in names:
            raise Conflict(
                "an mcp_toolset can't name a server of mcp_servers: its tools are attached anyway",
                param=f"tools[{at}].mcp_server_name",
            )
    for at, name in _repeated(names):
        raise Conflict(f"two servers have the name {name!r}", param=f"mcp_servers[{at}].name")


def _repeated(names: Iterable[str]) -> list[tuple[int, str]]:
    seen: set[str] = set()
    return [(at, n) for at, n in enumerate(names) if n in seen or seen.add(n)]  # type: ignore[func-returns-value]


def _check_message(message: Json, where: str) -> None:
    if not isinstance(message, dict):
        raise BadField(f"{where}: must be an object", param=where)
    if not isinstance(message.get("role"), str):
        raise BadField(f"{where}.role: must be a text", param=f"{where}.role")
    content = message.get("content")
    if not isinstance(content, str | list | None):
        raise BadField(
            f"{where}.content: must be a text or a list of parts", param=f"{where}.content"
        )
    for at, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            inner = f"{where}.content[{at}]"
            raise BadField(f"{inner}: must be an object", param=inner)
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None) or not all(isinstance(c, dict) for c in calls or ()):
        inner = f"{where}.tool_calls"
        raise BadField(f"{inner}: must be a list of objects", param=inner)


def _expect(
    body: dict[str, Json], name: str, kind: Any, words: str, *, required: bool = False
) -> None:
    value = body.get(name)
    if value is None:
        if required:
            raise BadField(f"{name}: is required", param=name)
        return
    # In Python true is a number, in JSON it is not.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadField(f"{name}: must be {words}", param=name)
