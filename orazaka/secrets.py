"""Secrets at rest: a text field whose column holds Fernet tokens (spec 2.1).

`ORAZAKA_SECRET_KEYS`: the first key encrypts, all decrypt; `manage.py rotatesecrets` brings old
values to the first one.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models


class NoSecretKey(ImproperlyConfigured):
    """ORAZAKA_SECRET_KEYS holds no key, or one that is not a Fernet key."""


class WrongSecretKey(Exception):
    """A value that none of the keys opens: written under a key that is no longer listed."""


def box() -> MultiFernet:
    """The keys of the settings. Raises NoSecretKey."""
    return _box(tuple(settings.ORAZAKA_SECRET_KEYS))


@lru_cache(maxsize=8)
def _box(keys: Sequence[str]) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError:
        raise NoSecretKey(
            "ORAZAKA_SECRET_KEYS must hold one Fernet key or more, with commas between: each 32 "
            "random bytes in URL-safe base64. Make one with `openssl rand -base64 32 | tr +/ -_`"
        ) from None


def reencrypted(token: str) -> str:
    """The same secret under the first key. Raises WrongSecretKey."""
    try:
        return box().rotate(token).decode()
    except InvalidToken:
        raise WrongSecretKey from None


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]  # generic only in stubs
    """Text that is encrypted in the database; "" and NULL stay as they are.

    `max_length` limits the plain text, in forms and `full_clean`. Lookups but `isnull` are refused.
    Fixtures and serializers that list fields by themselves leave it out: a secret goes out only
    where code says so. Raises WrongSecretKey when a row is read whose key is gone.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "serialize": False})

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("serialize", None)
        return name, path, args, kwargs

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return value if value in (None, "") else box().encrypt(value.encode()).decode()

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        """The plain text."""
        if value in (None, ""):
            return value
        try:
            return box().decrypt(value).decode()
        except InvalidToken:
            raise WrongSecretKey(
                f"{self.model._meta.label}.{self.name} holds a value that none of "
                "ORAZAKA_SECRET_KEYS opens: put the key back that it was written with"
            ) from None

    def get_lookup(self, lookup_name: str) -> Any:
        """Only `isnull`: two encryptions of one secret are never equal."""
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else self._refuse()

    def get_transform(self, lookup_name: str) -> Any:
        """None is possible."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise FieldError(f"{self.name} is encrypted: it can't be searched, only isnull works")
