"""The gateway app: what LLM clients talk to."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        # Parts of the snapshot and resources of the runtime are declared at import.
        from gateway import listing, turn  # noqa: F401
