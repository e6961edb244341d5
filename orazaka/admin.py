"""API keys, users and groups in the admin. A key is shown once, on the page that made it."""

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminTextareaWidget

from orazaka.lines import Lines
from orazaka.models import ApiKey, ApiKeys

LIMITS = ("scopes", "allowed_models", "requests_per_minute", "expires_at")

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class OrazakaUserAdmin(UserAdmin, ModelAdmin):  # type: ignore[type-arg]  # stubs only
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class OrazakaGroupAdmin(GroupAdmin, ModelAdmin):
    pass


class KeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A key can do what its user can: nobody makes one for a user who may more than himself."""

    maker: User
    allowed_models = Lines(
        help_text="One a line, such as openai:gpt-5 or demo:*. Empty: every model."
    )

    class Meta:
        model = ApiKey
        widgets = {"scopes": UnfoldAdminTextareaWidget({"rows": 2})}
        fields = ("user", "name", *LIMITS)

    def clean_user(self) -> User:
        user: User = self.cleaned_data["user"]
        if self.maker.is_superuser or user == self.maker:
            return user
        if user.is_superuser or not user.get_all_permissions() <= self.maker.get_all_permissions():
            raise forms.ValidationError("This user may more than you: only they can make a key.")
        return user


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    """Never lists or searches digests."""

    form = KeyForm
    change_form_template = "admin/orazaka/key.html"
    empty_words = "A key lets a client use /v1 and /api. It is shown once, when it is made."
    list_display = ("hint", "state", "name", "user", "last_used", "may", "expires_at")
    list_filter = ("revoked_at", "created_at")
    list_select_related = ("user", "use")
    search_fields = ("name", "hint", "user__username")
    autocomplete_fields = ("user",)
    add_fieldsets = (
        (None, {"fields": ("user", "name")}),
        ("Limits", {"fields": LIMITS}),
    )
    fieldsets = (
        (None, {"fields": ("user", "name", "hint", "created_at", "revoked_at", "last_used")}),
        ("Limits", {"fields": LIMITS}),
    )
    readonly_fields = ("hint", "created_at", "revoked_at", "last_used")
    ordering = ("-created_at",)
    actions = ("revoke",)

    class Media:
        css: dict[str, Iterable[str]] = {"all": ("orazaka/admin.css",)}

    @display(
        description="state",
        label={
            "active": "success",
            "expired": "warning",
            "revoked": "danger",
            "inactive": "warning",
        },
    )
    def state(self, key: ApiKey) -> str:
        return key.state(timezone.now())

    @admin.display(description="scopes", ordering="scopes")
    def may(self, key: ApiKey) -> str:
        return ", ".join(key.scopes) or "none"

    @admin.display(description="last used", ordering="use__last_used_at", empty_value="never")
    def last_used(self, key: ApiKey) -> Any:
        use = getattr(key, "use", None)
        return use and use.last_used_at

    @admin.action(description="Revoke for good", permissions=["change"])
    def revoke(self, request: HttpRequest, keys: ApiKeys) -> None:
        count = keys.revoke()
        self.message_user(request, f"Revoked: {count}. They stop working within a second.")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A key stays its user's."""
        fixed = super().get_readonly_fields(request, obj)
        return (*fixed, "user") if obj else fixed

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return type(
            "KeyForm", (super().get_form(request, *args, **kwargs),), {"maker": request.user}
        )

    def get_custom_urls(self) -> Any:
        return (("<int:pk>/revoke", "orazaka_apikey_revoke", require_POST(self.revoke_one)),)

    def revoke_one(self, request: HttpRequest, pk: int, **_: Any) -> HttpResponse:
        """The button of a key's page."""
        key = get_object_or_404(ApiKey, pk=pk)
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        self.revoke(request, ApiKey.objects.filter(pk=pk))
        return redirect("admin:orazaka_apikey_change", pk)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        key: ApiKey | None = context.get("original")
        context |= {"state": key and key.state(timezone.now()), "show_save_and_add_another": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """A new row gets its key here; only its digest is stored."""
        if not change:
            obj.plain = obj.draw()  # for the answer of this request, and nowhere else
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> Any:
        """The key, in the answer itself: a redirect would need it stored somewhere."""
        context = {
            **self.admin_site.each_context(request),
            "title": "API key made",
            "opts": self.opts,
            "key": obj,
            "plain": obj.plain,
            "base": settings.ORAZAKA_PUBLIC_URL,
            "model": _first(obj.allowed_models) or "demo:demo",
            "list_url": reverse("admin:orazaka_apikey_changelist"),
        }
        return TemplateResponse(
            request,
            "admin/orazaka/key_made.html",
            context,
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )


def _first(models: list[str] | None) -> str:
    """A model that the key may use, to try it with; only what is plain in a shell."""
    return next((name for name in models or () if re.fullmatch(r"[A-Za-z0-9_.:/@-]+", name)), "")
