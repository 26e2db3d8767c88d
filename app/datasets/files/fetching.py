"""Threads that wait for object stores, so that one reader has several answers under way.

A request to a store takes some ten milliseconds before its first byte, and one connection is a
fraction of what the network carries. So whoever reads has up to ``AT_ONCE`` requests of up to
``PART`` bytes under way, and takes their answers in order. While it waits it looks whether anybody
still wants the result; if not, the requests that have not begun are dropped, and those that have
end by themselves, within their time limit.

Streams tell what they will read next, which is fetched *ahead*, and kept until it is read, or the
request has ended. It is kept only to save time: in the ledger, nobody's, and given up, the oldest
first, where memory is short.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import NamedTuple, TypeVar

from app.engine.ledger import Hold, Ledger
from app.engine.request_budget import RequestBudget, current_request
from app.errors import ServiceError
from app.tally import MOST
from core.arrays import Octets
from core.budget import Scope, current

T = TypeVar("T")
Call = Callable[[], T]

PART = 4 << 20
"""Most bytes of one request."""
AT_ONCE = 8
"""Requests that one reader has under way."""
MAX_AHEAD = 128 << 20
"""Most bytes of a process that are fetched before they are read."""
_THREADS = 32
"""Requests that a process has under way."""
_STEP = 0.25
"""Seconds between two looks whether the result is wanted."""
_NOBODY = ""
_PURPOSE = "cached"


class Wanted(NamedTuple):
    """Bytes of an object in a state of it."""

    identity: tuple[int | str, ...]
    start: int
    stop: int


class _Kept(NamedTuple):
    future: Future[Octets]
    hold: Hold
    reader: RequestBudget | None


class Fetching:
    """The threads of a process, which are started when they are needed.

    Args:
        ledger: charged for what is fetched ahead; None for no bound but ``MAX_AHEAD``.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger(MOST, MOST)
        self._lock = threading.Lock()
        self._ahead: OrderedDict[Wanted, _Kept] = OrderedDict()
        self._bytes = 0
        self._ledger.reclaims.append(self._forget)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "objects")

    def start(self, call: Call[T]) -> Future[T]:
        """Have a thread do something."""
        with self._lock:
            return self._threads.submit(call)

    def each(self, calls: Iterable[Call[T]]) -> Iterator[T]:
        """Do things, several at once, and yield their results in order; see ``result``."""
        with contextlib.closing(results(map(self.start, calls))) as found:
            yield from found

    # -- ahead ------------------------------------------------------------------------

    def fetch_ahead(self, wanted: Wanted, call: Call[Octets]) -> None:
        """Fetch bytes before they are read, if there is memory for them, and keep them."""
        with self._lock:
            if self._covering(wanted) is not None:
                return
        try:
            hold = self._ledger.hold(_NOBODY, wanted.stop - wanted.start, _PURPOSE)
        except ServiceError:
            return
        reader = current_request()
        if reader is not None:
            reader.at_end.add(self._forget_all)
        kept = _Kept(self.start(call), hold, reader)
        with self._lock:
            is_new = self._ahead.setdefault(wanted, kept) is kept
            self._bytes += is_new * (wanted.stop - wanted.start)
        if not is_new:
            _drop(kept)
        while self._bytes > MAX_AHEAD and self._forget():
            pass

    def take(self, wanted: Wanted) -> tuple[Future[Octets], int] | None:
        """Return what was fetched ahead of some bytes, and where in it they begin, or None.

        It is kept no longer: the future is the caller's.
        """
        with self._lock:
            if (found := self._covering(wanted)) is None:
                return None
            kept = self._pop(found)
        kept.hold.release()
        return kept.future, wanted.start - found.start

    def _covering(self, wanted: Wanted) -> Wanted | None:
        if wanted in self._ahead:
            return wanted
        for key in self._ahead:
            is_same = key.identity == wanted.identity
            if is_same and key.start <= wanted.start and wanted.stop <= key.stop:
                return key
        return None

    def _pop(self, wanted: Wanted) -> _Kept:
        self._bytes -= wanted.stop - wanted.start
        return self._ahead.pop(wanted)

    def _forget(self) -> bool:
        """Give up what was fetched first; return whether there was any."""
        with self._lock:
            if not self._ahead:
                return False
            kept = self._pop(next(iter(self._ahead)))
        _drop(kept)
        return True

    def _forget_all(self, reader: RequestBudget) -> None:
        """Give up what a request that has ended would have read."""
        with self._lock:
            left = [wanted for wanted, kept in self._ahead.items() if kept.reader is reader]
            dropped = [self._pop(wanted) for wanted in left]
        for kept in dropped:
            _drop(kept)


def _drop(kept: _Kept) -> None:
    kept.future.cancel()
    kept.hold.release()


def parts(futures: Iterable[Future[Octets]], nbytes: int) -> Generator[Octets]:
    """Yield the results of reads of up to ``PART`` bytes, which are in the budget meanwhile.

    Args:
        futures: the reads, begun when they are taken.
        nbytes: bytes of all of them.

    Raises:
        BudgetExceededError: there is no memory for them.
        Exception: see ``result``.
    """
    with (
        Scope("objects", min(nbytes, AT_ONCE * PART)),
        contextlib.closing(results(futures)) as found,
    ):
        yield from found


def results(futures: Iterable[Future[T]]) -> Generator[T]:
    """Take futures, so that several are under way, and yield their results in order."""
    waiting: deque[Future[T]] = deque()
    try:
        for future in futures:
            waiting.append(future)
            if len(waiting) == AT_ONCE:
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def result(future: Future[T]) -> T:
    """Wait for a result.

    Raises:
        WorkStoppedError: nobody wants it any longer.
        Exception: what it ended with.
    """
    while not future.done():
        current().check("read")
        wait([future], _STEP)
    return future.result()
