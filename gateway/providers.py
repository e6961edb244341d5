"""Which providers there are, and which one a request's `model` names (spec 3.1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.conf import settings

from gateway.models import Provider
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.snapshot import Part

PATHS = {"chat": "/chat/completions", "messages": "/messages", "responses": "/responses"}
DEMO, DEMO_BASE = "demo", "demo:"
# Model families that take images in chat messages; to others an image is described in words.
SEEING = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|\bo[134]\b|claude|gemini|pixtral|llava|bakllava|vision|"
    r"[-_]vl\b|qwen.*vl|llama-?4|gemma-?3",
    re.IGNORECASE,
)


class UnknownModel(OrazakaError):
    """No provider that this caller may use has the model."""

    status = 404
    code = "model_not_found"


class ModelNotAllowed(OrazakaError):
    """The caller's key is limited to other models."""

    status = 403
    code = "model_not_allowed"


class WireNotSpoken(OrazakaError):
    """The provider has no endpoint of this API."""

    status = 400
    code = "wire_not_supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: to connect, to the first byte, between bytes, and for a whole turn."""

    connect: float = 5
    first_byte: float = 120
    silence: float = 120
    turn: float = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A provider as a turn uses it. `bases` are base URLs by wire; `models` None = any."""

    name: str
    bases: Mapping[str, str]
    key: str = field(default="", repr=False)
    models: tuple[str, ...] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = Limits()

    def url(self, wire: str) -> str:
        """The endpoint of a wire. Raises WireNotSpoken, which names what it speaks."""
        if base := self.bases.get(wire):
            return base.rstrip("/") + PATHS[wire]
        spoken = ", ".join(sorted(self.bases)) or "no API at all"
        raise WireNotSpoken(
            f"the provider {self.name} has no {wire} API here (it has: {spoken})", param="model"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a turn's model calls go: the provider, and the model's name there."""

    peer: Peer
    model: str
    url: str

    @property
    def demo(self) -> bool:
        return self.url.startswith(DEMO_BASE)  # a row may have the name too

    @property
    def sees(self) -> bool:
        """Whether the model is known to take images."""
        return bool(SEEING.search(self.model))


Peers = Mapping[str, Peer]


def load() -> Peers:
    """The providers of this deployment: rows, and the environment's where no row has the name."""
    peers = from_environment()
    for row in Provider.objects.all():
        peers.pop(row.name, None)
        if row.enabled:
            peers[row.name] = as_peer(row)
    return peers


PROVIDERS = Part("providers", load, watches=(Provider,))


def from_environment() -> dict[str, Peer]:
    """`openai`, `anthropic` where their SDK's own variables are set, `local` where its URL is, and
    the built-in `demo`."""
    peers = {}
    if key := settings.OPENAI_API_KEY:
        base = settings.OPENAI_BASE_URL
        peers["openai"] = Peer(name="openai", key=key, bases={"chat": base, "responses": base})
    if key := settings.ANTHROPIC_API_KEY:
        # The SDK's base has no version. Chat goes through the provider's own compatible endpoint.
        base = settings.ANTHROPIC_BASE_URL.rstrip("/") + "/v1"
        peers["anthropic"] = Peer(name="anthropic", key=key, bases={"messages": base, "chat": base})
    if base := settings.ORAZAKA_LOCAL_MODEL_URL:
        peers["local"] = Peer(name="local", bases={"chat": base})
    if settings.ORAZAKA_DEMO:
        peers[DEMO] = Peer(name=DEMO, bases={"chat": DEMO_BASE}, models=("demo",))
    return peers


def as_peer(row: Provider) -> Peer:
    """A row as turns and tests use it, enabled or not."""
    bases = {"chat": row.chat_url, "messages": row.messages_url, "responses": row.responses_url}
    return Peer(
        name=row.name,
        bases={wire: base for wire, base in bases.items() if base},
        key=row.api_key or "",
        models=tuple(row.model_names) if row.model_names else None,
        headers={str(k): str(v) for k, v in (row.default_headers or {}).items()},
        limits=Limits(
            connect=row.connect_seconds,
            first_byte=row.first_byte_seconds,
            silence=row.silence_seconds,
            turn=row.turn_seconds,
        ),
    )


def route(model: str, wire: str, *, peers: Peers, caller: Caller) -> Route:
    """The way to `provider:model` or `provider/model`; the first separator counts.

    A bare name is served when exactly one provider lists it. Raises UnknownModel, ModelNotAllowed,
    WireNotSpoken.
    """
    peer, name = _named(model, peers)
    if not may_use(caller, peer.name, name):
        raise ModelNotAllowed("this key may not use the model", param="model")
    return Route(peer=peer, model=name, url=peer.url(wire))


def may_use(caller: Caller, provider: str, model: str) -> bool:
    """Whether the caller's key allows the model: listed as it is, or its whole provider."""
    allowed = caller.models
    return allowed is None or f"{provider}:{model}" in allowed or f"{provider}:*" in allowed


def _named(model: str, peers: Peers) -> tuple[Peer, str]:
    if found := re.match(r"([^:/]+)[:/](.+)", model, re.DOTALL):
        peer = peers.get(found[1])
        if peer and (peer.models is None or found[2] in peer.models):
            return peer, found[2]
    having = [peer for peer in peers.values() if peer.models and model in peer.models]
    if len(having) == 1:
        return having[0], model
    # The name is not repeated: what was sent in its place may be anything.
    raise UnknownModel(
        "no such model here; write it as provider:model (GET /v1/models lists what there is)",
        param="model",
    )
