"""The language in which a test says what a model answers: the words of the last user message.

One directive a line, each for the round it stands in; other lines are prose. A round without text
or calls, and the one after the last, says `GOT` and a JSON list of the tool results so far, or
`Hello.` if there are none.

    CALL name {json}   ask for a tool; several lines in a round are parallel calls
    RAW name text      the same with arguments that need not be JSON
    SAY text           text, before the calls
    TOKENS n           n words of text: t0 t1 t2 …
    THINK text         reasoning, before the text
    THEN               here the next round begins
    LOOP               the last round is played again and again
    STUBBORN           make calls that may not be made: else none is made while the tool choice is
                       none, nor of a tool that was called before and is no longer offered
    STATUS code [after [times]]   refuse, with a Retry-After; only the first `times` times
    ERROR text         break off with an error event after the round's text (plain: status 500)
    CUT n              close the connection after n events (plain: in the middle of the reply)
    FIRST s, GAP s     seconds of silence before the first event, and between events
    FINISH reason      this finish or stop reason
    NOUSAGE            report no usage
    INTERLEAVE         fragments of parallel calls take turns
    NOINDEX            tool call deltas without `index`; when interleaved each carries its id
    EMPTYARGS          the calls' arguments are the empty string
"""

import json
import re
from dataclasses import dataclass, field

DIRECTIVE = re.compile(
    r"(CALL|RAW|SAY|TOKENS|THINK|THEN|LOOP|STUBBORN|STATUS|ERROR|CUT|FIRST|GAP|FINISH|NOUSAGE"
    r"|INTERLEAVE|NOINDEX|EMPTYARGS)(?: (.*))?"
)


class Round:
    """What the model does in one round."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.said: dict[str, str] = {}

    def __contains__(self, word: str) -> bool:
        return word in self.said

    def number(self, word: str) -> float:
        return float(self.said.get(word, "0"))

    def add(self, word: str, rest: str) -> None:
        if word in ("CALL", "RAW"):
            name, _, arguments = rest.partition(" ")
            self.calls.append((name, arguments or ("{}" if word == "CALL" else "")))
        else:
            self.said[word] = rest

    @property
    def text(self) -> str:
        words = [f"t{n}" for n in range(int(self.number("TOKENS")))]
        return " ".join([*filter(None, [self.said.get("SAY")]), *words])


def rounds_of(script: str) -> list[Round]:
    """A script's rounds, at least one."""
    rounds = [Round()]
    for line in script.splitlines():
        if match := DIRECTIVE.fullmatch(line.strip()):
            if match[1] == "THEN":
                rounds.append(Round())
            else:
                rounds[-1].add(match[1], match[2] or "")
    return rounds


@dataclass
class Seen:
    """What a conversation says to the script, whichever wire it came on."""

    script: str = ""
    played: int = 0
    called: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)
    offered: set[str] = field(default_factory=set)
    may_call: bool = True

    def may_make(self, name: str) -> bool:
        return self.may_call and (name in self.offered or name not in self.called)


class Answer:
    """What the model says to one request. `serial` counts the provider's requests."""

    def __init__(self, seen: Seen, *, serial: int) -> None:
        rounds = rounds_of(seen.script)
        if seen.played < len(rounds):
            self.round = rounds[seen.played]
        else:
            self.round = rounds[-1] if "LOOP" in rounds[-1] else Round()
        self.serial, self.number = serial, seen.played + 1
        self.calls = [
            (f"call_{serial}_{place}", name, "" if "EMPTYARGS" in self.round else arguments)
            for place, (name, arguments) in enumerate(self.round.calls)
            if "STUBBORN" in self.round or seen.may_make(name)
        ]
        self.text = self.round.text
        if not self.text and not self.calls:
            self.text = f"GOT {json.dumps(seen.results)}" if seen.results else "Hello."

    @property
    def finish(self) -> str:
        return self.round.said.get("FINISH") or ("tool_calls" if self.calls else "stop")


def words(text: str) -> list[str]:
    """A text in pieces of one word and the blanks after it."""
    return re.findall(r"\S+\s*|\s+", text)
