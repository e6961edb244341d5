"""The text that a model sends as arguments, read strictly: the tool is not run on a guess."""

import json
import math
from typing import Any

from tools.base import Json, ToolError
from tools.problems import Problem, cut

MAX_BYTES = 2**20
MAX_LEVELS = 100
MOST_TOLD = 5


class BadArguments(ToolError):
    """Arguments that the tool must not be run with. `problems` say what is wrong, and where."""

    def __init__(self, *problems: Problem) -> None:
        told = "; ".join(map(str, problems[:MOST_TOLD]))
        more = len(problems) - MOST_TOLD
        super().__init__(f"the arguments are wrong: {told}" + (f"; and {more} more" * (more > 0)))
        self.problems = problems


def read(text: str) -> dict[str, Json]:
    """The JSON object that a text is; none at all is an empty one (B35).

    What two readers would take differently (a name twice, NaN, half a character) is refused, and so
    is what is over 1 MiB or 100 levels. Raises BadArguments.
    """
    if not text.strip():
        return {}
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise _bad(f"is longer than {MAX_BYTES} bytes")
    value = _decoded(text)
    if not isinstance(value, dict):
        raise _bad("must be a JSON object, such as {}")
    if text.count("{") + text.count("[") > MAX_LEVELS and levels(value) > MAX_LEVELS:
        raise _bad(f"has more than {MAX_LEVELS} levels")
    if (not text.isascii() or "\\u" in text) and not _encodes(value):
        raise _bad("has half of a surrogate pair, which is not a character")
    return value


def levels(value: Json) -> int:
    """How deep JSON containers stand in each other."""
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, level = stack.pop()
        if isinstance(node, dict | list):
            deepest = max(deepest, level)
            inner = node.values() if isinstance(node, dict) else node
            stack.extend((one, level + 1) for one in inner)
    return deepest


def _decoded(text: str) -> Json:
    # Not orjson: it takes the last of two equal names and rounds integers over 64 bits.
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise _bad(f"has more than {MAX_LEVELS} levels") from None
    except json.JSONDecodeError as error:
        raise _bad(_not_json(error)) from None
    except ValueError:  # an integer of thousands of digits
        raise _bad("has a number that is too long") from None


def _encodes(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) < len(pairs):
        for name, _ in pairs:
            if name not in made:
                raise _bad(f"has the property {_quoted(name)} twice")
            del made[name]
    return made


def _no_constant(word: str) -> Any:
    raise _bad(f"has {word}, which is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _bad("has a number that is too large")
    return number


def _not_json(error: json.JSONDecodeError) -> str:
    size = len(error.doc)
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated"):
        return f"is not JSON: it ends too early, after {size} characters"
    return f"is not JSON: {error.msg} at character {error.pos + 1} of {size}"


def _quoted(name: str) -> str:
    return cut(json.dumps(name))


def _bad(message: str) -> BadArguments:
    return BadArguments(Problem("$", message))
