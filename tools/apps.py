from django.apps import AppConfig


class ToolsConfig(AppConfig):
    """What a tool is, which exist, how one call is made."""

    name = "tools"
