"""Chat completion deltas, folded into the answer that a plain call would have given.

Providers differ in how they cut calls up: by index, without one, several ids under one index, names
in pieces or repeated. A call is known by its index, else its id, else by order of arrival.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from gateway.wire import UpstreamError
from tools.base import ToolCall

Json = Any

KINDS = ("function", "custom")


def a_dict(value: Json) -> dict[str, Json]:
    """The value, if the provider sent the object that its API promises here. UpstreamError else."""
    if isinstance(value, dict):
        return value
    raise UpstreamError("the provider's answer does not have the form of its API")


def a_list(value: Json) -> list[Json]:
    """The same for a list; null counts as an empty one."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise UpstreamError("the provider's answer does not have the form of its API")


def text(value: Json) -> str:
    """The same for text; null counts as empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise UpstreamError("the provider's answer does not have the form of its API")


def spoken(value: Json) -> str | list[Json]:
    """The same for what is said: text, or a list of parts."""
    return value if isinstance(value, list) else text(value)


def together(said: Sequence[str | list[Json]]) -> str | list[Json]:
    """Several things said as one: a blank line between texts, parts where there are any."""
    texts = [one for one in said if isinstance(one, str)]
    if len(texts) == len(said):
        return "\n\n".join(texts)
    return [part for one in said for part in _parts(one)]


def _parts(said: str | list[Json]) -> list[Json]:
    return said if isinstance(said, list) else [{"type": "text", "text": said}]


@dataclass(slots=True)
class Draft:
    """A tool call as it grows. `shown` is its index at the client once it is known to be the
    client's own; until then it is held back, for nothing of our calls may show."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)  # of the arguments: they may be long
    whole: dict[str, Json] = field(default_factory=dict)
    shown: int | None = None

    def add(self, fragment: dict[str, Json], known: Callable[[str], bool]) -> None:
        """Take one more fragment. `known` tells a name in two equal pieces from one said twice."""
        self.id = self.id or text(fragment.get("id"))
        kind = _kind(fragment)
        part = a_dict(fragment.get(kind) or {})
        name = text(part.get("name"))
        repeated = self.complete or (name == self.name and not known(2 * name))
        if name and not repeated:
            self.name += name
        if piece := text(part.get("arguments" if kind == "function" else "input")):
            self.pieces.append(piece)
        self.whole.update(_said(fragment, but=(*KINDS, "index")))
        if part:
            self.whole[kind] = {**self.whole.get(kind, {}), **_said(part)}

    @property
    def arguments(self) -> str:
        """The text of the arguments so far."""
        return "".join(self.pieces)

    @property
    def custom(self) -> bool:
        """A call of a custom tool: free text as input, always the client's own."""
        return "custom" in self.whole

    @property
    def complete(self) -> bool:
        """Whether the name is whole: it is when the arguments begin."""
        return bool(self.name and self.pieces)

    def call(self) -> ToolCall:
        """The call to run. One that the provider gave no id gets one."""
        self.id = self.id or made_id()
        return ToolCall(self.id, self.name, self.arguments)

    def message(self) -> dict[str, Json]:
        """The call as a plain answer has it, members unknown to us included."""
        kind, words = ("custom", "input") if self.custom else ("function", "arguments")
        call = self.call()
        body = {**self.whole.get(kind, {}), "name": call.name, words: call.arguments}
        return {"type": kind, **self.whole, "id": call.id, kind: body}

    def later(self, fragment: dict[str, Json]) -> dict[str, Json]:
        """A fragment of a call that the client has begun to get, without what it has: clients put
        repeated names together."""
        kind = _kind(fragment)
        part = {k: v for k, v in (fragment.get(kind) or {}).items() if k != "name"}
        rest = {k: v for k, v in fragment.items() if k not in ("id", "type")}
        return {**rest, "index": self.shown, kind: part}


def _kind(fragment: dict[str, Json]) -> str:
    return "custom" if fragment.get("custom") else "function"


def _said(members: dict[str, Json], *, but: Sequence[str] = ()) -> dict[str, Json]:
    """The members that say something: later fragments repeat earlier ones empty or as null."""
    return {k: v for k, v in members.items() if v not in (None, "") and k not in but}


def made_id() -> str:
    """An id for a call that came without one."""
    return f"call_{uuid4().hex}"


class Drafts:
    """The calls of one answer, in order of arrival."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self.all: list[Draft] = []
        self._known = known
        self._by_index: dict[int, Draft] = {}
        self._by_id: dict[str, Draft] = {}

    def add(self, fragment: Json) -> Draft:
        """Put a fragment where it belongs; the call that it belongs to."""
        fragment = a_dict(fragment)
        draft = self._find(fragment)
        if draft is None:
            draft = Draft()
            self.all.append(draft)
        if isinstance(index := fragment.get("index"), int):
            self._by_index[index] = draft
        draft.add(fragment, self._known)
        if draft.id and self._by_id.setdefault(draft.id, draft) is not draft:
            draft.id = made_id()  # another call has that id: results could not be told apart
            self._by_id[draft.id] = draft
        return draft

    def _find(self, fragment: dict[str, Json]) -> Draft | None:
        index, id = fragment.get("index"), text(fragment.get("id"))
        name = text(a_dict(fragment.get(_kind(fragment)) or {}).get("name"))
        if isinstance(index, int):
            draft = self._by_index.get(index)
            # Some providers put every call of an answer under index 0, each with an id and a name;
            # others give every fragment of a call a new id.
            return None if draft and name and id and draft.id and draft.id != id else draft
        if id:
            return self._by_id.get(id)
        last = self.all[-1] if self.all else None
        # Neither index nor id: a name after arguments begins the next call.
        return None if last and name and last.pieces else last


@dataclass(slots=True)
class Message:
    """The rest of an answer as it grows: text by member, and members of any other kind."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, Json] = field(default_factory=dict)

    def add(self, delta: dict[str, Json]) -> None:
        """Fold one more delta in."""
        for key, value in delta.items():
            if isinstance(value, str) and key != "role":
                self.pieces.setdefault(key, []).append(value)
            else:
                _fold(self.members, key, value)

    def whole(self) -> dict[str, Json]:
        """The message as a plain answer would have had it, without its tool calls."""
        texts: dict[str, Json] = {key: "".join(parts) for key, parts in self.pieces.items()}
        for key in texts.keys() & self.members.keys():
            if isinstance(said := self.members[key], list):  # first parts, then text
                texts[key] = [*said, *_parts(texts[key])]
        return {**self.members, **texts}


def _fold(members: dict[str, Json], key: str, value: Json) -> None:
    """Text and lists grow, objects merge, the rest is replaced; null replaces nothing."""
    have = members.get(key)
    if isinstance(have, str) and isinstance(value, str):
        members[key] = have + value
    elif isinstance(have, list) and isinstance(value, list):
        members[key] = [*have, *value]
    elif isinstance(have, dict) and isinstance(value, dict):
        merged = dict(have)
        for inner, more in value.items():
            _fold(merged, inner, more)
        members[key] = merged
    elif value is not None or key not in members:
        members[key] = value
