"""The gateway app: what LLM clients talk to."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        # Parts of the snapshot, resources of the runtime and periodic work are declared at import.
        from gateway import listing, retention, turn  # noqa: F401
