"""Logs: one JSON line a record, whoever logs, and no secret in it."""

import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import structlog
from django.conf import settings as django_settings
from structlog.contextvars import bound_contextvars

from orazaka.logs import HIDDEN, configure, redacted

KEY = "ozk_" + "Ab3-_x" * 7
SK = "sk-proj-" + "Ab3" * 10


@pytest.fixture
def stderr() -> Iterator[StringIO]:
    """What the server would write to stderr."""
    root = logging.getLogger()
    handlers, level, out = root.handlers[:], root.level, StringIO()
    configure({"level": "INFO"})
    [handler] = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    handler.setStream(out)
    yield out
    configure(django_settings.LOGGING)
    root.handlers[:], root.level = handlers, level


def lines(stderr: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stderr.getvalue().splitlines()]


@pytest.mark.parametrize("name", ["gateway", "django.request", "uvicorn.error", "aiohttp.client"])
def test_everyones_records_are_json_on_stderr(name: str, stderr: StringIO) -> None:
    with bound_contextvars(request_id="r1"):
        logging.getLogger(name).warning("%s of %d\nlines", "one", 2)
    [line] = lines(stderr)
    assert line.pop("timestamp")
    assert line == {
        "event": "one of 2\nlines",
        "level": "warning",
        "logger": name,
        "request_id": "r1",
    }


def test_structlog_goes_the_same_way(stderr: StringIO) -> None:
    structlog.get_logger("tests").info("turn over", rounds=2, principal="user:1")
    [line] = lines(stderr)
    assert (line["event"], line["rounds"], line["principal"]) == ("turn over", 2, "user:1")
    assert (line["logger"], line["level"]) == ("tests", "info")


def test_the_level_counts_and_access_lines_are_left_out(stderr: StringIO) -> None:
    logging.getLogger("gateway").debug("details")
    structlog.get_logger("gateway").debug("details")
    logging.getLogger("uvicorn.access").info("GET /")
    assert lines(stderr) == []


def test_a_traceback_is_one_member_of_the_line_without_secrets(
    stderr: StringIO,
) -> None:
    try:
        raise ValueError(f"refused {KEY}")
    except ValueError:
        logging.getLogger("gateway").exception("failed")
    [line] = lines(stderr)
    assert "ValueError: refused [hidden]" in line["exception"]
    assert KEY not in str(line)


@pytest.mark.parametrize(
    ("message", "args"),
    [
        (f"key {KEY} refused", ()),
        ("key %s refused", (KEY,)),
        ("sent %s", ({"x-api-key": SK},)),
        (f"Authorization: Bearer {SK}", ()),
        ("headers %r", ([("authorization", f"bearer {KEY}")],)),
        ("Bearer  opaque-token.of.someone", ()),
    ],
)
def test_no_message_holds_a_key(message: str, args: tuple[object, ...], stderr: StringIO) -> None:
    logging.getLogger("gateway").warning(message, *args)
    output = stderr.getvalue()
    assert HIDDEN in output
    for secret in (KEY, SK, "opaque-token"):
        assert secret not in output


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Authorization",
        "token",
        "auth_token",
        "authToken",
        "api_key",
        "x-api-key",
        "password",
        "client_secret",
        "Set-Cookie",
    ],
)
def test_what_goes_under_a_secrets_name_is_hidden_at_any_depth(name: str) -> None:
    assert redacted({name: "plain"}) == {name: HIDDEN}
    assert redacted({"a": [{"b": {name: ["plain"]}}]}) == {"a": [{"b": {name: HIDDEN}}]}


@pytest.mark.parametrize(
    "harmless",
    [
        {"prompt_tokens": 100, "token": 3, "tokens": "many"},
        {"key_id": 7, "keys": "k", "secretary": "Ada", "authorized": "yes"},
        {"event": "disk-full, task-force, sk-1", "none": None, "yes": True, "half": 0.5},
    ],
)
def test_what_only_looks_like_it_stays(harmless: dict[str, Any]) -> None:
    assert redacted(harmless) == harmless


def test_deep_and_odd_values_do_no_harm() -> None:
    deep: Any = "bottom"
    for _ in range(1000):
        deep = [deep]
    assert "bottom" not in json.dumps(redacted(deep))
    assert redacted({1: {2, 3}}) == {"1": [2, 3]}
    assert redacted(object()).startswith("<object object")
