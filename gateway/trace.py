"""A turn in a terminal: a tree that grows, or plain lines where there is no terminal.

What models and tools say may hold control characters that move cursors or paint over what was
shown: all but the line break and the tab are replaced.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

Json = Any
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
STYLES = {"ok": "green", "kept": "green", "listed": "green"}  # the rest went wrong
REFRESHES = 8  # a second


def clean(text: str) -> str:
    """The text without what would act on a terminal."""
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def took(ms: float) -> str:
    """A duration for people."""
    return f"{ms:.0f} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"


def used(usage: Json) -> str:
    """Tokens for people: of a step's usage or a reply's."""
    usage = usage or {}
    into = usage.get("prompt_tokens", usage.get("prompt", 0))
    out = usage.get("completion_tokens", usage.get("completion", 0))
    return f"{into} tokens in, {out} out"


def line(step: Json) -> Text:
    """A step in one line: what, how it ended, how long it took."""
    words = Text()
    words.append(f"{step['kind']} ", "bold")
    name, detail = clean(step["name"]), step["detail"]
    if step["kind"] == "note":
        return words.append(name, "yellow")
    if step["kind"] == "model":
        name = f"call {detail.get('round', '')} of {name}"
    words.append(f"{name} ")
    if step["kind"] == "tool" and step["server"]:
        words.append(f"on {clean(step['server'])} ", "dim")
    words.append(step["outcome"], STYLES.get(step["outcome"], "red"))
    words.append(f", {took(step['duration_ms'])}", "dim")
    if step["kind"] == "model":
        words.append(f", {used(detail.get('usage'))}", "dim")
    if error := detail.get("error"):
        words.append(f": {clean(str(error))}", "red")
    return words


class Lines:
    """Plain lines, for pipes and logs: each step when it is over, the text as it comes."""

    def __init__(self, console: Console) -> None:
        self._console, self._open = console, False

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *exc: object) -> None:
        self._break()

    def text(self, piece: str) -> None:
        if not self._open:
            piece = piece.lstrip("\n")  # what parts the rounds in a reply
        if piece:
            self._console.out(clean(piece), end="", highlight=False)
            self._open = not piece.endswith("\n")

    def step(self, step: Json) -> None:
        self._break()
        self._console.out(f"[{line(step).plain}]", highlight=False)

    def _break(self) -> None:
        if self._open:
            self._console.out("", highlight=False)
        self._open = False


class Quiet:
    """Shows nothing: what came of it is printed at the end."""

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def text(self, piece: str) -> None:
        pass

    def step(self, step: Json) -> None:
        pass


@dataclass(slots=True)
class Round:
    """One call of the model, what it said and the tools that it asked for."""

    said: str = ""
    head: Text | None = None  # when it is over
    tools: list[Text] = field(default_factory=list)


class Growing:
    """The tree: servers, rounds with their text, tool calls under theirs."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = clean(title)
        self._servers: list[Text] = []
        self._rounds: list[Round] = []
        self._over = False
        self._live = Live(
            console=console,
            get_renderable=self.tree,
            refresh_per_second=REFRESHES,
            vertical_overflow="ellipsis",
        )

    def __enter__(self) -> "Growing":
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over = True
        self._live.stop()

    def text(self, piece: str) -> None:
        if not self._rounds or (self._rounds[-1].head and self._begins(piece)):
            self._rounds.append(Round())
        self._rounds[-1].said += clean(piece)

    def step(self, step: Json) -> None:
        if step["kind"] in ("server", "note"):
            self._servers.append(line(step))
        elif step["kind"] == "model":
            if not self._rounds or self._rounds[-1].head:
                self._rounds.append(Round())
            self._rounds[-1].head = line(step)
        elif self._rounds:
            self._rounds[-1].tools.append(line(step))

    def _begins(self, piece: str) -> bool:
        """Whether it begins a round: what comes after the tools of the last, and a plain reply's
        text, which comes when all is over, stays where it is."""
        return bool(self._rounds[-1].tools) and bool(piece.strip())

    def tree(self) -> RenderableType:
        """As it is now."""
        root = Tree(Text(self._title, "bold"), guide_style="dim")
        for server in self._servers:
            root.add(server)
        for at, one in enumerate(self._rounds, 1):
            branch = root.add(one.head or Text(f"model call {at} …", "bold"))
            if said := one.said.strip("\n"):
                branch.add(Text(said))
            for tool in one.tools:
                branch.add(tool)
        if not self._over and (not self._rounds or self._rounds[-1].head):
            root.add(Text("…", "dim"))
        return root
