"""Foreign JSON back to bytes, whatever numbers are in it."""

import json

import orjson

from tools.base import Json


def encoded(value: Json) -> bytes:
    """JSON text of parsed JSON. orjson refuses integers over 64 bits, which servers may send."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
