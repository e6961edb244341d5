"""Providers to set up, turns to look at."""

from typing import ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline

from gateway.models import Provider, Turn, TurnStep


class ProviderForm(forms.ModelForm):  # type: ignore[type-arg]
    """The key is written, never shown: left empty it stays as it is."""

    api_key = forms.CharField(
        required=False,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text="Leave empty to keep the one that is stored.",
    )

    class Meta:
        model = Provider
        fields = (
            "name",
            "enabled",
            "chat_url",
            "messages_url",
            "responses_url",
            "api_key",
            "model_names",
            "default_headers",
            "connect_seconds",
            "first_byte_seconds",
            "silence_seconds",
            "turn_seconds",
        )

    def clean_api_key(self) -> str:
        return self.cleaned_data["api_key"] or self.instance.api_key or ""


@admin.register(Provider)
class ProviderAdmin(ModelAdmin):
    form = ProviderForm
    list_display = ("name", "enabled", "chat_url", "messages_url", "responses_url")
    list_filter = ("enabled",)
    search_fields = ("name",)


class ReadOnly:
    """Records are looked at, not made or changed."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


class TurnStepInline(ReadOnly, TabularInline):
    model = TurnStep
    ordering = ("position",)
    fields = ("kind", "name", "server", "outcome", "started_ms", "duration_ms", "detail")
    extra = 0


@admin.register(Turn)
class TurnAdmin(ReadOnly, ModelAdmin):
    list_display = (
        "started_at",
        "user",
        "model",
        "wire",
        "streamed",
        "status",
        "rounds",
        "tool_calls",
        "duration_ms",
    )
    list_filter = ("status", "wire", "streamed")
    list_select_related = ("user",)
    search_fields = ("request_id", "model", "error_code")
    ordering = ("-started_at",)
    show_full_result_count = False
    inlines: ClassVar = [TurnStepInline]
