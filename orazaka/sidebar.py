"""The admin's sidebar: models in groups, only those that a person may see.

It knows no app: a model that is in no group here is shown under its app's name.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

Item = dict[str, Any]
# App label and model name → an icon of Material Symbols, which unfold brings along.
GROUPS: dict[str, dict[str, str]] = {
    "Gateway": {"gateway.Turn": "timeline", "gateway.Provider": "dns"},
    "Access": {"orazaka.ApiKey": "key", "auth.User": "person", "auth.Group": "group"},
}


def navigation(request: HttpRequest) -> list[Item]:
    """Groups with links, as unfold's `SIDEBAR` takes them."""
    models = {
        f"{app['app_label']}.{model['object_name']}": (str(app["name"]), model)
        for app in admin.site.get_app_list(request)
        for model in app["models"]
        if model.get("admin_url")
    }
    groups = [_group(title, icons, models) for title, icons in GROUPS.items()]
    grouped = {name for icons in GROUPS.values() for name in icons}
    rest: dict[str, dict[str, str]] = {}
    for name, (app, _) in models.items():
        if name not in grouped:
            rest.setdefault(app, {})[name] = "table_rows"
    groups += [_group(title, icons, models) for title, icons in rest.items()]
    return [group for group in groups if group["items"]]


def _group(title: str, icons: dict[str, str], models: dict[str, tuple[str, Any]]) -> Item:
    found: Iterable[tuple[str, Any]] = (
        (icon, models[name][1]) for name, icon in icons.items() if name in models
    )
    items = [
        {"title": str(model["name"]), "icon": icon, "link": model["admin_url"]}
        for icon, model in found
    ]
    return {"title": title, "separator": True, "items": items}
