"""API keys, users and groups in the admin. A key is shown once, on the page after it was made."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from orazaka.models import ApiKey, ApiKeys

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


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    """Never lists or searches digests."""

    list_display = ("hint", "name", "user", "scopes", "state", "last_used", "expires_at")
    list_filter = ("revoked_at", "created_at")
    list_select_related = ("user", "use")
    search_fields = ("name", "hint", "user__username")
    autocomplete_fields = ("user",)
    fields = (
        "user",
        "name",
        "scopes",
        "allowed_models",
        "requests_per_minute",
        "expires_at",
        "hint",
        "created_at",
        "revoked_at",
        "last_used",
    )
    readonly_fields = ("hint", "created_at", "revoked_at", "last_used")
    ordering = ("-created_at",)
    actions = ("revoke",)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        return key.state(timezone.now())

    @admin.display(description="last used", ordering="use__last_used_at", empty_value="never")
    def last_used(self, key: ApiKey) -> Any:
        use = getattr(key, "use", None)
        return use and use.last_used_at

    @admin.action(description="Revoke for good", permissions=["change"])
    def revoke(self, request: HttpRequest, keys: ApiKeys) -> None:
        count = keys.revoke()
        self.message_user(request, f"Revoked: {count}. They stop working within a second.")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """A new row gets its key here; only its digest is stored."""
        plain = "" if change else obj.draw()
        super().save_model(request, obj, form, change)
        if plain:
            text = f"This is the key. It is shown only now: {plain}"
            self.message_user(request, text, level=messages.WARNING)
