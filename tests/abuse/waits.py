"""Where the time of small reads goes, as the service itself measures it."""

from __future__ import annotations

import http.client

import numpy as np

from tests.abuse.requests import Caller

_WAITS = {
    "event loop": "thalweg_loop_wait_seconds",
    "thread": "thalweg_thread_wait_seconds",
}
_SECONDS = (
    'thalweg_request_seconds_{}{{route="/v1/datasets/{{ident}}/views/{{name}}/tiles/{{index}}"}}'
)


class Waits:
    """Reads the metrics of the service once per second.

    Args:
        caller: asks for them.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._waits: dict[str, list[float]] = {name: [] for name in _WAITS}
        self._tiles = (0.0, 0.0)

    def look(self) -> None:
        """Note the longest waits of the last second; nothing if the service does not answer."""
        try:
            text = self._caller.ask("GET", "/metrics").body.decode()
        except (OSError, http.client.HTTPException):
            return
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        metrics = {name: float(value) for name, value in pairs}
        for name, metric in _WAITS.items():
            self._waits[name].append(metrics.get(metric, 0.0))
        seconds, count = (metrics.get(_SECONDS.format(part), 0.0) for part in ("sum", "count"))
        self._tiles = seconds, count

    def __str__(self) -> str:
        parts = [
            f"{name} {np.median(waits) * 1e3:.0f} ms, p99 {np.quantile(waits, 0.99) * 1e3:.0f} ms"
            for name, waits in self._waits.items()
            if waits
        ]
        seconds, count = self._tiles
        mean = 1e3 * seconds / count if count else 0.0
        return f"longest wait of a second: {'; '.join(parts)}; a tile in the service {mean:.1f} ms"
