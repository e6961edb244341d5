"""Chat completion deltas, folded into the answer that a plain call would have given.

Providers differ in how they cut calls up: by index, without one, several ids under one index, names
in pieces or repeated. A call is known by its index, else its id, else by order of arrival.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.wire import UpstreamError

Json = Any


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


@dataclass(slots=True)
class Draft:
    """A tool call as it grows. `shown` is its index at the client once it is known to be the
    client's own; fragments that come before are in `held`, for nothing of our calls may show."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)  # of the arguments: they may be long
    whole: dict[str, Json] = field(default_factory=dict)
    held: list[dict[str, Json]] = field(default_factory=list)
    shown: int | None = None

    def add(self, fragment: dict[str, Json], known: Callable[[str], bool]) -> None:
        """Take one more fragment. `known` tells a name that was repeated from one in pieces."""
        self.id = self.id or text(fragment.get("id"))
        kind = "custom" if "custom" in fragment else "function"
        part = a_dict(fragment.get(kind) or {})
        name = text(part.get("name"))
        if name and not (name == self.name and known(name)):
            self.name += name
        if piece := text(part.get("arguments" if kind == "function" else "input")):
            self.pieces.append(piece)
        self.whole.update({k: v for k, v in fragment.items() if k not in (kind, "index")})
        self.whole[kind] = {**self.whole.get(kind, {}), **part}

    @property
    def arguments(self) -> str:
        """The text of the arguments so far."""
        return "".join(self.pieces)

    @property
    def custom(self) -> bool:
        """A call of a custom tool: free text as input, always the client's own."""
        return "custom" in self.whole

    def message(self) -> dict[str, Json]:
        """The call as a plain answer has it, members unknown to us included."""
        kind, words = ("custom", "input") if self.custom else ("function", "arguments")
        body = {**self.whole.get(kind, {}), "name": self.name, words: self.arguments}
        return {"type": kind, **self.whole, "id": self.id, kind: body}


class Drafts:
    """The calls of one answer, in order of arrival."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self.all: list[Draft] = []
        self._known = known
        self._by_index: dict[int, Draft] = {}

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
        return draft

    def _find(self, fragment: dict[str, Json]) -> Draft | None:
        index, id = fragment.get("index"), text(fragment.get("id"))
        if isinstance(index, int):
            draft = self._by_index.get(index)
            # Some providers put every call of an answer under index 0, with an id each.
            return None if draft and id and draft.id and draft.id != id else draft
        if id:
            return next((draft for draft in self.all if draft.id == id), None)
        last = self.all[-1] if self.all else None
        name = text((fragment.get("function") or {}).get("name"))
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
        return {**self.members, **{key: "".join(parts) for key, parts in self.pieces.items()}}


def _fold(members: dict[str, Json], key: str, value: Json) -> None:
    """Text and lists grow, objects merge, the rest is replaced; null replaces nothing."""
    have = members.get(key)
    if isinstance(have, str | list) and type(have) is type(value):
        members[key] = have + value
    elif isinstance(have, dict) and isinstance(value, dict):
        merged = dict(have)
        for inner, more in value.items():
            _fold(merged, inner, more)
        members[key] = merged
    elif value is not None or key not in members:
        members[key] = value
