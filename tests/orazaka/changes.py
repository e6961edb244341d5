"""Every way to change what a key is worth, by name: for tests of who notices, and how soon."""

from collections.abc import Callable

from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.utils import timezone

from orazaka.models import ApiKey
from tests.factories import GroupFactory, UserFactory, issue


class Scene:
    """A user with a key, and a group that the user is not in yet."""

    def __init__(self) -> None:
        self.permission = Permission.objects.get(codename="add_logentry")
        self.user = UserFactory.create()
        self.key, self.plain = issue(self.user)
        self.group: Group = GroupFactory.create()
        self.group.permissions.add(self.permission)


def save(scene: Scene) -> None:
    scene.key.revoked_at = timezone.now()
    scene.key.save()


def update(scene: Scene) -> None:
    ApiKey.objects.filter(pk=scene.key.pk).revoke()


def bulk_update(scene: Scene) -> None:
    scene.key.revoked_at = timezone.now()
    ApiKey.objects.bulk_update([scene.key], ["revoked_at"])


def delete(scene: Scene) -> None:
    scene.key.delete()


def cascade(scene: Scene) -> None:
    scene.user.delete()


def deactivate(scene: Scene) -> None:
    User.objects.filter(pk=scene.user.pk).update(is_active=False)


def raw(scene: Scene) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orazaka_apikeyuse")
        cursor.execute("DELETE FROM orazaka_apikey WHERE id = %s", [scene.key.pk])


def transaction_of_several(scene: Scene) -> None:
    with transaction.atomic():
        scene.user.first_name = "Gone"
        scene.user.save()
        with transaction.atomic():
            ApiKey.objects.filter(pk=scene.key.pk).revoke()


def into_group(scene: Scene) -> None:
    scene.user.groups.add(scene.group)


def own_permission(scene: Scene) -> None:
    scene.user.user_permissions.add(scene.permission)


def superuser(scene: Scene) -> None:
    User.objects.filter(pk=scene.user.pk).update(is_superuser=True)


def group_permission(scene: Scene) -> None:
    """In two steps, of which the second is what has to be noticed."""
    scene.group.permissions.clear()
    scene.user.groups.add(scene.group)
    scene.group.permissions.add(scene.permission)


STOPPING: dict[str, Callable[[Scene], None]] = {
    change.__name__: change
    for change in (
        save,
        update,
        bulk_update,
        delete,
        cascade,
        deactivate,
        raw,
        transaction_of_several,
    )
}
GRANTING: dict[str, Callable[[Scene], None]] = {
    change.__name__: change for change in (into_group, own_permission, superuser, group_permission)
}
