"""Providers to set up and to test, turns to look at."""

from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin
from unfold.decorators import display

from gateway.models import Provider, Providers, ProviderTest, Turn
from gateway.presets import PRESETS, Preset
from gateway.probe import probe_alone
from gateway.provider_form import URLS, ProviderForm
from gateway.providers import as_peer
from gateway.waterfall import duration, waterfall
from orazaka.models import ApiKey

STYLES: dict[str, Iterable[str]] = {"all": ("orazaka/admin.css",)}
SECRETS = ("api_key", "default_headers")  # headers may hold some too
MOST_TESTED = 5  # at once: a person waits, and each may take its ten seconds


@admin.register(Provider)
class ProviderAdmin(ModelAdmin):
    """One provider a row, with how its last test went."""

    form = ProviderForm
    change_form_template = "admin/gateway/provider.html"
    empty_words = (
        "Add one to use its models as provider:model. Keys in the environment (OPENAI_API_KEY, "
        "ANTHROPIC_API_KEY) make providers appear without a row."
    )
    list_display = ("name", "state", "wires", "models", "last_test", "tested")
    list_filter = ("enabled",)
    list_select_related = ("test",)
    search_fields = ("name",)
    ordering = ("name",)
    actions = ("test_chosen", "enable", "disable")
    fieldsets = (
        (None, {"fields": ("name", "enabled", "api_key")}),
        ("Where it answers", {"fields": tuple(URLS.values())}),
        ("Models and headers", {"fields": ("model_names", "default_headers")}),
        (
            "Limits, in seconds",
            {
                "fields": (
                    ("connect_seconds", "first_byte_seconds"),
                    ("silence_seconds", "turn_seconds"),
                )
            },
        ),
    )

    class Media:
        css = STYLES

    @display(description="state", ordering="enabled", label={"on": "success", "off": "warning"})
    def state(self, provider: Provider) -> str:
        return "on" if provider.enabled else "off"

    @display(description="wires")
    def wires(self, provider: Provider) -> str:
        return ", ".join(wire for wire, field in URLS.items() if getattr(provider, field)) or "none"

    @display(description="models")
    def models(self, provider: Provider) -> str:
        names = provider.model_names
        return "all" if names is None else f"{len(names)} named"

    @display(description="last test", label={"works": "success", "fails": "danger"})
    def last_test(self, provider: Provider) -> str | None:
        test: ProviderTest | None = getattr(provider, "test", None)
        if test is None:
            return None
        return "works" if test.ok else "fails"

    @admin.display(description="tested", empty_value="never", ordering="test__tested_at")
    def tested(self, provider: Provider) -> Any:
        test: ProviderTest | None = getattr(provider, "test", None)
        return test and test.tested_at

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Who only looks sees neither key nor headers, not even as read-only fields."""
        found = super().get_fieldsets(request, obj)
        may = self.has_change_permission(request, obj) if obj else True
        if may:
            return found
        return [
            (
                title,
                {
                    **options,
                    "fields": tuple(name for name in options["fields"] if name not in SECRETS),
                },
            )
            for title, options in found
        ]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        initial = super().get_changeform_initial_data(request)
        initial.pop("api_key", None)  # a link must not put one there
        preset = _preset(request)
        return {**initial, **preset.initial} if preset else initial

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        test = ProviderTest.objects.filter(provider_id=context.get("object_id") or 0).first()
        shown = {"presets": PRESETS.values(), "preset": _preset(request), "test": test}
        return super().render_change_form(request, {**context, **shown}, *args, **kwargs)

    def get_custom_urls(self) -> Any:
        return (("<int:pk>/test", "gateway_provider_test", require_POST(self.test_one)),)

    def test_one(self, request: HttpRequest, pk: int, **_: Any) -> HttpResponse:
        """The button of a provider's page."""
        provider = get_object_or_404(Provider, pk=pk)
        if not self.has_change_permission(request, provider):
            raise PermissionDenied
        self._test(request, provider)
        return redirect("admin:gateway_provider_change", pk)

    @admin.action(description="Test: ask for its models", permissions=["change"])
    def test_chosen(self, request: HttpRequest, providers: Providers) -> None:
        for provider in providers[:MOST_TESTED]:
            self._test(request, provider)

    def _test(self, request: HttpRequest, provider: Provider) -> None:
        outcome = async_to_sync(probe_alone)(as_peer(provider))
        ProviderTest.objects.note(provider, ok=outcome.ok, words=outcome.words, ms=outcome.ms)
        level = messages.SUCCESS if outcome.ok else messages.ERROR
        self.message_user(request, f"{provider.name}: {outcome.words}", level=level)

    @admin.action(description="Enable", permissions=["change"])
    def enable(self, request: HttpRequest, providers: Providers) -> None:
        self.message_user(request, f"Enabled: {providers.switch(on=True)}.")

    @admin.action(description="Disable", permissions=["change"])
    def disable(self, request: HttpRequest, providers: Providers) -> None:
        self.message_user(request, f"Disabled: {providers.switch(on=False)}.")


def _preset(request: HttpRequest) -> Preset | None:
    return PRESETS.get(request.GET.get("preset", ""))


@admin.register(Turn)
class TurnAdmin(ModelAdmin):
    """Records are looked at, not made or changed."""

    change_form_template = "admin/gateway/turn.html"
    empty_words = "Ask something: manage.py ask, or /v1/chat/completions with a key."
    list_display = (
        "started_at",
        "outcome",
        "model",
        "who",
        "took",
        "tokens",
        "rounds",
        "tool_calls",
        "wire",
    )
    list_filter = ("status", "wire", "streamed", "started_at")
    list_select_related = ("user",)
    search_fields = ("request_id", "model", "error_code", "user__username")
    ordering = ("-started_at",)
    date_hierarchy = None
    show_full_result_count = False
    fields = ()

    class Media:
        css = STYLES

    @display(
        description="status",
        ordering="status",
        label={"ok": "success", "error": "danger", "cancelled": "warning"},
    )
    def outcome(self, turn: Turn) -> str:
        return turn.status

    @admin.display(description="who", ordering="user")
    def who(self, turn: Turn) -> str:
        return str(turn.user) if turn.user else turn.principal

    @admin.display(description="took", ordering="duration_ms")
    def took(self, turn: Turn) -> str:
        return duration(turn.duration_ms)

    @admin.display(description="tokens in / out", ordering="prompt_tokens")
    def tokens(self, turn: Turn) -> str:
        return f"{turn.prompt_tokens:,} / {turn.completion_tokens:,}"

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        turn: Turn = context["original"]
        shown = {"facts": _facts(turn), "waterfall": waterfall(turn)}
        return super().render_change_form(request, {**context, **shown}, *args, **kwargs)


def _facts(turn: Turn) -> list[tuple[str, str]]:
    """What is known of a turn but its steps, in words."""
    key = ApiKey.objects.filter(pk=turn.key_id).first() if turn.key_id else None
    first = turn.first_output_ms
    facts = [
        ("status", turn.status),
        ("who", str(turn.user) if turn.user else turn.principal),
        ("key", str(key or (f"#{turn.key_id}, deleted" if turn.key_id else "none"))),
        ("began", f"{turn.started_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("took", duration(turn.duration_ms)),
        ("first output after", "none" if first is None else duration(first)),
        ("API", turn.wire + (", streamed" if turn.streamed else "")),
        ("model calls", str(turn.rounds)),
        ("tool calls", str(turn.tool_calls)),
        ("tokens in", f"{turn.prompt_tokens:,}"),
        ("tokens out", f"{turn.completion_tokens:,}"),
    ]
    more = {
        "read from cache": turn.cached_tokens,
        "written to cache": turn.cache_write_tokens,
        "for reasoning": turn.reasoning_tokens,
    }
    facts += [(name, f"{count:,}") for name, count in more.items() if count]
    return [*facts, ("request id", turn.request_id or "none"), ("turn", str(turn.pk))]
