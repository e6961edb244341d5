"""What is measured: turns, each with its script for the model and the answer that must come of it.

The last user message is the script, as JSON: `marker` is a word that occurs in no other turn, so
that an answer of another turn is found out; `rounds` are lists of [tool, arguments]; then the
answer is the marker, the results in order, and `tokens` words, `gap` seconds apart.
"""

from dataclasses import dataclass
from typing import Any

import orjson

Json = Any


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of turn. `calls` holds for each round the tools called in it; of `servers` servers
    each has `tools` tools beside the basic ones."""

    name: str
    about: str
    calls: tuple[tuple[str, ...], ...] = ()
    servers: int = 0
    tools: int = 0
    stream: bool = False
    tokens: int = 0
    gap: float = 0.0

    def turn(self, marker: str) -> "Turn":
        """A turn of this kind that is told from all others by its marker."""
        rounds = [
            [_call(tool, f"{marker}-{at}") for tool in tools] for at, tools in enumerate(self.calls)
        ]
        script = {"marker": marker, "rounds": rounds, "tokens": self.tokens, "gap": self.gap}
        results = [_result(call) for calls in rounds for call in calls]
        tokens = [f"t{n}" for n in range(self.tokens)]
        answer = " ".join([marker, *results, *tokens])
        return Turn(self, marker, orjson.dumps(script).decode(), answer)

    def endpoints(self, mcp: str) -> list[dict[str, str]]:
        """The MCP servers that a turn brings along, under the base URL of the fake one."""
        more = f"?tools={self.tools}" if self.tools else ""
        names = [f"s{n}" for n in range(self.servers)]
        return [{"name": name, "url": f"{mcp}/{name}{more}"} for name in names]


@dataclass(frozen=True)
class Turn:
    """What is asked, and the text that must come back."""

    scenario: Scenario
    marker: str
    script: str
    answer: str

    @property
    def messages(self) -> list[Json]:
        return [{"role": "user", "content": self.script}]


def _call(tool: str, marker: str) -> list[Json]:
    return [tool, {"seconds": 0.1} if tool == "slow" else {"text": marker}]


def _result(call: list[Json]) -> str:
    tool, arguments = call
    return "slept" if tool == "slow" else str(arguments["text"])


ALL = (
    Scenario(name="plain", about="no tools"),
    Scenario(name="one-round", about="one tool call", calls=(("echo",),), servers=1),
    Scenario(
        name="three-rounds", about="three, one after the other", calls=(("echo",),) * 3, servers=1
    ),
    Scenario(
        name="four-parallel", about="four of 0.1 s at once", calls=(("slow",) * 4,), servers=1
    ),
    Scenario(
        name="ten-servers",
        about="ten servers of ten tools",
        calls=(("s7_tool_3",),),
        servers=10,
        tools=10,
    ),
    Scenario(
        name="first-token",
        about="a stream after one round",
        calls=(("echo",),),
        servers=1,
        stream=True,
        tokens=20,
    ),
    Scenario(name="poured", about="200 chunks at once", stream=True, tokens=200),
    Scenario(name="paced", about="200 chunks 5 ms apart", stream=True, tokens=200, gap=0.005),
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
