"""Logging and metrics of a process."""

from __future__ import annotations

import logging
import os
import sys

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

LEVELS = ("debug", "info", "warning", "error")

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the directory through which workers share their metrics."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0)


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
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


def forget_process(pid: int) -> None:
    """Drop the gauges of a process that has died."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a process; reading them adds up all workers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "thalweg_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "thalweg_request_seconds",
            "Time from the headers of a request to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.running = Gauge(
            "thalweg_requests_running",
            "Requests being answered",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.body_bytes = Counter(
            "thalweg_body_bytes",
            "Bytes of posted loss streams read, as sent",
            registry=self._registry,
        )
        self.answer_bytes = Counter(
            "thalweg_answer_bytes", "Bytes of answers sent", registry=self._registry
        )
        self.events = Counter("thalweg_events", "Complete events answered", registry=self._registry)
        self.batches = Counter(
            "thalweg_batches", "Batches of pipelines sent", registry=self._registry
        )
        self.buffers = Gauge(
            "thalweg_buffers_used",
            "Read buffers in use",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def text(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        if os.environ.get(MULTIPROCESS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self._registry)
