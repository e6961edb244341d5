"""`manage.py serve`: its arguments, and the checks before the start."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError

from orazaka.management.commands import serve as command
from orazaka.workers import configuration

pytestmark = pytest.mark.django_db  # some checks look into the database


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, settings) -> list[dict[str, Any]]:
    """How the server would be started."""
    settings.WEB_CONCURRENCY = 1  # so that it comes back after the test
    calls: list[dict[str, Any]] = []

    def serve(**how: Any) -> int:
        calls.append(how)
        return 0

    monkeypatch.setattr(command, "serve", serve)
    return calls


def test_it_serves_on_loopback_with_one_worker(served: list[dict[str, Any]]) -> None:
    call_command("serve")
    assert served == [{"host": "127.0.0.1", "port": 8000, "workers": 1}]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("--workers", number) for number in ("0", "-1", "many", "9999", "9" * 9999)],
        *[("--port", number) for number in ("65536", "http", "")],
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    option: str, value: str, served: list[dict[str, Any]]
) -> None:
    with pytest.raises(CommandError, match="must be a whole number from"):
        call_command("serve", f"{option}={value}")
    assert served == []


def test_several_workers_need_what_they_can_share(served: list[dict[str, Any]], settings) -> None:
    memory = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.CACHES = memory
    with pytest.raises(SystemCheckError, match=r"orazaka\.E004"):
        call_command("serve", "--workers", "2")
    assert served == []


def test_a_failed_start_is_the_commands_exit_code(
    monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    settings.WEB_CONCURRENCY = 1
    monkeypatch.setattr(command, "serve", lambda **_: 3)
    with pytest.raises(SystemExit) as ended:
        call_command("serve")
    assert ended.value.code == 3


def test_uvicorn_waits_longer_than_the_drain(settings) -> None:
    settings.ORAZAKA_DRAIN_SECONDS = 30.0
    config = configuration(host="127.0.0.1", port=0, workers=1)
    assert config.timeout_graceful_shutdown == 33
    assert config.log_config is None
