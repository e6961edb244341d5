"""Imports point one way: the contracts in pyproject.toml hold."""

from importlinter.cli import lint_imports


def test_the_import_contracts_hold():
    assert lint_imports(no_cache=True) == 0
