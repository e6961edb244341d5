"""API keys, the counters that say which configuration changed, and who does periodic work."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Self

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Length
from django.utils import timezone

SCOPES = ("gateway", "rest")
PREFIX = "ozk_"
HINT_LENGTH = len(PREFIX) + 6


def digest_of(key: str) -> str:
    """What is stored of a key: SHA-256 in hex. Keys are 256 random bits, so no salt or stretch."""
    return hashlib.sha256(key.encode()).hexdigest()


def every_scope() -> list[str]:
    """The scopes of a key that was made without naming any."""
    return list(SCOPES)


def check_scopes(value: object) -> None:
    """Refuse what is not a list of known scopes."""
    if not isinstance(value, list) or not set(value) <= set(SCOPES):
        raise ValidationError(f"must be a list out of {', '.join(SCOPES)}")


def check_models(value: object) -> None:
    """Refuse what is not a list of model names."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValidationError('must be a list such as ["openai:gpt-5"], or nothing for all')


class ApiKeys(models.QuerySet["ApiKey"]):
    """Verbs on keys."""

    def issue(
        self,
        user: User,
        *,
        name: str = "",
        scopes: Sequence[str] = SCOPES,
        allowed_models: Sequence[str] | None = None,
        requests_per_minute: int | None = None,
        expires_at: datetime | None = None,
    ) -> "tuple[ApiKey, str]":
        """Make a key. Gives the row and the key itself, which can't be had again.

        Raises ValidationError for a scope, model list or limit that makes no sense.
        """
        key = ApiKey(
            user=user,
            name=name,
            scopes=list(scopes),
            allowed_models=None if allowed_models is None else list(allowed_models),
            requests_per_minute=requests_per_minute,
            expires_at=expires_at,
        )
        plain = key.draw()
        key.full_clean()
        key.save(force_insert=True)
        return key, plain

    def owned_by(self, user: User) -> Self:
        """A user's keys, revoked and expired ones too, the newest first."""
        return self.filter(user=user).order_by("-created_at", "-pk")

    def usable(self, now: datetime) -> Self:
        """Keys that open something at that time: not revoked, not expired, of an active user."""
        unexpired = models.Q(expires_at=None) | models.Q(expires_at__gt=now)
        return self.filter(unexpired, revoked_at=None, user__is_active=True)

    def named(self, text: str) -> Self:
        """Those that a person means by an id, the beginning of a key, or a whole key."""
        if text.isascii() and text.isdigit():
            return self.filter(pk=int(text))
        if len(text) < len(PREFIX) + 1 or not text.startswith(PREFIX):
            return self.none()
        if len(text) > HINT_LENGTH:
            return self.filter(digest=digest_of(text))
        return self.filter(hint__startswith=text)

    def revoke(self) -> int:
        """Revoke them for good. Gives how many were not revoked before."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


class ApiKey(models.Model):
    """A key of one user: shown once, kept as a digest (spec 3.1)."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=100, blank=True, help_text="What it is used for.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    hint = models.CharField("key", max_length=16, editable=False)
    scopes = models.JSONField(
        default=every_scope,
        validators=[check_scopes],
        help_text="gateway: /v1 with models. rest: /api/v1.",
    )
    allowed_models = models.JSONField(
        null=True,
        blank=True,
        validators=[check_models],
        help_text='Such as ["openai:gpt-5", "demo:*"]; empty: every model.',
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: no limit."
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ApiKeys.as_manager()

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(
                name="api_key_digest_is_sha256",
                condition=models.lookups.Exact(Length("digest"), 64),
            ),
            models.CheckConstraint(
                name="api_key_limit_is_positive",
                condition=models.Q(requests_per_minute=None) | models.Q(requests_per_minute__gte=1),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name or 'key'} #{self.pk}"

    def state(self, now: datetime) -> str:
        """One word for people: active, expired, revoked or inactive (its user is)."""
        if self.revoked_at:
            return "revoked"
        if self.expires_at and self.expires_at <= now:
            return "expired"
        return "active" if self.user.is_active else "inactive"

    def draw(self) -> str:
        """Give the row a fresh random key; not saved. Returns the key."""
        plain = PREFIX + secrets.token_urlsafe(32)
        self.digest, self.hint = digest_of(plain), plain[:HINT_LENGTH]
        return plain


class ApiKeyUses(models.QuerySet["ApiKeyUse"]):
    """Verbs on last uses."""

    def touch(self, key_id: int, *, at: datetime) -> None:
        """Remember that a key was used; a key that is gone meanwhile is no error."""
        if ApiKey.objects.filter(pk=key_id).exists():
            self.bulk_create(
                [ApiKeyUse(key_id=key_id, last_used_at=at)],
                update_conflicts=True,
                unique_fields=["key"],
                update_fields=["last_used_at"],
            )


class ApiKeyUse(models.Model):
    """When a key was last used, to the minute.

    A table of its own: a use must not count as a change of configuration.
    """

    # Written behind requests: it must not make it fail to delete the key or its user meanwhile.
    key = models.OneToOneField(
        ApiKey,
        on_delete=models.CASCADE,
        primary_key=True,
        db_constraint=False,
        related_name="use",
    )
    last_used_at = models.DateTimeField()

    objects = ApiKeyUses.as_manager()

    def __str__(self) -> str:
        return f"use of key #{self.pk}"


class Leases(models.QuerySet["Lease"]):
    """Verbs on leases."""

    def take(self, name: str, *, holder: str, now: datetime, until: datetime) -> bool:
        """Become or stay the holder of work that is due. Gives whether that went."""
        self.get_or_create(name=name, defaults={"due_at": now, "until": now})
        free = models.Q(until__lte=now) | models.Q(holder=holder)
        mine = self.filter(free, name=name, due_at__lte=now).update(holder=holder, until=until)
        return bool(mine)

    def give_back(self, name: str, *, holder: str, now: datetime, due_at: datetime) -> None:
        """The work is done until then; nothing if someone else has taken over."""
        self.filter(name=name, holder=holder).update(holder="", until=now, due_at=due_at)


class Lease(models.Model):
    """Who does a periodic piece of work, and until when nobody else may (`periodic.py`)."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.CharField(max_length=64, blank=True)
    until = models.DateTimeField()
    due_at = models.DateTimeField()

    objects = Leases.as_manager()

    def __str__(self) -> str:
        return self.name


class Revision(models.Model):
    """How often a watched table changed: the sum of `number` over its rows.

    Written by triggers only (`revision.py`). A table may have several rows, so that two
    transactions that change it at the same time need not wait for each other.
    On SQLite a migration that rebuilds this table has to drop the triggers first.
    """

    watched = models.CharField(max_length=100, db_index=True)
    number = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.watched} {self.number}"
