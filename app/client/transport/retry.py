"""Which faults are worth another try, and how long to wait before it."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError

_STATUSES = frozenset({408, 429, 502, 503, 504})

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 15.0
"""Seconds; a server that restarts is back within."""
_LONGEST_WISH = 300.0
"""Seconds that a server may make us wait with Retry-After."""


def is_retryable(error: ThalwegError) -> bool:
    """Whether the same request may succeed later.

    Broken connections and damaged or cut answers are; refusals are if their status
    says that they are about the moment.
    """
    if isinstance(error, ProblemError):
        return error.status in _STATUSES
    return isinstance(error, ConnectionFailed | ProtocolError)


class Backoff:
    """Counts the faults in a row, and says how long to wait.

    Args:
        retries: faults in a row, without progress between them, to bear.
        draw: gives numbers from 0 to 1.
    """

    def __init__(self, retries: int, draw: Callable[[], float] = random.random) -> None:
        self._retries = retries
        self._draw = draw
        self._faults = 0

    @property
    def faults(self) -> int:
        """Faults since there was progress."""
        return self._faults

    def progressed(self) -> None:
        """Something was achieved: faults before it do not count."""
        self._faults = 0

    def delay(self, error: ThalwegError) -> float:
        """Seconds to wait after a fault.

        Half of the doubling delay is by chance, so that clients cut off together do
        not come back together; what the server asks for is kept at least.

        Raises:
            ThalwegError: the fault itself, if there is no point in another try.
        """
        if not is_retryable(error) or self._faults >= self._retries:
            raise error
        delay = min(_FIRST_DELAY * 2.0**self._faults, _LONGEST_DELAY)
        delay *= 0.5 + self._draw() / 2
        self._faults += 1
        wish = error.retry_after if isinstance(error, ProblemError) else None
        return max(delay, min(wish or 0.0, _LONGEST_WISH))
