"""What is kept in memory to answer the next question sooner."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from app.engine.ledger import Hold, Ledger
from app.service_error import ServiceError

V = TypeVar("V")
_NOBODY = ""
"""Who pays for what all owners may use."""
PURPOSE = "portfolio"


class Kept(Generic[V]):
    """The values that were used last; the ledger has them given up where it has no room.

    Args:
        ledger: they are entered in.
        most: bytes of all.
    """

    def __init__(self, ledger: Ledger, most: int) -> None:
        self._ledger = ledger
        self._most = most // ledger.processes
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
        if nbytes <= self._most:
            self._keep(key, value, nbytes)
        return value

    def _keep(self, key: Hashable, value: V, nbytes: int) -> None:
        while self._bytes() + nbytes > self._most and self._give_up():
            pass
        try:
            hold = self._ledger.hold(_NOBODY, nbytes, PURPOSE)
        except ServiceError:
            return
        with self._lock:
            replaced = self._values.pop(key, None)
            self._values[key] = value, hold
        if replaced is not None:
            replaced[1].release()

    def _bytes(self) -> int:
        with self._lock:
            return sum(hold.nbytes for _, hold in self._values.values())

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
