"""The sandbox app: writes that may be thrown away (spec 4)."""

from django.apps import AppConfig


class SandboxConfig(AppConfig):
    name = "sandbox"
