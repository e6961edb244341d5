"""System checks: settings that make no sense are named before they hurt."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.core.checks import CheckMessage

from orazaka.checks import public_url_is_sound, secrets_are_set, state_can_be_shared

SQLITE = {"default": {"ENGINE": "django.db.backends.sqlite3"}}
POSTGRESQL = {"default": {"ENGINE": "django.db.backends.postgresql"}}
MEMORY = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
REDIS = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache"}}


def found(messages: object) -> list[str]:
    """The ids, after a look at whether each says what to do."""
    ids = []
    for message in messages:  # type: ignore[attr-defined]
        assert isinstance(message, CheckMessage)
        assert message.hint
        ids.append(str(message.id))
    return ids


@pytest.mark.parametrize(
    ("secret_key", "keys", "ids"),
    [
        ("x" * 50, [Fernet.generate_key().decode()], []),
        ("x" * 50, [Fernet.generate_key().decode() for _ in range(3)], []),
        ("", [Fernet.generate_key().decode()], ["orazaka.E001"]),
        ("x" * 50, [], ["orazaka.E002"]),
        ("x" * 50, ["not a key"], ["orazaka.E002"]),
        ("x" * 50, [Fernet.generate_key().decode(), ""], ["orazaka.E002"]),
        ("", [], ["orazaka.E001", "orazaka.E002"]),
    ],
)
def test_secrets_have_to_be_set(secret_key: str, keys: list[str], ids: list[str], settings) -> None:
    settings.SECRET_KEY, settings.ORAZAKA_SECRET_KEYS = secret_key, keys
    assert found(secrets_are_set()) == ids


def test_a_malformed_key_is_not_repeated(settings) -> None:
    settings.ORAZAKA_SECRET_KEYS = ["almost-a-real-key"]
    assert "almost" not in str(list(secrets_are_set()))


@pytest.mark.parametrize(
    ("workers", "hosts", "databases", "caches", "ids"),
    [
        (1, False, SQLITE, MEMORY, []),
        (2, True, POSTGRESQL, REDIS, []),
        (2, False, SQLITE, REDIS, ["orazaka.E003"]),
        (1, True, SQLITE, REDIS, ["orazaka.E003"]),
        (2, False, POSTGRESQL, MEMORY, ["orazaka.E004"]),
        (1, True, POSTGRESQL, MEMORY, ["orazaka.E004"]),
        (4, True, SQLITE, MEMORY, ["orazaka.E003", "orazaka.E004"]),
    ],
)
def test_several_workers_or_hosts_need_what_they_can_share(
    workers: int,
    hosts: bool,
    databases: object,
    caches: object,
    ids: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = SimpleNamespace(
        WEB_CONCURRENCY=workers, ORAZAKA_SEVERAL_HOSTS=hosts, DATABASES=databases, CACHES=caches
    )
    monkeypatch.setattr("orazaka.checks.settings", settings)
    assert found(state_can_be_shared()) == ids


@pytest.mark.parametrize(
    ("url", "hosts", "ids"),
    [
        ("http://127.0.0.1:8000", ["127.0.0.1"], []),
        ("http://localhost:8000", ["localhost"], []),
        ("http://[::1]:8000", ["[::1]"], []),
        ("https://llm.example.com", ["llm.example.com"], []),
        ("https://llm.example.com", [".example.com"], []),
        ("https://llm.example.com", ["*"], []),
        ("https://llm.example.com", ["127.0.0.1"], ["orazaka.W001"]),
        ("http://llm.example.com", ["llm.example.com"], ["orazaka.E005"]),
        ("http://10.0.0.1:8000", ["10.0.0.1"], ["orazaka.E005"]),
        ("http://127.0.0.1.example.com", ["*"], ["orazaka.E005"]),
        ("llm.example.com", ["*"], ["orazaka.E006"]),
        ("ftp://llm.example.com", ["*"], ["orazaka.E006"]),
        ("https://", ["*"], ["orazaka.E006"]),
        ("http://[broken", ["*"], ["orazaka.E006"]),
        ("", ["*"], ["orazaka.E006"]),
    ],
)
def test_the_public_url_has_to_be_safe_and_answered(
    url: str, hosts: list[str], ids: list[str], settings
) -> None:
    settings.ORAZAKA_PUBLIC_URL, settings.ALLOWED_HOSTS = url, hosts
    assert found(public_url_is_sound()) == ids


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check` as an operator runs it."""
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        env={"PATH": os.environ["PATH"], "ORAZAKA_DOTENV": "", **environment},
        cwd=django_settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_deployment_without_any_variable_is_told_what_to_set() -> None:
    result = check()
    assert result.returncode == 1
    assert "orazaka.E001" in result.stderr
    assert "orazaka.E002" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_sensible_deployment_is_clean() -> None:
    result = check(
        SECRET_KEY="k9" + "abcdefghij0123456789" * 3,
        ORAZAKA_SECRET_KEYS=Fernet.generate_key().decode(),
        ORAZAKA_PUBLIC_URL="https://llm.example.com",
        ALLOWED_HOSTS="llm.example.com",
        DATABASE_URL="postgres://orazaka@127.0.0.1/orazaka",
        CACHE_URL="redis://127.0.0.1:6379/0",
        WEB_CONCURRENCY="4",
    )
    assert result.stderr == ""
    assert result.returncode == 0
