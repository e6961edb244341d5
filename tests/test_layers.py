"""Imports point one way: the contracts in pyproject.toml hold."""

import subprocess
import sys


def test_the_import_contracts_hold():
    # In a process of its own: it disables the loggers that exist.
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stdout + run.stderr
