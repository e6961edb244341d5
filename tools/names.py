"""Names shown to the model (spec 3.4, step 3): legal, unique in the turn, never parsed back."""

import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import NamedTuple

from tools.base import Offer, ToolSpec

ORIGINS = ("caller", "inline", "resolved", "registered", "platform", "user")
LONGEST = 64
OURS = "orazaka"  # what prefixes a registered tool; no server gets it
LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class Shown(NamedTuple):
    """A tool as it is offered to the model: the name shown, what it stands for, who brought it."""

    name: str
    spec: ToolSpec
    offer: Offer


def assign(taken: Collection[str], offers: Sequence[Offer]) -> list[Shown]:
    """A name for each tool, in the order of origins; `taken` are the caller's own tools.

    A tool keeps its own name when that is legal and free, else it is `<server>__<tool>`, made legal
    and at most 64 characters. The same offers give the same names on every replica. Of two tools
    with one name from one server the first counts: calling the second would run the first.
    """
    used, labels, shown = set(taken), {OURS}, []
    legal = LEGAL.fullmatch
    for offer in sorted(offers, key=_rank):
        label = OURS if offer.origin == "registered" else _free_label(offer.label, labels)
        seen = set()
        for spec in offer.specs:
            name = spec.name
            if name in seen:
                continue
            seen.add(name)
            if name in used or not legal(name):
                name = _prefixed(label, offer.label, name, used)
            used.add(name)
            shown.append(Shown(name, spec, offer))
    return shown


def _rank(offer: Offer) -> int:
    return ORIGINS.index(offer.origin)


def _free_label(label: str, labels: set[str]) -> str:
    """A server's prefix that no other server has: `label`, `label_2`, …; it joins `labels`."""
    plain = free = ILLEGAL.sub("_", label)[:LONGEST] or "server"
    number = 1
    while free in labels:
        number += 1
        free = f"{plain}_{number}"
    labels.add(free)
    return free


def _prefixed(label: str, server: str, tool: str, used: set[str]) -> str:
    name = f"{label}__{ILLEGAL.sub('_', tool)}"
    attempt = 0
    while len(name) > LONGEST or name in used:
        # What is cut or replaced away must still tell tools apart, the same way on every replica.
        digest = sha256(f"{server}\0{tool}\0{attempt}".encode(errors="surrogatepass")).hexdigest()
        name = f"{label}__{ILLEGAL.sub('_', tool)}"[: LONGEST - 9] + "_" + digest[:8]
        attempt += 1
    return name
