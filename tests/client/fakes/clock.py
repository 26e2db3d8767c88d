"""Time that passes only where somebody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class FakeClock:
    """Replaces the pauses of both channels.

    Attributes:
        now: seconds.
        pauses: seconds of each pause.
        on_pause: called during each pause.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.on_pause()

    def pause(self, seconds: float, _stopped: threading.Event) -> None:
        self.pass_by(seconds)

    async def pause_async(self, seconds: float) -> None:
        self.pass_by(seconds)
        await asyncio.sleep(0)
