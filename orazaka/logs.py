"""One JSON line on stderr per log record, whoever logs: Django, uvicorn, libraries, us.

Secrets are taken out last, after messages are formatted and tracebacks rendered.
"""

import logging
import logging.config
import re
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

HIDDEN = "[hidden]"
# The word that ends a name decides: `api_key`, `authToken`, `X-Api-Key`; not `prompt_tokens`.
SECRET_NAMES = re.compile(r"(?:authorization|token|key|password|secret|cookie)$", re.IGNORECASE)
SECRET_SHAPES = re.compile(
    r"\b(?:ozk_|sk-)[A-Za-z0-9_\-]{6,}|(?<=\bBearer )\s*[^\s\"',;]+", re.IGNORECASE
)
DEPTH = 6  # of nested values; deeper ones are not logged at all


def redacted(value: Any, *, depth: int = DEPTH) -> Any:
    """The value without what looks like a secret: by the name it goes under, or by its shape."""
    if isinstance(value, str):
        return SECRET_SHAPES.sub(HIDDEN, value)
    if isinstance(value, int | float | None):
        return value
    if not depth:
        return HIDDEN
    if isinstance(value, dict):
        return {str(name): _named(str(name), inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(inner, depth=depth - 1) for inner in value]
    return SECRET_SHAPES.sub(HIDDEN, repr(value))


def _named(name: str, value: Any, depth: int) -> Any:
    if SECRET_NAMES.search(name) and not isinstance(value, int | float | None):
        return HIDDEN
    return redacted(value, depth=depth)


def redact(_: Any, __: str, event: EventDict) -> EventDict:
    """`redacted` as a structlog processor."""
    return {name: _named(name, value, DEPTH) for name, value in event.items()}


SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
FINAL: list[Processor] = [
    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
    structlog.processors.format_exc_info,
    redact,
    structlog.processors.JSONRenderer(),
]


def configure(config: dict[str, Any]) -> None:
    """Django's LOGGING_CONFIG: `config` is settings.LOGGING, {"level": "INFO"}."""
    logging.raiseExceptions = False  # else a record that can't be formatted is printed raw
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "json": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": SHARED,
                    "processors": FINAL,
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": config.get("level", "INFO")},
            # Both bring handlers of their own, set up before this runs.
            "loggers": {
                name: {"handlers": [], "propagate": True, "level": "NOTSET"}
                for name in ("django", "django.server", "uvicorn", "uvicorn.error")
            }
            # One line a request is what metrics and turn records are for.
            | {"uvicorn.access": {"handlers": [], "propagate": True, "level": "WARNING"}}
            # They would log every URL that is asked, with what may be secret in its query.
            | {name: {"propagate": True, "level": "WARNING"} for name in ("httpx", "httpx2")},
        }
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
