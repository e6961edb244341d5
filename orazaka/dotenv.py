"""The `.env` of a first start: fresh secrets, readable by its owner only."""

import os
import secrets
from pathlib import Path

from cryptography.fernet import Fernet

MADE = {
    "SECRET_KEY": lambda: secrets.token_urlsafe(48),
    "ORAZAKA_SECRET_KEYS": lambda: Fernet.generate_key().decode(),
}


def complete(path: Path, *, have: dict[str, bool]) -> bool:
    """Write the secrets that are not set yet (`have` by name) to the file; whether any were.

    What stands in the file already is kept. Raises OSError if it can't be written.
    """
    missing = [name for name in MADE if not have.get(name)]
    if not missing:
        return False
    before = path.read_text() if path.exists() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    lines = "".join(f"{name}={MADE[name]()}\n" for name in missing)
    part = path.with_name(path.name + ".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(before + lines)
    part.replace(path)
    return True
