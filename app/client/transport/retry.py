"""Which failures are worth another try, and how long to wait before it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError

RETRIES = 8
"""Failures in a row to tolerate: 23 to 46 seconds of a server that is away, mostly about 35."""

_LOG = logging.getLogger("thalweg")
_TOO_LARGE = 413
_LEAST = 64 << 10
"""Bytes of the shortest body: where less is refused, something else is wrong."""
_STATUSES = frozenset({408, 429, 502, 503, 504})

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 15.0
"""Seconds; a server that restarts is back by then."""
_LONGEST_RETRY_AFTER = 300.0
"""Seconds that a server may make us wait."""


def is_retryable(error: ThalwegError) -> bool:
    """Whether the same request may succeed later.

    It may after a broken connection or a damaged or cut answer, and after a refusal whose
    status says that it is temporary. A quota is exceeded until something is deleted, unless
    it is that of rows that wait for slow clients.
    """
    if isinstance(error, ProblemError):
        waiting = str(error.problem.get("limit", "")).startswith("spools.")
        return error.status in _STATUSES and (error.code != "quota-exceeded" or waiting)
    lasts = isinstance(error, ConnectionFailed) and error.lasts
    return isinstance(error, ConnectionFailed | ProtocolError) and not lasts


def shorter(problem: ProblemError, size: int) -> int | None:
    """How long the body of a request may be after one of ``size`` bytes was refused.

    Returns:
        What the service allows, or half of the size if a proxy refused it; None if the length was
        not the reason, or less makes no sense.
    """
    if problem.status != _TOO_LARGE or problem.problem.get("limit") not in {None, "body", "append"}:
        return None
    allowed = problem.problem.get("allowed")
    if isinstance(allowed, int) and 0 < allowed < size:
        return allowed
    return size // 2 if size >= 2 * _LEAST else None


class Outage:
    """Logs once that requests fail and are tried again, and once that they are answered again.

    All operations of a client share it; the logger is ``thalweg``.
    """

    def __init__(self) -> None:
        self._is_on = False

    def began(self, error: ThalwegError, retries: int) -> None:
        """A request failed, and will be tried again."""
        if not self._is_on:
            self._is_on = True
            _LOG.warning("%s (trying again, up to %d times in a row)", error, retries)

    def heard(self, status: int) -> None:
        """An answer came."""
        if self._is_on and status not in _STATUSES:
            self._is_on = False
            _LOG.info("the service answers again")


class Backoff:
    """Counts failures in a row and says how long to wait.

    Args:
        retries: failures in a row, without progress between them, to tolerate.
        draw: random numbers from 0 to 1.
        outage: is told of failures that will be tried again.

    Attributes:
        failures: since the last progress.
    """

    def __init__(
        self, retries: int, draw: Callable[[], float] = random.random, outage: Outage | None = None
    ) -> None:
        self._retries = retries
        self._draw = draw
        self._outage = outage or Outage()
        self.failures = 0

    def progressed(self) -> None:
        """Something was achieved: earlier failures do not count any more."""
        self.failures = 0

    def delay(self, error: ThalwegError) -> float:
        """Seconds to wait after a failure.

        The delay doubles with every failure. Half of it is random, so that clients cut off
        together do not return together. A Retry-After of the server is a lower bound.

        Raises:
            ThalwegError: the failure itself, if there is no point in another try.
        """
        if not is_retryable(error) or self.failures >= self._retries:
            raise error
        self._outage.began(error, self._retries)
        delay = min(_FIRST_DELAY * 2.0**self.failures, _LONGEST_DELAY)
        delay *= 0.5 + self._draw() / 2
        self.failures += 1
        retry_after = error.retry_after if isinstance(error, ProblemError) else None
        return max(delay, min(retry_after or 0.0, _LONGEST_RETRY_AFTER))
