"""Tools as each API defines them to a model, made once per listed tool and shown name."""

from typing import Any
from weakref import WeakKeyDictionary

from tools.base import ToolSpec
from tools.names import Shown
from tools.schema import provider_schema

Json = Any

_chat: WeakKeyDictionary[ToolSpec, dict[str, Json]] = WeakKeyDictionary()


def chat(shown: Shown) -> Json:
    """The tool as a chat completion's `tools` entry. Shared between turns: not to be changed."""
    made = _chat.setdefault(shown.spec, {})
    if shown.name not in made:
        function = {
            "name": shown.name,
            "description": shown.spec.description,
            "parameters": provider_schema(shown.spec.schema),
        }
        made[shown.name] = {"type": "function", "function": function}
    return made[shown.name]
