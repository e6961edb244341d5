"""The keys in memory: every usable key under its digest, with the caller it makes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from orazaka.caller import Caller
from orazaka.models import SCOPES, ApiKey
from orazaka.revision import Watch
from orazaka.snapshot import Part


@dataclass(frozen=True, slots=True)
class Key:
    """A usable key. `expires` is in seconds since the epoch, and judged at each use."""

    caller: Caller
    expires: float


def load_keys() -> Mapping[str, Key]:
    """The usable keys under their digests."""
    keys = list(ApiKey.objects.usable(timezone.now()).select_related("user"))
    permissions = permissions_of({key.user_id: key.user for key in keys}.values())
    return {key.digest: _key(key, permissions[key.user_id]) for key in keys}


def _key(key: ApiKey, permissions: frozenset[str]) -> Key:
    expires = key.expires_at.timestamp() if key.expires_at else math.inf
    return Key(as_caller(key.user, permissions, key=key), expires)


def as_caller(user: User, permissions: Iterable[str], *, key: ApiKey | None = None) -> Caller:
    """The caller that a user is, with what a key leaves of it; without one, everything."""
    caller = Caller(
        principal=f"user:{user.pk}",
        user_id=user.pk,
        username=user.get_username(),
        is_staff=user.is_staff,
        permissions=frozenset(permissions),
        scopes=frozenset(SCOPES),
    )
    if key is None:
        return caller
    models = key.allowed_models
    return replace(
        caller,
        scopes=frozenset(key.scopes),
        key_id=key.pk,
        models=None if models is None else frozenset(models),
        rate=key.requests_per_minute,
    )


def permissions_of(users: Iterable[User]) -> Mapping[int, frozenset[str]]:
    """What `User.get_all_permissions` gives for each, in four queries for all together."""
    names = {
        pk: f"{app}.{codename}"
        for pk, app, codename in Permission.objects.values_list(
            "pk", "content_type__app_label", "codename"
        )
    }
    groups = defaultdict[int, set[str]](set)
    for group, permission in Group.permissions.through.objects.values_list("group", "permission"):
        groups[group].add(names[permission])
    own = defaultdict[int, set[str]](set)
    for user, permission in User.user_permissions.through.objects.values_list("user", "permission"):
        own[user].add(names[permission])
    for user, group in User.groups.through.objects.values_list("user", "group"):
        own[user] |= groups[group]
    everything = frozenset(names.values())
    return {user.pk: everything if user.is_superuser else frozenset(own[user.pk]) for user in users}


KEYS = Part(
    "keys",
    load_keys,
    watches=(
        ApiKey,
        Watch(User, ignore=frozenset({"last_login", "password"})),
        User.groups.through,
        User.user_permissions.through,
        Group.permissions.through,
        Permission,
    ),
)
