"""API keys as JSON: what is shown of them, and what may be wished for. Names are camelCase."""

from datetime import datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from orazaka.models import SCOPES, ApiKey

MOST_MODELS = 1000
MOST_A_MINUTE = 2**31 - 1  # what the column holds


class KeySerializer(serializers.Serializer[Any]):
    """One API key, without the key itself."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    hint = serializers.CharField(help_text="How the key begins.")
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES))
    allowedModels = serializers.ListField(
        source="allowed_models", child=serializers.CharField(), allow_null=True
    )
    requestsPerMinute = serializers.IntegerField(source="requests_per_minute", allow_null=True)
    expiresAt = serializers.DateTimeField(source="expires_at", allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")
    lastUsedAt = serializers.DateTimeField(source="use.last_used_at", allow_null=True)
    revoked = serializers.SerializerMethodField()

    def get_revoked(self, key: ApiKey) -> bool:
        return key.revoked_at is not None


class MadeKeySerializer(KeySerializer):
    """The one answer that holds the key."""

    key = serializers.CharField(help_text="Shown only now.")


class Text(serializers.CharField):
    """A JSON text; DRF's own takes numbers too."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    """A JSON number without a fraction; DRF's own takes texts too."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class KeyWishSerializer(serializers.Serializer[Any]):
    """A key to be made. What is left out is as in the key that makes it, else unlimited."""

    name = Text(required=False, allow_blank=True, max_length=100, help_text="What it is used for.")
    scopes = serializers.ListField(
        required=False,
        min_length=1,
        max_length=len(SCOPES),
        child=serializers.ChoiceField(SCOPES),
        help_text="gateway: /v1 with models. rest: /api/v1.",
    )
    allowedModels = serializers.ListField(
        source="allowed_models",
        required=False,
        allow_null=True,
        max_length=MOST_MODELS,
        child=Text(max_length=255),
        help_text='Such as ["openai:gpt-5", "demo:*"]; null: every model.',
    )
    requestsPerMinute = Whole(
        source="requests_per_minute",
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST_A_MINUTE,
        help_text="null: no limit.",
    )
    expiresAt = serializers.DateTimeField(
        source="expires_at", required=False, allow_null=True, help_text="null: never."
    )

    def validate_scopes(self, scopes: list[str]) -> list[str]:
        return list(dict.fromkeys(scopes))

    def validate_expiresAt(self, when: datetime | None) -> datetime | None:
        if when is not None and when <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        return when
