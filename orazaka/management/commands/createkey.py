"""`manage.py createkey`: an API key for a user, printed once (spec 5)."""

import json
from argparse import ArgumentTypeError
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from orazaka.apps import ADMINISTRATORS
from orazaka.models import ApiKey


def expiry(text: str) -> datetime:
    """An ISO 8601 time with its zone, in the future."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError("not an ISO 8601 time, such as 2030-01-31T12:00:00Z") from None
    if timezone.is_naive(when):
        raise ArgumentTypeError("needs a time zone, such as 2030-01-31T12:00:00Z")
    if when <= timezone.now():
        raise ArgumentTypeError("is in the past")
    return when


class Command(BaseCommand):
    help = "Make an API key for a user. The key is printed once and can't be had again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--create", action="store_true", help="make the user if need be")
        parser.add_argument(
            "--staff", action="store_true", help=f"let the user into the admin as {ADMINISTRATORS}"
        )
        parser.add_argument("--name", default="", help="what the key is used for")
        parser.add_argument("--expires", type=expiry, help="ISO 8601 time with zone")
        parser.add_argument("--json", action="store_true", help='print {"key": …, "id": …}')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with transaction.atomic():
                user = user_called(options["username"], create=options["create"])
                if options["staff"]:
                    make_staff(user)
                key, plain = ApiKey.objects.issue(
                    user, name=options["name"], expires_at=options["expires"]
                )
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
        answer = json.dumps({"key": plain, "id": key.pk})
        self.stdout.write(answer if options["json"] else plain)


def user_called(username: str, *, create: bool) -> User:
    """The user; made without a password if wished. Raises CommandError, ValidationError."""
    user = User.objects.filter(username=username).first()
    if user is None:
        if not create:
            raise CommandError(f"there is no user {username!r}; --create makes one")
        user = User(username=username)
        user.set_unusable_password()
        user.full_clean()
        user.save()
    if not user.is_active:
        raise CommandError(f"the user {username!r} is inactive: the key would open nothing")
    return user


def make_staff(user: User) -> None:
    """Let a user into the admin, with every permission."""
    group = Group.objects.filter(name=ADMINISTRATORS).first()
    if group is None:
        raise CommandError(f"there is no group {ADMINISTRATORS}; `manage.py migrate` makes it")
    user.is_staff = True
    user.save(update_fields=["is_staff"])
    user.groups.add(group)
