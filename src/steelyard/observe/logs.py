"""Structured logs: one JSON line per lifecycle event on stderr, none per request.

Each process calls `configure_logs` once, in its entry point; everybody else asks for a logger with `get_logger`
and binds what the event is about (endpoint, replica, request id).
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logs(process: str, level: str = "info") -> None:
    """Send this process's logs to stderr as JSON lines, each carrying `process`.

    Raises ValueError when `level` is not one of debug, info, warning, error.
    """
    if level not in _LEVELS:
        raise ValueError(f"Log level {level!r} is unknown; use one of {', '.join(_LEVELS)}.")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            # without the frames' local variables: they hold tokens and what users sent
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def get_logger(**bound: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger that adds `bound` to each of its lines: `log.info("replica_ready", replica="iris-1-a")`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**bound)
    return logger
