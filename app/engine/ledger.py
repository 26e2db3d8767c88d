"""The ledger: a budget of memory that is asked before the memory is taken.

Limits on single requests do not bound a process: ten uploads of 128 MiB are each within
theirs, and together take 1.3 GiB. So whatever grows with what clients send or ask for is
written into one ledger, in bytes, before it is allocated, and struck out when it is freed:

    total   |#### bodies ####|## JSON ##|### spools ###|........ free ........|
                                                                           limit
    owner   |## one owner ##|...... left of its share ......|
                                                          share

Two things can be full. Where the total is, nobody can get more for now: 503, try again.
Where the share of one owner is, that owner holds all it may, and only its own requests can
give some back: 429. A share is a fixed part of the total, also while the rest is free. A
share that could be exceeded as long as nobody else came would be simpler to live with, but
what was lent in that way is not returned when somebody comes: a stalled upload holds its
memory for as long as its client likes.

Entries are estimates from above, made before the work: of a list of numbers in JSON, the
objects that it becomes. Small things of bounded number (heads, options, one frame) have no
entry; the base that deployments add to the limit covers them.

What is kept only to save time is entered as well, and given up where the total is full: at once
by the process whose request is refused otherwise, by the others within a second, when the client
tries again.

The limit and the shares are those of the service, whatever the number of its processes
(:mod:`app.tally`).

An owner is the owner of the key that a request carries, or the address of the client where
the service has no keys.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NoReturn, Self, TypeVar

from app.errors import BusyError, ShareExceededError, TooLargeError
from app.service_error import ServiceError
from app.tally import MEMORY, Column, Table, Tally
from core.units import in_units

RETRY_SECONDS = 1
"""Seconds after which a refused client may try again: most requests are over by then."""
_SPENT = 0.9
"""Part of a share from which on it counts as spent."""
_LIMIT, _SHARE = "THALWEG_MEMORY_LIMIT", "THALWEG_OWNER_SHARE"
_SHORT = 0
"""Which note of the table has the time of the last refusal for lack of memory."""


class Ledger:
    """The memory that requests hold; all methods are thread-safe and O(1).

    Args:
        limit: maximum bytes held by all owners together.
        share: maximum bytes held by one owner.
        column: where the service counts what this process holds; default: it is alone.

    Attributes:
        processes: number of processes that the limit is for.
    """

    def __init__(self, limit: int, share: int, column: Column | None = None) -> None:
        column = column or Column(Table())
        self.limit = limit
        self.share = min(share, limit)
        self.processes = column.table.processes
        self.refused: Counter[str] = Counter()
        """Refusals so far, by purpose."""
        self.reclaims: list[Callable[[], bool]] = []
        """Each releases an entry that is kept only to save time; False if it has none."""
        self.peak = 0
        """Bytes held at most so far."""
        self._purposes: Counter[str] = Counter()
        self._tally = Tally(column, MEMORY, limit, self.share)
        # A collection of garbage may release something in the middle of a change.
        self._lock = threading.RLock()
        self._notes = column.table.notes
        self._relieved = 0.0

    @property
    def setting(self) -> str:
        """What an operator has to raise for an owner to hold more."""
        return _SHARE if self.share < self.limit else _LIMIT

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._tally.total

    @property
    def owners(self) -> int:
        """Number of owners that hold something in this process."""
        return self._tally.owners

    def is_spent(self, owner: str) -> bool:
        """Whether an owner holds about as much as it may."""
        return self._tally.of(owner) >= _SPENT * self.share

    def purposes(self) -> dict[str, int]:
        """Return the bytes that this process holds for each purpose that ever held any."""
        with self._lock:
            return dict(self._purposes)

    def hold(self, owner: str, nbytes: int, purpose: str) -> Hold:
        """Enter bytes that are about to be allocated.

        Args:
            owner: who caused it.
            nbytes: how much; 0 is allowed, to grow later.
            purpose: a word for metrics and problem documents.

        Returns:
            The entry, to be released by the caller.

        Raises:
            TooLargeError: it is more than an owner may ever hold.
            ShareExceededError: the owner would hold more than its share.
            BusyError: all owners together would hold more than the limit.
        """
        hold = Hold(self, owner, purpose)
        hold.grow(nbytes)
        return hold

    def add(self, owner: str, purpose: str, nbytes: int) -> None:
        """Add bytes to what an owner holds; see ``hold``, which callers should prefer."""
        while (own := self._added(owner, purpose, nbytes)) <= self.share:
            if own < 0:
                return
            if not self._reclaim():
                break
        with self._lock:
            self.refused[purpose] += 1
            if own <= self.share:
                self._notes[_SHORT] = time.monotonic()
        if own > self.share:
            raise ShareExceededError(
                f"your requests in progress hold {in_units(own - nbytes)} of this server's memory;"
                f" with {in_units(nbytes)} more for {purpose} they would exceed your share"
                f" of {in_units(self.share)}",
                hint="Wait until some of your requests have ended, or send smaller ones",
                retry_after=RETRY_SECONDS,
                limit=purpose,
                setting=self.setting,
                allowed=self.share,
                used=own - nbytes,
            )
        raise BusyError(
            f"the memory of this server is in use: {in_units(nbytes)} for {purpose} are not left",
            hint="Retry after the seconds in Retry-After",
            retry_after=RETRY_SECONDS,
            limit=purpose,
            setting=_LIMIT,
            allowed=self.limit,
        )

    def _added(self, owner: str, purpose: str, nbytes: int) -> int:
        """Add bytes if they fit, and return -1; else what the owner would hold."""
        own = self._tally.add(owner, nbytes)
        if own < 0:
            with self._lock:
                self._purposes[purpose] += nbytes
                self.peak = max(self.peak, self._tally.total)
        return own

    def _reclaim(self) -> bool:
        return any(reclaim() for reclaim in self.reclaims)

    def relieve(self) -> None:
        """Give up what is kept to save time, if a process has lacked memory since the last call."""
        short = self._notes[_SHORT]
        if short > self._relieved:
            while self._reclaim():
                pass
        self._relieved = short

    def refuse_for_good(self, purpose: str, nbytes: int) -> NoReturn:
        """Refuse what would not fit if the owner held nothing else.

        Raises:
            TooLargeError: always; unlike the refusals of ``hold``, clients do not retry it.
        """
        with self._lock:
            self.refused[purpose] += 1
        raise TooLargeError(
            f"the request needs {in_units(nbytes)} of memory for {purpose}, and one owner may hold"
            f" {in_units(self.share)}",
            hint="Send a smaller request",
            limit=purpose,
            setting=self.setting,
            allowed=self.share,
        )

    def remove(self, owner: str, purpose: str, nbytes: int) -> None:
        """Remove bytes from what an owner holds."""
        self._tally.remove(owner, nbytes)
        with self._lock:
            self._purposes[purpose] -= nbytes


class Hold:
    """An entry of a ledger; for one thread at a time.

    As a context manager, it is released at the end of the block.

    Attributes:
        nbytes: bytes held.
    """

    __slots__ = ("_ledger", "_owner", "_purpose", "nbytes")

    def __init__(self, ledger: Ledger, owner: str, purpose: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._purpose = purpose
        self.nbytes = 0

    @property
    def setting(self) -> str:
        """See Ledger."""
        return self._ledger.setting

    def grow(self, nbytes: int) -> None:
        """Hold more.

        Raises:
            TooLargeError: this entry alone would exceed what an owner may ever hold.
            ShareExceededError: the owner would hold more than its share.
            BusyError: all owners together would hold more than the limit.
        """
        if nbytes:
            if self.nbytes + nbytes > self._ledger.share:
                self._ledger.refuse_for_good(self._purpose, self.nbytes + nbytes)
            self._ledger.add(self._owner, self._purpose, nbytes)
            self.nbytes += nbytes

    def shrink(self, nbytes: int) -> None:
        """Hold less; at most what is held."""
        if nbytes:
            self.nbytes -= nbytes
            self._ledger.remove(self._owner, self._purpose, nbytes)

    def release(self) -> None:
        """Hold nothing any more; may be called twice."""
        self.shrink(self.nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()


V = TypeVar("V")
_NOBODY = ""
"""Who pays for what all owners may use."""


class Kept(Generic[V]):
    """The values that were used last, as many as fit; the last one stays whatever its size.

    They are entered in the ledger, which has them given up where it has no room.

    Args:
        ledger: what they are entered in.
        most: bytes of all, in all processes.
        count: of values.
        purpose: as the ledger has it.
    """

    def __init__(self, ledger: Ledger, most: int, count: int = 64, purpose: str = "cached") -> None:
        self._ledger = ledger
        self._most, self._count = most // ledger.processes, count
        self._purpose = purpose
        self._values: OrderedDict[Hashable, tuple[V, Hold]] = OrderedDict()
        self._lock = threading.Lock()
        ledger.reclaims.append(self._give_up)

    def get(self, key: Hashable, make: Callable[[], tuple[V, int]]) -> V:
        """Return the value of a key; ``make`` returns it and its bytes where it is not kept."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                return found[0]
        value, nbytes = make()
        try:
            hold = self._ledger.hold(_NOBODY, nbytes, self._purpose)
        except ServiceError:
            return value
        self.forget(key)
        with self._lock:
            self._values[key] = value, hold
        while self._exceeds() and self._give_up():
            """Until the others fit."""
        return value

    def _exceeds(self) -> bool:
        with self._lock:
            held = sum(hold.nbytes for _, hold in self._values.values())
            count = len(self._values)
        return count > self._count or (count > 1 and held > self._most)

    def _give_up(self) -> bool:
        """Give up the value that was not used for longest; return whether there was one."""
        with self._lock:
            if not self._values:
                return False
            _, (_, hold) = self._values.popitem(last=False)
        hold.release()
        return True

    def forget(self, key: Hashable) -> None:
        """Give up the value of a key."""
        with self._lock:
            found = self._values.pop(key, None)
        if found is not None:
            found[1].release()
