"""Which IP addresses a caller-chosen URL may lead to (spec 2.6): an address in, a rule out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the operator lifts: this host's loopback; RFC 1918, fc00::/7 and CGNAT. No more."""

    allow_loopback: bool = True
    allow_private: bool = False


_PRIVATE, _SHARED = "a private address", "a shared address (carrier-grade NAT)"
_LOOPBACK, _METADATA = "a loopback address", "a cloud metadata address"
_LINK_LOCAL, _MULTICAST = "a link-local address", "a multicast address"
_UNSPECIFIED, _RESERVED = "an unspecified address", "a reserved address"
_DOCUMENTATION, _SPECIAL = "a documentation address", "a special-purpose address"

# IANA's special-purpose registries, which `ipaddress` follows late and differently from version to
# version (is_global calls multicast, NAT64 and, on 3.12, 6to4 global). The first match counts, so
# metadata services come before the private networks that they live in.
_IPV4 = [
    (IPv4Network(network), rule)
    for rule, networks in [
        (_METADATA, "168.63.129.16 169.254.169.254 100.100.100.200 192.0.0.192"),
        (_UNSPECIFIED, "0.0.0.0/8"),
        (_LOOPBACK, "127.0.0.0/8"),
        (_PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"),
        (_SHARED, "100.64.0.0/10"),
        (_LINK_LOCAL, "169.254.0.0/16"),
        (_DOCUMENTATION, "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24"),
        # protocol assignments, 6to4 relays, AS112, AMT, benchmarking
        (_SPECIAL, "192.0.0.0/24 192.88.99.0/24 192.31.196.0/24 192.175.48.0/24"),
        (_SPECIAL, "192.52.193.0/24 198.18.0.0/15"),
        (_MULTICAST, "224.0.0.0/4"),
        (_RESERVED, "240.0.0.0/4"),
    ]
    for network in networks.split()
]
_IPV6 = [
    (IPv6Network(network), rule)
    for rule, networks in [
        # the IPv6 spellings of AWS, Google, Oracle and Scaleway
        (_METADATA, "fd00:ec2::/32 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42"),
        (_UNSPECIFIED, "::"),
        (_LOOPBACK, "::1"),
        (_PRIVATE, "fc00::/7"),
        (_LINK_LOCAL, "fe80::/10"),
        (_MULTICAST, "ff00::/8"),
        (_DOCUMENTATION, "2001:db8::/32 3fff::/20"),
        # protocol assignments (ORCHID, benchmarking, AMT), AS112, 6bone
        (_SPECIAL, "2001::/23 2620:4f:8000::/48 3ffe::/16"),
        # all but 2000::/3, the only global unicast that IANA gives out
        (_RESERVED, "::/3 4000::/2 8000::/1"),
    ]
    for network in networks.split()
]
_COMPATIBLE, _TRANSLATED = IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96")
_NAT64, _LOCAL_NAT64 = IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR, _TEREDO = IPv6Network("2002::/16"), IPv6Network("2001::/32")


def refusal(address: str, policy: Policy) -> str | None:
    """The rule in words by which an IP address is refused ("a private address"), or None."""
    try:
        return _refusal(ip_address(address.partition("%")[0]), policy)
    except ValueError:
        return "something that is no IP address"


def answer_refusal(addresses: Iterable[str], policy: Policy) -> str | None:
    """The rule by which a name is refused: *every* address of a resolver's answer must be allowed.

    An empty answer is nobody's to judge here: None.
    """
    return next((rule for address in addresses if (rule := refusal(address, policy))), None)


def _refusal(address: IPv4Address | IPv6Address, policy: Policy) -> str | None:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:  # the system connects to the inner address itself
            return _refusal(address.ipv4_mapped, policy)
        if inner := _inner(address):
            # Behind a translator or relay, 127.0.0.1 is another machine's, not the loopback meant.
            strict = replace(policy, allow_loopback=False)
            return next((rule for each in inner if (rule := _refusal(each, strict))), None)
        rule = next((rule for network, rule in _IPV6 if address in network), None)
    else:
        rule = next((rule for network, rule in _IPV4 if address in network), None)
    lifted = (rule == _LOOPBACK and policy.allow_loopback) or (
        rule in (_PRIVATE, _SHARED) and policy.allow_private
    )
    return None if lifted else rule


def _inner(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that a translator or relay would read out of an IPv6 address."""
    packed = address.packed
    if address in _SIX_TO_FOUR:  # RFC 3056
        return [IPv4Address(packed[2:6])]
    if address in _TEREDO:  # RFC 4380: the server's, and the client's with all bits turned
        return [IPv4Address(packed[4:8]), IPv4Address(bytes(255 - byte for byte in packed[12:]))]
    if address in _LOCAL_NAT64:
        return _local_nat64(packed)
    wrapped = address in _NAT64 or address in _TRANSLATED
    if wrapped or (address in _COMPATIBLE and int(address) > 1):
        return [IPv4Address(packed[12:])]
    return []


def _local_nat64(packed: bytes) -> list[IPv4Address]:
    """Every reading of RFC 6052, since which of them a network uses can't be told (RFC 8215).

    A reading that begins with a zero byte is padding, unless there is no other.
    """
    no_u = packed[:8] + packed[9:]  # the octet that RFC 6052 skips
    readings = [no_u[6:10], no_u[7:11], no_u[8:12], packed[12:16]]
    return [IPv4Address(r) for r in readings if r[0]] or [IPv4Address(packed[12:16])]
