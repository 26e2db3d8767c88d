"""Checks that may wait for a disk, in a thread of their own.

A disk that does not answer holds the thread that asked it for good. There is one such thread,
so that at most one is lost; a check that holds it for too long has failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

import structlog

Check = Callable[[], str | None]
"""Returns why a part is not ready; None if it is."""

PATIENCE = 2.0
"""Seconds after which a check that has not ended counts as failed."""


class Prober:
    """Runs all checks whenever it is asked to.

    Args:
        checks: by the names of their parts.
    """

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = dict(checks)
        self._problems: dict[str, str | None] = dict.fromkeys(checks, "not checked yet")
        self._running: tuple[str, float] | None = None
        self._round: Future[None] | None = None
        self._finished = float("-inf")
        self._asked = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the present check, without waiting for one that hangs."""
        with self._asked:
            self._closed = True
            self._asked.notify()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def ask(self, age: float) -> Future[None]:
        """Have the checks run, unless they did within so many seconds.

        Returns:
            Done at the end of the round.
        """
        with self._asked:
            if self._round is None and time.monotonic() - self._finished < age:
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._round is None:
                self._round = Future()
                self._asked.notify()
            return self._round

    @property
    def finished(self) -> float:
        """``time.monotonic()`` of the end of the last round."""
        return self._finished

    def problems(self) -> dict[str, str | None]:
        """Return the last result of each check, by name."""
        problems = dict(self._problems)
        running = self._running
        if running is not None:
            name, began = running
            seconds = time.monotonic() - began
            if seconds > PATIENCE:
                problems[name] = f"the {name} has not answered for {seconds:.0f} s"
        return problems

    def _run(self) -> None:
        while True:
            with self._asked:
                while self._round is None and not self._closed:
                    self._asked.wait()
                if self._closed:
                    return
            for name, check in self._checks.items():
                self._running = name, time.monotonic()
                self._problems[name] = self._result_of(name, check)
                self._running = None
            with self._asked:
                done, self._round = self._round, None
                self._finished = time.monotonic()
            if done is not None:
                done.set_result(None)

    @staticmethod
    def _result_of(name: str, check: Check) -> str | None:
        try:
            return check()
        except Exception as e:  # noqa: BLE001 - a check that fails must not end all checks
            structlog.get_logger().error("a readiness check failed", part=name, exc_info=e)
            return f"the {name} cannot be checked: {type(e).__name__}"
