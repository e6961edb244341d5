"""The form of a provider: lists as lines, and a key that is written and never shown."""

from typing import Any
from urllib.parse import urlsplit

from django import forms
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextareaWidget

from gateway.models import Provider
from orazaka.lines import Lines

Json = Any
URLS = {"chat": "chat_url", "messages": "messages_url", "responses": "responses_url"}


class ProviderForm(forms.ModelForm):  # type: ignore[type-arg]
    """The key is written, never shown: left empty it stays as it is."""

    api_key = forms.CharField(
        label="API key",
        required=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text="Stored encrypted, never shown. Leave it empty to keep the one that is stored.",
    )
    model_names = Lines(
        label="Models", help_text="One name a line. Empty: whatever the provider has."
    )

    class Meta:
        model = Provider
        widgets = {"default_headers": UnfoldAdminTextareaWidget({"rows": 3})}
        fields = (
            "name",
            "enabled",
            *URLS.values(),
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

    def clean_default_headers(self) -> Json:
        """Nothing, in whatever form, is no headers; what is something was judged by the model."""
        return self.cleaned_data["default_headers"] or {}

    def clean(self) -> Json:
        """A stored key must not go to a host that it was not typed for."""
        cleaned = super().clean() or self.cleaned_data
        typed = self.data.get(self.add_prefix("api_key"))
        if self.instance.pk and self.instance.api_key and not typed and self._goes_elsewhere():
            self.add_error("api_key", "The provider's host changed: type its key again.")
        return cleaned

    def _goes_elsewhere(self) -> bool:
        before = {_origin(str(self.initial.get(name) or "")) for name in URLS.values()}
        now = {_origin(str(self.cleaned_data.get(name) or "")) for name in URLS.values()}
        return not now <= before | {""}


def _origin(url: str) -> str:
    """Scheme, host and port; nothing for nothing."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower() if url else ""
