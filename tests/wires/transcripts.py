"""Golden transcripts of streamed turns: what a provider sends, and what the client must get of it.

A case of a wire is three files in its directory (`tests/wires/chat/`):

    <case>.json      {"request":  the client's body, without the gateway's own fields,
                      "owned":    names of the tools that are ours to run,
                      "results":  {call id: the text that our tool gives},
                      "appended": what the last model call holds after the client's own messages}
    <case>.in.sse    what the provider sends, one part per model call, a line `: round` between two
    <case>.out.sse   what the client must get

A test plays a case and compares what two streams say, not how they are cut into chunks:

    @pytest.mark.parametrize("case", transcripts.cases("chat"), ids=str)
    def test_…(case):
        sent = play(case.request, case.owned, case.raw, case.results)
        assert fold(sent) == fold(case.expected)

The id, time and model of a turn are the first that the provider named. Of an error event only that
it comes, and where, is compared.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any
SEPARATOR = b": round\n\n"
NAMES = ("id", "created", "model")


@dataclass(frozen=True)
class Case:
    """One turn. `rounds` holds the events of each model call parsed, `raw` the same as bytes with
    comments and `[DONE]`; `appended` is None where nothing is said about it."""

    name: str
    request: Json
    owned: frozenset[str]
    results: dict[str, str]
    appended: list[Json] | None
    raw: list[bytes]
    expected: bytes

    def __str__(self) -> str:
        return self.name

    @property
    def rounds(self) -> list[list[Json]]:
        return [list(events(part)) for part in self.raw]


def cases(wire: str) -> list[Case]:
    """All cases of a wire, by name."""
    directory = Path(__file__).parent / wire
    return [_load(path) for path in sorted(directory.glob("*.json"))]


def _load(path: Path) -> Case:
    told = json.loads(path.read_text())
    return Case(
        name=path.stem,
        request=told["request"],
        owned=frozenset(told["owned"]),
        results=told["results"],
        appended=told.get("appended"),
        raw=path.with_suffix(".in.sse").read_bytes().split(SEPARATOR),
        expected=path.with_suffix(".out.sse").read_bytes(),
    )


def events(raw: bytes) -> Iterator[Json]:
    """The parsed events of a stream, without comments and `[DONE]`."""
    for line in raw.splitlines():
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            yield json.loads(line.removeprefix(b"data: "))


def fold(raw: bytes) -> Json:
    """What a chat stream says, as one value: two streams that differ only in how they are cut into
    chunks, or in members that are null or empty, have the same."""
    told: dict[str, Json] = {"choices": {}, "more": {}, "done": raw.endswith(b"data: [DONE]\n\n")}
    for event in events(raw):
        if "error" in event:
            told["error"] = True
            continue
        for name, value in event.items():
            if name == "choices":
                for choice in value:
                    _fold_choice(told["choices"].setdefault(choice["index"], {"said": []}), choice)
            elif name in NAMES:
                told[name] = told.get(name) or value
            elif not _empty(value):
                told["more"][name] = value
    return told


def _fold_choice(told: dict[str, Json], choice: Json) -> None:
    for name, value in choice["delta"].items():
        if name == "tool_calls":
            for fragment in value or []:
                _fold_call(told["said"], fragment)
        elif name == "function_call":
            for part, text in value.items():
                _fold_text(told["said"], part, text)
        elif name == "role" or not isinstance(value, str):
            told[name] = _merged(told.get(name), value)
        else:
            _fold_text(told["said"], name, value)
    for name, value in choice.items():
        if name not in ("index", "delta"):
            told[name] = _merged(told.get(name), value)
    for name in [name for name, value in told.items() if value is None]:
        del told[name]


def _fold_text(said: list[Json], name: str, text: str) -> None:
    """Text goes on with the last entry if that is of the same member."""
    if said and said[-1][0] == name:
        said[-1][1] += text
    elif text:
        said.append([name, text])


def _fold_call(said: list[Json], fragment: Json) -> None:
    """A call stands where its first fragment came."""
    index = fragment["index"]
    calls: list[Json] = [entry[1] for entry in said if entry[0] == "call"]
    call: Json = next((call for call in calls if call["index"] == index), {})
    if not call:
        said.append(["call", call])
    for name, value in fragment.items():
        if name == "function":
            function = call.setdefault("function", {"name": "", "arguments": ""})
            for part in ("name", "arguments"):
                function[part] += value.get(part) or ""
        elif not _empty(value):
            call[name] = value


def _merged(old: Json, new: Json) -> Json:
    """Lists grow and objects merge; of the rest the later one counts, unless it is empty."""
    if isinstance(old, list) and isinstance(new, list):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _merged(old.get(name), new.get(name)) for name in old | new}
    return old if _empty(new) else new


def _empty(value: Json) -> bool:
    return value is None or value in ("", [], {})
