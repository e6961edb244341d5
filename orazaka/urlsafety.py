"""Which URLs and addresses a caller may make us connect to (spec 2.6): values in, verdicts out.

Addresses are judged by `orazaka.addresses`; names are resolved and judged at every connect, by
`orazaka.guard`. Here is only what needs no network.
"""

import re
import socket
import string
from dataclasses import dataclass
from ipaddress import IPv6Address
from urllib.parse import quote, unquote

import idna

from orazaka.addresses import Policy, answer_refusal, refusal
from orazaka.errors import OrazakaError

__all__ = [
    "Policy",
    "SafeForm",
    "UnresolvedHost",
    "UnsafeURL",
    "answer_refusal",
    "check_form",
    "leads_to",
    "parse",
    "refusal",
]

MAX_URL_LENGTH = 2048
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::([0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class UnsafeURL(OrazakaError):
    """A URL that a caller may not use. The message names the rule, never an address or a secret."""

    status = 400
    code = "unsafe_url"


class UnresolvedHost(UnsafeURL):
    """A host name without an address: refused at use, stored with a status (spec 2.4)."""

    code = "unresolved_host"

    def __init__(self) -> None:
        super().__init__("the URL's host name does not resolve")


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeForm:
    """A URL whose form is legal. `url` is its canonical spelling, without fragment.

    `host` is lower-case ASCII without brackets; a `literal` one is an address in its usual form.
    """

    url: str
    scheme: str
    host: str
    port: int
    literal: bool


def parse(url: str) -> SafeForm:
    """Read a URL's form; the address of a literal host is not judged. Raises UnsafeURL."""
    if len(url) > MAX_URL_LENGTH:
        raise UnsafeURL(f"the URL is longer than {MAX_URL_LENGTH} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        raise UnsafeURL("the URL holds white space, a backslash or an invisible character")
    parts = _URL.fullmatch(url)
    if not parts:
        raise UnsafeURL("the URL is malformed: it must be absolute, such as https://host/path")
    scheme, authority, rest = parts[1].lower(), parts[2], parts[3]
    if scheme not in _PORTS:
        raise UnsafeURL("only http and https URLs are allowed")
    if "@" in authority:
        raise UnsafeURL("the URL holds user information: give secrets in their own fields")
    host, port, literal = _split(authority, default_port=_PORTS[scheme])
    shown = f"[{host}]" if ":" in host else host
    if port != _PORTS[scheme]:
        shown += f":{port}"
    path = quote(rest if rest.startswith("/") else f"/{rest}", safe=string.punctuation)
    return SafeForm(
        url=f"{scheme}://{shown}{path}", scheme=scheme, host=host, port=port, literal=literal
    )


def check_form(url: str, *, has_secret: bool, policy: Policy) -> SafeForm:
    """Judge all of a URL that can be judged without DNS. Raises UnsafeURL."""
    form = parse(url)
    if has_secret and form.scheme == "http":
        raise UnsafeURL("http is refused when a secret is set: use https")
    if form.literal and (rule := refusal(form.host, policy)):
        raise leads_to(rule)
    return form


def leads_to(rule: str) -> UnsafeURL:
    """The error for a URL whose address `refusal` refuses."""
    return UnsafeURL(f"the URL leads to {rule}, which is refused")


def _split(authority: str, *, default_port: int) -> tuple[str, int, bool]:
    """Canonical host, port, and whether the host is a literal address."""
    parts = _AUTHORITY.fullmatch(authority)
    if not parts:
        raise UnsafeURL("the URL is malformed: its host or port can't be read")
    port = int(parts[3] or default_port)
    if not 0 < port < 2**16:
        raise UnsafeURL("the URL's port must be between 1 and 65535")
    if parts[1] is not None:
        return _ipv6(parts[1]), port, True
    host = _ascii(parts[2])
    # Resolvers read a host that ends in a number as an address, in any spelling of inet_aton.
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _ipv4(host), port, True
    return host, port, False


def _ipv6(host: str) -> str:
    try:
        return str(IPv6Address(unquote(host, errors="strict").partition("%")[0]))
    except ValueError as error:
        raise UnsafeURL("the URL's IPv6 address is malformed") from error


def _ipv4(host: str) -> str:
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError as error:
        raise UnsafeURL("the URL's IPv4 address is malformed") from error


def _ascii(host: str) -> str:
    """A host as a resolver gets it: percent-decoded, IDNA (UTS 46), lower case, no final dot."""
    try:
        host = unquote(host, errors="strict")
        if not host.isascii() and len(host) <= 253:
            host = idna.encode(host, uts46=True).decode()
    except UnicodeError as error:  # IDNAError is one
        raise UnsafeURL("the URL's host name is malformed") from error
    host = host.lower().removesuffix(".")
    if not host:
        raise UnsafeURL("the URL has no host")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise UnsafeURL("the URL's host name is malformed")
    return host
