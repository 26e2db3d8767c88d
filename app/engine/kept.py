"""What is kept in memory so that the next request need not compute it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from app.service_error import ServiceError

from .ledger import Hold, Ledger

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
