"""Metrics and readiness, as operators query them."""

from __future__ import annotations

from dataclasses import dataclass

from app.health.readiness import Readiness
from app.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Operations:
    """Metrics and readiness of a process.

    Args:
        metrics: of this process.
        readiness: of the service.
    """

    metrics: Metrics
    readiness: Readiness
