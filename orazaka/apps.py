"""The project's own app."""

from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.apps.registry import Apps
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

ADMINISTRATORS = "Administrators"


class OrazakaConfig(AppConfig):
    name = "orazaka"
    verbose_name = "Orazaka"

    def ready(self) -> None:
        # Checks, parts of the snapshot, resources and periodic work are declared at import.
        from orazaka import auth, checks, cors, health, minutes, periodic, revision  # noqa: F401

        connection_created.connect(revision.listen_to)
        post_migrate.connect(revision.install, sender=self)
        # Once for every app, after Django made that app's permissions.
        post_migrate.connect(grant_administrators)


def grant_administrators(
    app_config: AppConfig, using: str, apps: Apps = installed, **_: Any
) -> None:
    """Receiver of `post_migrate`: the group Administrators has every permission there is.

    Here, not in a migration: permissions are made after migrations, and a flushed database gets
    the group back (`flush` does not say which `apps`).
    """
    try:
        group_model = apps.get_model("auth", "Group")
        permission_model = apps.get_model("auth", "Permission")
    except LookupError:  # `migrate` was asked for a state without them
        return
    group, _created = group_model.objects.using(using).get_or_create(name=ADMINISTRATORS)
    missing = permission_model.objects.using(using).exclude(group=group)
    group.permissions.add(*missing)
