"""The gateway app: what LLM clients talk to."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        # Parts of the snapshot and periodic work are declared at import. What a turn needs is not
        # imported here: it is half of the start, and most commands run none.
        from gateway import providers, retention  # noqa: F401
