"""A function called for many elements by several threads, with results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_E = TypeVar("_E")
_R = TypeVar("_R")


class OrderedThreads(Generic[_E, _R]):
    """Calls a function in threads; no more results wait than there are threads.

    Args:
        count: of threads; by default, the cores this process may use.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count or len(os.sched_getaffinity(0))

    def __call__(self, function: Callable[[_E], _R], elements: Iterable[_E], /) -> Iterator[_R]:
        """Call the function for each element; raise what it raises."""
        if self._count == 1:
            yield from map(function, elements)
            return
        waiting: deque[Future[_R]] = deque()
        with ThreadPoolExecutor(self._count, "reports") as pool:
            for element in elements:
                waiting.append(pool.submit(function, element))
                if len(waiting) > self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
