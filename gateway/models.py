"""Providers, what turns leave behind, and what a continuation needs."""

import re
import uuid
from datetime import datetime
from typing import ClassVar, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from orazaka.secrets import EncryptedTextField

AT_LEAST = MinValueValidator(0.1)  # seconds


def check_base_url(url: str) -> None:
    """Refuse what is not the base of an API. Names without a dot are fine: hosts of one's own."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for what is no port
    except ValueError:
        raise ValidationError("must be a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
        raise ValidationError("must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValidationError("must hold no user name, query or fragment")


def check_headers(value: object) -> None:
    """Refuse what can't be sent as headers."""
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValidationError('must be an object of texts, such as {"X-Title": "Orazaka"}')
    if not all(re.fullmatch(r"[A-Za-z0-9-]+", name) for name in value):
        raise ValidationError("names of headers are letters, digits and hyphens")
    if not all(one.isascii() and one.isprintable() for one in value.values()):
        raise ValidationError("values of headers are printable ASCII")


class Providers(models.QuerySet["Provider"]):
    """Verbs on providers."""

    def names(self) -> list[str]:
        """Those of all rows, enabled or not."""
        return list(self.order_by("name").values_list("name", flat=True))

    def switch(self, *, on: bool) -> int:
        """Enable or disable them. Gives how many."""
        return self.update(enabled=on)


class Provider(models.Model):
    """Somewhere that models answer: base URLs for each wire it speaks, and a key.

    A provider speaks a wire natively when it has a base URL for it (spec 3.1).
    """

    name = models.SlugField(max_length=64, unique=True, help_text="What stands before the colon.")
    chat_url = models.CharField(
        "chat URL",
        max_length=500,
        blank=True,
        validators=[check_base_url],
        help_text="Base URL of /chat/completions, with its version.",
    )
    messages_url = models.CharField(
        "messages URL",
        max_length=500,
        blank=True,
        validators=[check_base_url],
        help_text="Base URL of /messages, with its version.",
    )
    responses_url = models.CharField(
        "responses URL",
        max_length=500,
        blank=True,
        validators=[check_base_url],
        help_text="Base URL of /responses, with its version.",
    )
    api_key = EncryptedTextField(blank=True)
    enabled = models.BooleanField(default=True)
    model_names = models.JSONField(
        null=True, blank=True, help_text="Names of models; empty = whatever the provider has."
    )
    default_headers = models.JSONField(
        default=dict,
        blank=True,
        validators=[check_headers],
        help_text='Sent with every request, such as {"X-Title": "Orazaka"}.',
    )
    connect_seconds = models.FloatField(default=5, validators=[AT_LEAST])
    first_byte_seconds = models.FloatField(default=120, validators=[AT_LEAST])
    silence_seconds = models.FloatField(default=120, validators=[AT_LEAST])
    turn_seconds = models.FloatField(default=600, validators=[AT_LEAST])
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = Providers.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                name="provider_limits_are_positive",
                condition=models.Q(connect_seconds__gt=0)
                & models.Q(first_byte_seconds__gt=0)
                & models.Q(silence_seconds__gt=0)
                & models.Q(turn_seconds__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ProviderTests(models.QuerySet["ProviderTest"]):
    """Verbs on tests of providers."""

    def note(self, provider: Provider, *, ok: bool, words: str, ms: float) -> None:
        """Remember the last test of a provider."""
        values = {"ok": ok, "words": words[:500], "ms": ms, "tested_at": timezone.now()}
        self.update_or_create(provider=provider, defaults=values)


class ProviderTest(models.Model):
    """How a provider's last test went.

    A table of its own: a test must not count as a change of configuration.
    """

    provider = models.OneToOneField(
        Provider, on_delete=models.CASCADE, primary_key=True, related_name="test"
    )
    ok = models.BooleanField()
    words = models.CharField(max_length=500)
    ms = models.FloatField()
    tested_at = models.DateTimeField()

    objects = ProviderTests.as_manager()

    def __str__(self) -> str:
        return f"test of {self.provider_id}: {self.words}"


class TurnRows(models.QuerySet["Turn"]):
    """Verbs on turns."""

    def of(self, principal: str) -> Self:
        """A caller's own turns."""
        return self.filter(principal=principal)

    def too_old(self, before: datetime) -> Self:
        """Those that began before then, the oldest first."""
        return self.filter(started_at__lt=before).order_by("started_at")

    def prune(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest that began before then, with their steps. Gives how many."""
        ids = list(self.too_old(before).values_list("pk", flat=True)[:limit])
        self.filter(pk__in=ids).delete()
        return len(ids)


class Turn(models.Model):
    """One turn: who asked which model for what, how it ended and what it used (spec 3.7)."""

    class Status(models.TextChoices):
        OK = "ok"
        ERROR = "error"
        CANCELLED = "cancelled"  # the client left

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    request_id = models.CharField(max_length=128, blank=True)
    # Rows are written behind the turn: a user deleted meanwhile must not make them fail.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="turns",
    )
    principal = models.CharField(max_length=128)
    key_id = models.BigIntegerField(null=True)
    wire = models.CharField(max_length=16)
    model = models.CharField(max_length=255)
    streamed = models.BooleanField()
    status = models.CharField(max_length=16, choices=Status)
    error_code = models.CharField(max_length=64, blank=True)
    error = models.TextField(blank=True)
    rounds = models.PositiveSmallIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    cache_write_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    started_at = models.DateTimeField(db_index=True)
    duration_ms = models.FloatField()
    first_output_ms = models.FloatField(null=True)
    offered = models.JSONField(default=list)  # [{name, source, reason}]

    objects = TurnRows.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["principal", "-started_at"])]

    def __str__(self) -> str:
        return f"{self.wire} {self.model} {self.started_at:%Y-%m-%d %H:%M:%S}"


class TurnStep(models.Model):
    """One server asked, model called or tool run, in the order of their starts."""

    class Kind(models.TextChoices):
        SERVER = "server"
        MODEL = "model"
        TOOL = "tool"
        NOTE = "note"

    turn = models.ForeignKey(
        Turn, on_delete=models.CASCADE, db_constraint=False, related_name="steps"
    )
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind)
    name = models.CharField(max_length=255)
    server = models.CharField(max_length=128, blank=True)
    outcome = models.CharField(max_length=16)
    started_ms = models.FloatField()
    duration_ms = models.FloatField()
    detail = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "position"], name="one_step_per_position"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.outcome}"


class TailRows(models.QuerySet["Tail"]):
    """Verbs on tails."""

    def prune(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest that were kept before then. Gives how many."""
        old = self.filter(created_at__lt=before).order_by("created_at")
        ids = list(old.values_list("pk", flat=True)[:limit])
        self.filter(pk__in=ids).delete()
        return len(ids)


class Tail(models.Model):
    """What a turn appended that its client never saw, until the client comes back with the results
    of its own calls (design, decision 9). Found by caller and call id."""

    principal = models.CharField(max_length=128)
    wire = models.CharField(max_length=16)
    call_id = models.CharField(max_length=255)
    # Providers repeat call ids: what else must agree for a row to be the one that is meant.
    calls_digest = models.CharField(max_length=64)
    words_digest = models.CharField(max_length=64)
    turn_id = models.UUIDField()
    content = models.JSONField()  # {"messages": […], "after": […]}
    created_at = models.DateTimeField(db_index=True)

    objects = TailRows.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["principal", "call_id"])]

    def __str__(self) -> str:
        return f"tail of turn {self.turn_id}"
