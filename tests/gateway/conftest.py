"""What whole turns need."""

from collections.abc import Iterator

import pytest

from tests.wires.strict import StrictProvider


@pytest.fixture
def provider(settings) -> Iterator[StrictProvider]:
    """The strict provider, as `openai:strict-1` of the gateway."""
    with StrictProvider(key="sk-upstream") as provider:
        settings.OPENAI_API_KEY = "sk-upstream"
        settings.OPENAI_BASE_URL = provider.url + "/v1"
        settings.ORAZAKA_DRAIN_SECONDS = 1
        yield provider
