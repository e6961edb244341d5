"""What fills the form of a new provider makes a good one."""

import pytest

from gateway.models import Provider
from gateway.presets import PRESETS, Preset
from gateway.providers import as_peer

ALL = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


@ALL
@pytest.mark.django_db
def test_a_preset_makes_a_row_that_is_valid_as_it_is(preset: Preset) -> None:
    row = Provider(**preset.initial)
    row.full_clean()
    assert as_peer(row).bases


@ALL
def test_keys_and_tokens_travel_encrypted(preset: Preset) -> None:
    urls = [url for url in (preset.chat, preset.messages, preset.responses) if url]
    if preset.local:
        assert all(url.startswith("http://127.0.0.1:") for url in urls)
    else:
        assert all(url.startswith("https://") for url in urls)


def test_every_provider_of_the_environment_has_a_preset() -> None:
    assert {"openai", "anthropic"} <= PRESETS.keys()
