"""Logs: one line an event, for people on a terminal, as JSON everywhere else."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str) -> None:
    """Send logs of this level and above to standard error."""
    on_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if on_terminal:
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
