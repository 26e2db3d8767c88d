"""What the people who run the service ask it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Operations:
    """Metrics and readiness of a process.

    Args:
        metrics: of the process.
        checks: each tells why requests should go elsewhere, or None.
    """

    metrics: Metrics
    checks: Sequence[Callable[[], str | None]]

    def problems(self) -> list[str]:
        """Why requests should go elsewhere; empty if they need not."""
        return [problem for check in self.checks if (problem := check()) is not None]
