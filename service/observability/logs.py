"""Structured logs: one JSON object a line on stderr, with the job's id during work on a job."""

import logging
import sys
from collections.abc import Collection
from typing import Any

import structlog

MAX_FRAMES = 20
"""Frames of a traceback that are written: half of them the outermost, half the innermost."""
LONGEST_TEXT = 10_000
HIDDEN = "***"


def configure(level: str = "INFO", secrets: Collection[str] = ()) -> None:
    """Set up logging for the process, the standard library's loggers included; no line shows any
    of `secrets`. For entry points only.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Local variables hold credentials, and up to hundreds of kilobytes of a request.
        structlog.processors.ExceptionRenderer(
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=MAX_FRAMES)
        ),
        _Scrubber(secrets),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for talkative in ("alembic", "celery", "kombu"):
        logging.getLogger(talkative).setLevel(logging.WARNING)


class _Scrubber:
    """A processor that takes secrets out of every text of a line, and cuts long texts."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = tuple(secret for secret in secrets if secret)

    def __call__(
        self, logger: object, method: str, line: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {key: self._clean(value) for key, value in line.items()}

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, HIDDEN)
                return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}..."
            case dict():
                return {key: self._clean(part) for key, part in value.items()}
            case list() | tuple():
                return [self._clean(part) for part in value]
        return value
