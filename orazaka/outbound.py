"""HTTP out: one aiohttp session per kind of peer, entered once per process.

`guarded` is for URLs that callers choose: the guard stands at every connect, no proxy, nothing from
the environment. `trusted` is for those that the operator set: private addresses and loopback are
fine, a proxy and a CA bundle may be needed. Neither follows redirects or keeps cookies.
"""

import ssl
from ipaddress import ip_address
from typing import Self

import aiohttp

from orazaka.faults import Blocked, Redirected, explain, refused
from orazaka.guard import (
    KEEP_SECONDS,
    GuardedResolver,
    Lookup,
    guarded_socket,
    refuse_redirects,
)
from orazaka.sdk_client import UnsafeHeader, sdk_client
from orazaka.sdk_transport import Code, Failed
from orazaka.urlsafety import Policy, SafeForm, check_form

__all__ = [
    "Blocked",
    "Code",
    "Failed",
    "Outbound",
    "Redirected",
    "UnsafeHeader",
    "explain",
    "refused",
    "sdk_client",
]

CONNECT_SECONDS = 5.0  # name, TCP and TLS together (spec 2.2)
READ_SECONDS = 300.0  # silence; callers give their own limits


class Outbound:
    """The process's HTTP sessions: `async with Outbound(policy=…) as outbound`.

    A redirect raises Redirected (an aiohttp.ClientError), whatever the caller asked for. A refusal
    of the guard looks like a failed connect: `refused(error)` tells. `lookup` and `keep` replace
    the system's resolver and how long its answers are kept. A CA bundle that can't be read is an
    OSError.
    """

    guarded: aiohttp.ClientSession
    trusted: aiohttp.ClientSession

    def __init__(
        self,
        *,
        policy: Policy,
        proxy: str = "",
        ca_bundle: str = "",
        lookup: Lookup | None = None,
        keep: float = KEEP_SECONDS,
    ) -> None:
        self._policy = policy
        self._proxy = proxy
        self._certificates = _certificates(ca_bundle) if ca_bundle else True
        self._names = GuardedResolver(policy, lookup=lookup, keep=keep)

    async def __aenter__(self) -> Self:
        self.guarded = _session(
            aiohttp.TCPConnector(
                limit=0,
                use_dns_cache=False,  # the resolver keeps its answers, for `check` too
                resolver=self._names,
                socket_factory=guarded_socket(self._policy),
            )
        )
        self.trusted = _session(
            aiohttp.TCPConnector(limit=0, ssl=self._certificates), proxy=self._proxy or None
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.guarded.close()
        await self.trusted.close()
        await self._names.close()

    async def check(self, url: str, *, has_secret: bool) -> SafeForm:
        """Judge a caller's URL, its name's addresses included; the canonical form comes back.

        Raises UnsafeURL; UnresolvedHost, one of them, if the name has no address within 5 s. What
        was found is kept for 10 s, so a connect that follows goes to the addresses judged here.
        """
        form = check_form(url, has_secret=has_secret, policy=self._policy)
        if not form.literal:
            await self._names.addresses(form.host)
        return form


def _session(connector: aiohttp.TCPConnector, *, proxy: str | None = None) -> aiohttp.ClientSession:
    middlewares = [refuse_redirects, _direct_to_this_host] if proxy else [refuse_redirects]
    return aiohttp.ClientSession(
        connector=connector,
        proxy=proxy,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "orazaka"},
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
        middlewares=middlewares,
    )


def _certificates(bundle: str) -> ssl.SSLContext:
    """The system's authorities and those of a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=bundle)
    return context


async def _direct_to_this_host(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Middleware: a proxy can't reach this host's loopback, where local model servers listen."""
    if _is_this_host(request.url.raw_host or ""):
        request.update_proxy(None, None, None)
    return await send(request)


def _is_this_host(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
