"""The project's settings for tests: secrets of their own, and no developer's `.env`."""

import os

from cryptography.fernet import Fernet

os.environ.setdefault("SECRET_KEY", "tests-only-" + "x" * 50)
os.environ.setdefault("ORAZAKA_SECRET_KEYS", Fernet.generate_key().decode())
os.environ["ORAZAKA_DOTENV"] = ""

from orazaka.settings import *  # noqa: F403
