"""The analyses of a pass, however its streams are divided, and the threads that compute them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from app.engine.base import in_order
from app.engine.workers import Workers
from core.losses.analysis import Analysis
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import Report
from core.losses.seen import SeenEvents

if TYPE_CHECKING:
    from core.losses.sections import SectionAnalysis

MANY = 0.01
"""Share of the occurring events from which on it is no chance that they are in no stream."""


@dataclass(frozen=True, slots=True)
class Analyses:
    """Makes analyses that compute the same, of partitions, summary sets or sections."""

    reports: Sequence[str]
    options: Mapping[str, Any]
    """Of every analysis."""

    def of_partition(self, name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        """Return the analysis of one of several streams."""
        return Analysis(self.reports, sink, **self.options, name=name, seen=seen)

    def of_set(
        self, _set_id: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy
    ) -> Analysis:
        """Return the analysis of a summary set of an item stream."""
        options = {**self.options, "policy": policy}
        return Analysis(self.reports, sink, **options, name=name, seen=seen)

    def of_section(self, sink: Sink, seen: SeenEvents) -> SectionAnalysis:
        """Return the analysis of a section."""
        from core.losses.sections import SectionAnalysis  # noqa: PLC0415 - has kernels of its own

        return SectionAnalysis(self.reports, sink, **self.options, seen=seen)


def taken_inputs(reports: Iterable[Report]) -> set[str]:
    """Return the names of the inputs that reports need or take."""
    return {entry.name for report in reports for entry in (*report.needs, *report.takes)}


_E = TypeVar("_E")
_R = TypeVar("_R")


class OrderedThreads(Generic[_E, _R]):
    """Calls a function in threads of its own.

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
        with ThreadPoolExecutor(self._count, "reports") as pool:
            yield from in_order(pool.submit, function, elements, self._count)


class OrderedCalls(Generic[_E, _R]):
    """Calls a function by an engine, as many calls at once as its width.

    An engine may begin more, as it lets an owner whose calls take long have others. Here they wait:
    there are receivers and memory for so many.

    Args:
        engine: makes the calls. The thread that takes the results must not be one of its own.
    """

    def __init__(self, engine: Workers) -> None:
        self._engine = engine

    def __call__(self, function: Callable[[_E], _R], elements: Iterable[_E], /) -> Iterator[_R]:
        """Call the function for each element; raise what it raises, when no call runs any more."""
        width = self._engine.width
        places = threading.Semaphore(width)

        def call(element: _E) -> _R:
            with places:
                return function(element)

        return in_order(self._engine.submit, call, elements, width)
