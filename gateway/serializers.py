"""Turns as JSON, and what may be asked about them. Names are camelCase."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway.models import Turn, TurnStep

WIRES = ("chat", "messages", "responses", "rest")


class UsageSerializer(serializers.Serializer[Any]):
    """Tokens, summed over all rounds."""

    promptTokens = serializers.IntegerField(source="prompt_tokens")
    completionTokens = serializers.IntegerField(source="completion_tokens")
    cachedTokens = serializers.IntegerField(source="cached_tokens")
    cacheWriteTokens = serializers.IntegerField(source="cache_write_tokens")
    reasoningTokens = serializers.IntegerField(source="reasoning_tokens")


class TurnSerializer(serializers.Serializer[Any]):
    """One turn, without its steps."""

    id = serializers.UUIDField()
    requestId = serializers.CharField(source="request_id")
    user = serializers.CharField(source="user.username", allow_null=True, help_text="Who asked.")
    keyId = serializers.IntegerField(source="key_id", allow_null=True)
    wire = serializers.CharField()
    model = serializers.CharField()
    streamed = serializers.BooleanField()
    status = serializers.ChoiceField(Turn.Status.choices)
    errorCode = serializers.CharField(source="error_code", help_text="Empty without an error.")
    error = serializers.CharField()
    rounds = serializers.IntegerField(help_text="Model calls.")
    toolCalls = serializers.IntegerField(source="tool_calls")
    usage = UsageSerializer(source="*")
    startedAt = serializers.DateTimeField(source="started_at")
    durationMs = serializers.FloatField(source="duration_ms")
    firstOutputMs = serializers.FloatField(source="first_output_ms", allow_null=True)


class StepSerializer(serializers.Serializer[Any]):
    """A server asked, a model called, a tool run, or a note; times count from the turn's start."""

    kind = serializers.ChoiceField(TurnStep.Kind.choices)
    name = serializers.CharField()
    server = serializers.CharField()
    outcome = serializers.CharField()
    startedMs = serializers.FloatField(source="started_ms")
    durationMs = serializers.FloatField(source="duration_ms")
    detail = serializers.DictField()


class OfferedSerializer(serializers.Serializer[Any]):
    """A tool that the model was offered, and why."""

    name = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # the stubs' Field has one
    reason = serializers.CharField()


class WholeTurnSerializer(TurnSerializer):
    """One turn with the tools that it was offered and its steps in the order of their starts."""

    offered = serializers.SerializerMethodField()
    steps = StepSerializer(many=True)

    @extend_schema_field(OfferedSerializer(many=True))
    def get_offered(self, turn: Turn) -> Any:
        return turn.offered


class TurnsAskedSerializer(serializers.Serializer[Any]):
    """Filters of the list. Each narrows it."""

    status = serializers.ChoiceField(Turn.Status.choices, required=False)
    model = serializers.CharField(
        required=False, max_length=255, help_text="The whole name, such as openai:gpt-5."
    )
    wire = serializers.ChoiceField(WIRES, required=False)
    since = serializers.DateTimeField(
        source="started_at__gte", required=False, help_text="Turns that began then or later."
    )
