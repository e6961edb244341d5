"""The process's HTTP sessions, from the settings: `runtime[HTTP]`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from orazaka.outbound import Outbound
from orazaka.runtime import Resource, Runtime
from orazaka.urlsafety import Policy


@asynccontextmanager
async def open_http(runtime: Runtime) -> AsyncIterator[Outbound]:
    """Both sessions, closed with the runtime. A CA bundle that can't be read stops the start."""
    policy = Policy(
        allow_loopback=settings.OTARI_MCP_ALLOW_LOOPBACK,
        allow_private=settings.OTARI_MCP_ALLOW_PRIVATE_HOSTS,
    )
    proxy, ca_bundle = settings.ORAZAKA_HTTP_PROXY, settings.ORAZAKA_CA_BUNDLE
    try:
        outbound = Outbound(policy=policy, proxy=proxy, ca_bundle=ca_bundle)
    except OSError as error:
        raise ImproperlyConfigured(f"ORAZAKA_CA_BUNDLE can't be read: {error}") from error
    async with outbound:
        yield outbound


HTTP = Resource(open_http)
