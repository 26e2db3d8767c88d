"""How many requests an owner may have in progress, and how many it may send in a time.

The rate is a *token bucket*: it holds up to ``burst`` tokens, a request takes one, and
``rate`` tokens a second come back. So a client that was quiet may send a burst, and one that
never pauses is held to the rate. The answers tell clients where they stand, in the fields of
the IETF draft "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers-10):

    RateLimit-Policy: "default";q=100;w=10     100 requests (the burst) come back in 10 s
    RateLimit: "default";r=37;t=7              37 are left, and all 100 again after 7 s

Both limits are those of a process. Only the event loop may call, so there are no locks.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from app.errors import BusyError, RateLimitedError, ShareExceededError

_POLICY = "default"
_REMEMBERED = 10_000
"""Owners whose bucket is remembered: of others it is full."""
_RETRY_SECONDS = 1
_SPENT = 0.9
"""Part of a share from which on it counts as spent."""


class Throttle:
    """Admits requests, by owner.

    Args:
        limit: maximum number of requests in progress.
        share: maximum number of them that one owner has.
        rate: requests per second of one owner, on average; None for no limit.
        burst: requests of one owner that may come at once.
        clock: seconds.
    """

    def __init__(
        self,
        limit: int,
        share: int,
        rate: float | None = None,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.share = max(share, 1)
        self.refused: Counter[str] = Counter()
        """Refusals so far: ``requests`` in progress, or ``rate``."""
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._running = 0
        self._of_owner: dict[str, int] = {}
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def running(self) -> int:
        """Requests in progress."""
        return self._running

    def running_of(self, owner: str) -> int:
        """Requests of an owner in progress."""
        return self._of_owner.get(owner, 0)

    def is_spent(self, owner: str) -> bool:
        """Whether an owner has about as many requests in progress as it may."""
        return self._of_owner.get(owner, 0) >= _SPENT * self.share

    def enter(self, owner: str) -> None:
        """Admit a request, which calls ``leave`` at its end.

        Raises:
            RateLimitedError: the owner sent too many requests.
            ShareExceededError: too many requests of the owner are in progress.
            BusyError: too many requests are in progress.
        """
        if self._rate is not None:
            self._take(owner, self._rate)
        own = self._of_owner.get(owner, 0)
        if own >= self.share or self._running >= self.limit:
            self.refused["requests"] += 1
            self._refuse(own)
        self._of_owner[owner] = own + 1
        self._running += 1

    def leave(self, owner: str) -> None:
        """Note the end of a request."""
        self._running -= 1
        left = self._of_owner[owner] - 1
        if left:
            self._of_owner[owner] = left
        else:
            del self._of_owner[owner]

    def headers(self, owner: str) -> Mapping[str, str]:
        """Return the fields that tell an owner where it stands; none without a rate."""
        if self._rate is None:
            return {}
        tokens = self._tokens(owner, self._rate)
        refill = math.ceil((self._burst - tokens) / self._rate)
        window = max(math.ceil(self._burst / self._rate), 1)
        return {
            "RateLimit-Policy": f'"{_POLICY}";q={self._burst};w={window}',
            "RateLimit": f'"{_POLICY}";r={int(tokens)};t={refill}',
        }

    def _tokens(self, owner: str, rate: float) -> float:
        tokens, since = self._buckets.get(owner, (float(self._burst), 0.0))
        return min(tokens + (self._clock() - since) * rate, float(self._burst))

    def _take(self, owner: str, rate: float) -> None:
        tokens = self._tokens(owner, rate)
        if tokens < 1:
            self.refused["rate"] += 1
            raise RateLimitedError(
                f"you may send {rate:g} requests per second, and {self._burst} at once",
                hint="Retry after the seconds in Retry-After",
                retry_after=max(math.ceil((1 - tokens) / rate), 1),
                limit="rate",
                setting="THALWEG_OWNER_RATE",
                allowed=rate,
            )
        self._buckets[owner] = tokens - 1, self._clock()
        self._buckets.move_to_end(owner)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)

    def _refuse(self, own: int) -> None:
        if own >= self.share:
            raise ShareExceededError(
                f"{own} of your requests are in progress, as many as one owner may have",
                hint="Wait until some of them have ended",
                retry_after=_RETRY_SECONDS,
                limit="requests",
                setting="THALWEG_OWNER_SHARE",
                allowed=self.share,
            )
        raise BusyError(
            "as many requests are in progress as this server allows",
            hint="Retry after the seconds in Retry-After",
            retry_after=_RETRY_SECONDS,
            limit="requests",
            setting="THALWEG_MAX_REQUESTS",
            allowed=self.limit,
        )
