"""How many requests an owner may have in progress, and how many it may send in a time.

The rate is a *token bucket*: it holds up to ``burst`` tokens, a request takes one, and
``rate`` tokens a second come back. So a client that was quiet may send a burst, and one that
never pauses is held to the rate. The answers tell clients where they stand, in the fields of
the IETF draft "RateLimit header fields for HTTP" (draft-ietf-httpapi-ratelimit-headers-10):

    RateLimit-Policy: "default";q=100;w=10     100 requests (the burst) come back in 10 s
    RateLimit: "default";r=37;t=7              37 are left, and all 100 again after 7 s

A bucket that is not full is one number: when it will be full again if its owner sends nothing.
Those of all owners are in memory that the processes of the service share (:mod:`app.tally`): both
limits are those of the service. An owner's bucket has eight places there. If all are taken, the one
that will be full first makes room.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from app.errors import BusyError, RateLimitedError, ShareExceededError
from app.tally import BUCKETS, REQUESTS, Column, Table, Tally

_POLICY = "default"
_WAYS = 8
"""Places that the bucket of an owner may have."""
_TINY = 1e-9
"""Part of a token that is lost in sums."""
_RETRY_SECONDS = 1
_SPENT = 0.9
"""Part of a share from which on it counts as spent."""


class Rate(NamedTuple):
    """How often an owner may send requests: ``per_second`` on average, ``burst`` at once."""

    per_second: float
    burst: int


class Throttle:
    """Admits requests, by owner.

    Args:
        limit: maximum number of requests in progress.
        share: maximum number of them that one owner has.
        rate: of the requests of one owner; None for no limit.
        clock: seconds, the same for all processes.
        column: where the service counts the requests of this process; default: it is alone.
    """

    def __init__(
        self,
        limit: int,
        share: int,
        rate: Rate | None = None,
        clock: Callable[[], float] = time.monotonic,
        column: Column | None = None,
    ) -> None:
        column = column or Column(Table())
        self.limit = limit
        self.share = max(share, 1)
        self.refused: Counter[str] = Counter()
        """Refusals so far: ``requests`` in progress, or ``rate``."""
        self._rate = rate
        self._clock = clock
        self._tally = Tally(column, REQUESTS, limit, self.share)
        self._lock = column.table.lock
        buckets = column.table.buckets
        self._keys, self._full = (
            buckets[: len(buckets) // 2].cast("q"),
            buckets[len(buckets) // 2 :].cast("d"),
        )

    @property
    def running(self) -> int:
        """Requests in progress."""
        return self._tally.total

    def is_spent(self, owner: str) -> bool:
        """Whether an owner has about as many requests in progress as it may."""
        return self._tally.of(owner) >= _SPENT * self.share

    def enter(self, owner: str) -> None:
        """Admit a request, which calls ``leave`` at its end.

        Raises:
            RateLimitedError: the owner sent too many requests.
            ShareExceededError: too many requests of the owner are in progress.
            BusyError: too many requests are in progress.
        """
        if self._rate is not None:
            self._take(owner, self._rate)
        own = self._tally.add(owner, 1)
        if own >= 0:
            self.refused["requests"] += 1
            self._refuse(own - 1)

    def leave(self, owner: str) -> None:
        """Note the end of a request."""
        self._tally.remove(owner, 1)

    def headers(self, owner: str) -> Mapping[str, str]:
        """Return the fields that tell an owner where it stands; none without a rate."""
        if self._rate is None:
            return {}
        rate, burst = self._rate
        *_, full_at = self._bucket(owner)
        tokens = self._tokens(full_at, self._rate)
        refill = math.ceil((burst - tokens) / rate - _TINY)
        window = max(math.ceil(burst / rate), 1)
        return {
            "RateLimit-Policy": f'"{_POLICY}";q={burst};w={window}',
            "RateLimit": f'"{_POLICY}";r={int(tokens + _TINY)};t={refill}',
        }

    def _tokens(self, full_at: float, rate: Rate) -> float:
        return rate.burst - max(full_at - self._clock(), 0.0) * rate.per_second

    def _bucket(self, owner: str) -> tuple[int, int, float]:
        """Return where the bucket of an owner is, or may be, its key, and when it will be full."""
        key = hash(owner) or 1
        first = key % (BUCKETS // _WAYS) * _WAYS
        keys = self._keys[first : first + _WAYS].tolist()
        if key in keys:
            place = first + keys.index(key)
            return place, key, self._full[place]
        return min(range(first, first + _WAYS), key=self._full.__getitem__), key, 0.0

    def _take(self, owner: str, rate: Rate) -> None:
        with self._lock:
            place, key, full_at = self._bucket(owner)
            tokens = self._tokens(full_at, rate)
            if tokens >= 1 - _TINY:
                self._keys[place] = key
                self._full[place] = max(full_at, self._clock()) + 1 / rate.per_second
                return
        self.refused["rate"] += 1
        per_second, burst = rate
        raise RateLimitedError(
            f"you may send {per_second:g} requests per second, and {burst} at once",
            hint="Retry after the seconds in Retry-After",
            retry_after=max(math.ceil((1 - tokens) / per_second - _TINY), 1),
            limit="rate",
            setting="THALWEG_OWNER_RATE",
            allowed=per_second,
        )

    def _refuse(self, own: int) -> NoReturn:
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
