"""`manage.py rotatesecrets`: bring every secret at rest to the first of ORAZAKA_SECRET_KEYS."""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import models, transaction
from rich.console import Console
from rich.progress import Progress

from orazaka.secrets import EncryptedTextField, NoSecretKey, WrongSecretKey, box, reencrypted

BATCH = 500


class Command(BaseCommand):
    help = (
        "Encrypt every stored secret anew with the first of ORAZAKA_SECRET_KEYS; afterwards the "
        "others can be taken out. All or nothing: one secret that no key opens stops it."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            box()
        except NoSecretKey as error:
            raise CommandError(str(error)) from None
        console = Console(stderr=True)
        quiet = not console.is_terminal
        with Progress(console=console, disable=quiet) as progress, transaction.atomic():
            count = sum(rotate(model, name, progress) for model, name in encrypted_fields())
        self.stdout.write(f"{count} secrets are under the first key")


def encrypted_fields() -> Iterator[tuple[type[models.Model], str]]:
    """Every encrypted field of every table."""
    for model in apps.get_models():
        if model._meta.managed and not model._meta.proxy:
            for field in model._meta.local_concrete_fields:
                if isinstance(field, EncryptedTextField):
                    yield model, field.name


def rotate(model: type[models.Model], name: str, progress: Progress) -> int:
    """Rotate one column, in batches whose rows are locked. Gives how many secrets it held."""
    raw = models.ExpressionWrapper(models.F(name), output_field=models.TextField())
    rows = (
        model._base_manager.annotate(raw_secret=raw)
        .exclude(raw_secret="")
        .exclude(raw_secret=None)
        .order_by("pk")
    )
    task = progress.add_task(f"{model._meta.label}.{name}", total=rows.count())
    done, last = 0, None
    while True:
        after = rows if last is None else rows.filter(pk__gt=last)
        batch = after.select_for_update().values_list("pk", "raw_secret")[:BATCH]
        for last, token in batch:
            _rewrite(model, name, last, token)
        if not batch:
            return done
        done += len(batch)
        progress.advance(task, len(batch))


def _rewrite(model: type[models.Model], name: str, pk: Any, token: str) -> None:
    try:
        new = reencrypted(token)
    except WrongSecretKey:
        raise CommandError(
            f"none of ORAZAKA_SECRET_KEYS opens {model._meta.label} {pk} ({name}); nothing was "
            "changed. Put the key back that it was written with, or clear the secret"
        ) from None
    value = models.Value(new, output_field=models.TextField())
    model._base_manager.filter(pk=pk).update(**{name: value})
