"""Metrics and readiness, as operators query them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Operations:
    """Metrics and readiness of a process.

    Args:
        metrics: of this process.
        checks: each returns a reason why the process is not ready, or None.
    """

    metrics: Metrics
    checks: Sequence[Callable[[], str | None]]

    def problems(self) -> list[str]:
        """Return the reasons why this process is not ready; empty if it is."""
        return [problem for check in self.checks if (problem := check()) is not None]
