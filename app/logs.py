"""Logging of a process."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let a module seem not to be installed, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    # It would draw tracebacks, which are plain text here, and doubles the time of this import.
    import structlog

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str) -> None:
    """Log to standard error: for people on a terminal, as JSON otherwise."""
    on_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if on_terminal:
        renderer = structlog.dev.ConsoleRenderer()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    number = logging.getLevelName(level.upper())
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # One system call per line: a printing logger makes two, between which lines can mix.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    # uvicorn logs through the standard library.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
            foreign_pre_chain=shared,
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
