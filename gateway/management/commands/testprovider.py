"""`manage.py testprovider`: ask a provider for its models, and say in plain words what came."""

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway import providers
from gateway.models import Provider, ProviderTest
from gateway.probe import probe_alone


class Command(BaseCommand):
    help = "Test a provider, of a row or of the environment. Exit code 1 if it does not work."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *, name: str, **_: Any) -> None:
        row = Provider.objects.filter(name=name).first()
        peer = providers.as_peer(row) if row else providers.from_environment().get(name)
        if peer is None:
            known = sorted({*providers.from_environment(), *Provider.objects.names()})
            raise CommandError(f"no provider {name!r}; there are: {', '.join(known) or 'none'}")
        outcome = asyncio.run(probe_alone(peer))
        if row:
            ProviderTest.objects.note(row, ok=outcome.ok, words=outcome.words, ms=outcome.ms)
        if not outcome.ok:
            raise CommandError(outcome.words)
        self.stdout.write(f"{outcome.words} {outcome.ms:.0f} ms")
        if row and not row.enabled:
            self.stdout.write("The provider is not enabled.")
