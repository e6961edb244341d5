"""`manage.py revokekey`: stop an API key, on every worker within a second."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orazaka.models import ApiKey


class Command(BaseCommand):
    help = "Revoke an API key for good. It stops working within a second."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", help="its id, its beginning (ozk_…) or the whole key")

    def handle(self, *args: Any, **options: Any) -> None:
        found = list(ApiKey.objects.named(options["key"]))
        if not found:
            # What was typed may be a key: it is not repeated.
            raise CommandError("there is no such key; give its id or how it begins (ozk_…)")
        if len(found) > 1:
            ids = ", ".join(str(key.pk) for key in found)
            raise CommandError(f"several keys begin like that; give one of the ids {ids}")
        key = found[0]
        done = ApiKey.objects.filter(pk=key.pk).revoke()
        self.stdout.write(f"{key} ({key.hint}…) {'is revoked' if done else 'was revoked before'}")
