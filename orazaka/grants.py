"""Keys that are made by keys: none grants more than the one that made it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from orazaka.errors import OrazakaError
from orazaka.models import ApiKey


class ExceedsKey(OrazakaError):
    """More was asked for than the key that asks has itself."""

    status = 403
    code = "exceeds_key"


def issue(user: User, wish: Mapping[str, Any], *, maker: ApiKey | None) -> tuple[ApiKey, str]:
    """Make a key as `ApiKeys.issue` does. What the wish leaves out is as in the key that makes it;
    `maker` None is the user in person, who may grant everything.

    Raises ExceedsKey, whose `param` is the member of `wish`.
    """
    return ApiKey.objects.issue(user, **(wish if maker is None else _within(wish, maker)))


def _within(wish: Mapping[str, Any], maker: ApiKey) -> dict[str, Any]:
    granted = {}
    for name, fits in _FITS.items():
        own = getattr(maker, name)
        granted[name] = value = wish.get(name, own)
        if not fits(value, own):
            raise ExceedsKey("this key can't grant more than it has itself", param=name)
    return {**wish, **granted}


def _is_part(scopes: list[str], own: list[str]) -> bool:
    return set(scopes) <= set(own)


def _allows(models: list[str] | None, own: list[str] | None) -> bool:
    """Whether each of the models is allowed by its name or by its provider's `provider:*`."""
    if own is None or models is None:
        return own is None
    return all(name in own or f"{name.partition(':')[0]}:*" in own for name in models)


def _at_most[T: (int, datetime)](value: T | None, own: T | None) -> bool:
    if own is None or value is None:
        return own is None
    return value <= own


_FITS: dict[str, Callable[[Any, Any], bool]] = {
    "scopes": _is_part,
    "allowed_models": _allows,
    "requests_per_minute": _at_most,
    "expires_at": _at_most,
}
