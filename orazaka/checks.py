"""Settings that make no sense together, found before they hurt (spec 5).

`manage.py check --deploy` runs all of them; those without `deploy=True` run before every command.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.http.request import validate_host

from orazaka.secrets import NoSecretKey, box

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@register(Tags.security)
def secrets_are_set(**_: Any) -> Iterator[CheckMessage]:
    """E001, E002."""
    try:
        missing = not settings.SECRET_KEY
    except ImproperlyConfigured:  # Django's way to say that it is empty
        missing = True
    if missing:
        yield Error(
            "SECRET_KEY is not set.",
            hint="Set it to 50 random characters or more; `make run` writes one into .env.",
            id="orazaka.E001",
        )
    try:
        box()
    except NoSecretKey as error:
        yield Error(
            "ORAZAKA_SECRET_KEYS is not set, or not a list of Fernet keys.",
            hint=str(error),
            id="orazaka.E002",
        )


@register(Tags.compatibility)
def state_can_be_shared(**_: Any) -> Iterator[CheckMessage]:
    """E003, E004: what one process holds can't serve several."""
    several = settings.WEB_CONCURRENCY > 1 or settings.ORAZAKA_SEVERAL_HOSTS
    if several and settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        yield Error(
            "Several workers or hosts can't share an SQLite database.",
            hint="Set DATABASE_URL to a PostgreSQL database, or WEB_CONCURRENCY=1 and "
            "ORAZAKA_SEVERAL_HOSTS=0.",
            id="orazaka.E003",
        )
    if several and "locmem" in settings.CACHES["default"]["BACKEND"]:
        yield Error(
            "Several workers or hosts can't share a cache in local memory.",
            hint="Set CACHE_URL to a Redis, such as redis://127.0.0.1:6379/0.",
            id="orazaka.E004",
        )


@register(Tags.security, deploy=True)
def public_url_is_sound(**_: Any) -> Iterator[CheckMessage]:
    """E005, E006, W001."""
    try:
        parts = urlsplit(settings.ORAZAKA_PUBLIC_URL)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield Error(
            "ORAZAKA_PUBLIC_URL is not a URL.",
            hint="Set it to where people reach this deployment, such as https://llm.example.com.",
            id="orazaka.E006",
        )
        return
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        yield Error(
            "ORAZAKA_PUBLIC_URL is http, and not on this machine: keys would travel in the open.",
            hint="Put TLS before it and set ORAZAKA_PUBLIC_URL to the https address.",
            id="orazaka.E005",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if not validate_host(host, settings.ALLOWED_HOSTS):
        yield Warning(
            "ALLOWED_HOSTS lacks the host of ORAZAKA_PUBLIC_URL: every request to it would be 400.",
            hint=f"Add it: ALLOWED_HOSTS={host}",
            id="orazaka.W001",
        )
