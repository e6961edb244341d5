"""Settings: one file reads the environment, and `.env.example` says what it reads."""

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from orazaka.settings import BASE_DIR, flag

PACKAGES = ("orazaka", "tools", "mcp_servers", "gateway", "sandbox")


def variables_read() -> dict[str, ast.expr | None]:
    """The names that settings.py reads, with the expressions of their defaults."""
    found = {}
    for node in ast.walk(ast.parse((BASE_DIR / "orazaka/settings.py").read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function, name = ast.unparse(node.func), node.args[0]
        if (function == "flag" or re.fullmatch(r"env\.\w+", function)) and isinstance(
            name, ast.Constant
        ):
            defaults = [word.value for word in node.keywords if word.arg == "default"]
            found[str(name.value)] = defaults[0] if defaults else None
    return found


def variables_documented() -> dict[str, str]:
    lines = (BASE_DIR / ".env.example").read_text().splitlines()
    pairs = [re.fullmatch(r"#([A-Z_]+)=(.*)", line) for line in lines]
    return {pair[1]: pair[2] for pair in pairs if pair}


def written(value: Any) -> str:
    """A default as one writes it into the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def test_the_example_lists_exactly_the_variables_that_are_read() -> None:
    assert sorted(variables_documented()) == sorted(variables_read())


def test_the_example_shows_the_defaults_that_hold() -> None:
    for name, expression in variables_read().items():
        assert expression is not None, f"{name} has no default"
        source = ast.unparse(expression).replace("BASE_DIR /", "Path() /")
        assert variables_documented()[name] == written(eval(source, {"Path": Path})), name


def test_every_variable_of_the_example_has_a_reason_above_it() -> None:
    lines = (BASE_DIR / ".env.example").read_text().splitlines()
    for above, line in pairwise(lines):
        if re.match(r"#[A-Z_]+=", line):
            assert above.startswith("#"), line


def test_only_settings_read_the_environment() -> None:
    for package in PACKAGES:
        for path in (BASE_DIR / package).rglob("*.py"):
            if path != BASE_DIR / "orazaka/settings.py":
                used = re.search(r"os\.environ(?!\.setdefault\(\"DJANGO)|getenv", path.read_text())
                assert not used, path


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "yes", "Yes", "on", " on "])
def test_a_yes_may_be_spelt_in_all_these_ways(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SWITCH", word)
    assert flag("A_SWITCH", default=False) is True


@pytest.mark.parametrize("word", ["0", "false", "False", "no", "NO", "off", ""])
def test_a_no_may_be_spelt_in_all_these_ways(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SWITCH", word)
    assert flag("A_SWITCH", default=True) is False


@pytest.mark.parametrize("word", ["ture", "2", "-1", "y", "enabled", "none"])
def test_a_switch_with_a_typo_stops_the_start(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SWITCH", word)
    with pytest.raises(ImproperlyConfigured, match="A_SWITCH must be a yes or no"):
        flag("A_SWITCH", default=True)


@pytest.mark.parametrize("default", [True, False])
def test_a_switch_that_is_not_set_has_its_default(default: bool) -> None:
    assert flag("A_SWITCH_THAT_IS_NOT_SET", default=default) is default
