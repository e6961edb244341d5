"""One valid row of each kind; a test states only what matters to it."""

from typing import Any

import factory.declarations
from django.contrib.auth.models import Group, User
from factory.django import DjangoModelFactory

from orazaka.models import ApiKey


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User

    username = factory.declarations.Sequence(lambda n: f"user{n}")


class GroupFactory(DjangoModelFactory[Group]):
    class Meta:
        model = Group

    name = factory.declarations.Sequence(lambda n: f"group{n}")


def issue(user: User | None = None, **fields: Any) -> tuple[ApiKey, str]:
    """A key and its text, of a new user if none is given."""
    return ApiKey.objects.issue(user or UserFactory.create(), **fields)
