"""A server as a turn names it: where it is, in whose name it is asked, and with which secret."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import orjson

from orazaka.errors import OrazakaError

Key = tuple[str, str, str]

_SCHEME = re.compile(r"bearer\s+", re.IGNORECASE)
_HEADER_TEXT = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
# They belong to the connection and the protocol; a caller's value would break or redirect them.
_OURS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade"}
    | {"accept", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"}
)


class BadCredentials(OrazakaError):
    """A token or header that can't be sent. The message never repeats the value."""

    status = 400
    code = "bad_credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An MCP server to talk to, inline, resolved or stored alike.

    `principal` is whose sessions and lists it uses (`Caller.principal`, or "platform"). `secret` is
    a bearer token; a pasted "Bearer " is stripped (case B91). `allowed_tools`: None = all, empty =
    none. `era` is auto, legacy or modern. `call_timeout` is seconds for one call; progress extends
    it. Raises BadCredentials.
    """

    label: str
    url: str = field(repr=False)
    principal: str
    secret: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_tools: frozenset[str] | None = None
    hint: str = ""
    era: str = "auto"
    call_timeout: float = 25

    def __post_init__(self) -> None:
        secret = _SCHEME.sub("", self.secret.strip(), count=1)
        object.__setattr__(self, "secret", secret)
        if secret and not _HEADER_TEXT.fullmatch(secret):
            raise BadCredentials(
                f'the token of MCP server "{self.label}" can\'t be sent in a header'
            )
        for name, value in self.headers.items():
            if name.lower() in _OURS or not _HEADER_TEXT.fullmatch(value):
                raise BadCredentials(f'header "{name}" of MCP server "{self.label}" can\'t be sent')

    @property
    def key(self) -> Key:
        """What sessions and lists are kept under (case B97); the digest stands for the secrets."""
        secrets = [self.secret, sorted(self.headers.items()), self.era]
        return self.url, self.principal, sha256(orjson.dumps(secrets)).hexdigest()

    @property
    def has_secret(self) -> bool:
        """Whether plain http is refused for it (spec 2.6)."""
        return bool(self.secret or self.headers)

    def request_headers(self) -> dict[str, str]:
        """What goes with every request to it; for the transport's eyes only."""
        bearer = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
        return {**self.headers, **bearer}
