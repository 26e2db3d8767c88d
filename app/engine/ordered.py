"""A function called for many elements by an engine, with results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from .base import Engine

E = TypeVar("E")
R = TypeVar("R")


class OrderedCalls(Generic[E, R]):
    """Calls a function by an engine; few more results wait than it computes at once.

    Args:
        engine: makes the calls. The thread that takes the results must not be one of its own.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, function: Callable[[E], R], elements: Iterable[E], /) -> Iterator[R]:
        """Call the function for each element; raise what it raises, when no call runs any more."""
        waiting: deque[Future[R]] = deque()
        try:
            for element in elements:
                waiting.append(self._engine.submit(function, element))
                if len(waiting) > self._engine.width:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            for future in waiting:
                if not future.cancelled():
                    future.exception()
