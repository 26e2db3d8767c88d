"""Work that other machines can do, and its kinds, by their names."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V_contra = TypeVar("V_contra", contravariant=True)


def in_order(
    submit: Callable[[Callable[[U], T], U], Future[T]],
    function: Callable[[U], T],
    elements: Iterable[U],
    count: int,
) -> Generator[T]:
    """Call the function for each element; raise what it raises, when no call runs any more.

    One call more is submitted than are to run at once, so that no thread waits for the results.
    """
    waiting: deque[Future[T]] = deque()
    try:
        for element in elements:
            waiting.append(submit(function, element))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()


class TaskFailedError(RuntimeError):
    """A task failed on a worker by a fault of our own, as it would have on this machine."""


class Kind(NamedTuple):
    """A kind of tasks."""

    version: str
    """To be changed whenever the same parameters would give another result, or mean another."""
    function: str
    """``module:name`` of what does a task; it takes the service, if any, and JSON values."""
    service: str = ""
    """Attribute of the application's state that it needs; empty if it needs no store."""


Registry = Mapping[str, Kind]
"""All kinds of tasks, by name."""


def resource_of(registry: Registry) -> str:
    """Return the resource of workers that do what this registry says."""
    versions = json.dumps({name: kind.version for name, kind in sorted(registry.items())})
    return f"tasks-{hashlib.blake2b(versions.encode(), digest_size=8).hexdigest()}"


class Work(Protocol[V_contra]):
    """Units of work of one kind, which other machines can do.

    What a unit leaves is named by all that it is computed from and created once. So it does not
    matter who does a unit, nor how often, and whoever needs it does it where it is missing.
    """

    @property
    def kind(self) -> str:
        """Its name in the registry (:mod:`app.tasks`)."""

    @property
    def nbytes(self) -> int:
        """Memory that a unit takes at most."""

    def label(self, unit: V_contra, /) -> str:
        """What messages call a unit."""

    def task(self, unit: V_contra, /) -> dict[str, Any]:
        """Return, as JSON values, the parameters of a unit and where input and output are."""

    def is_done(self, unit: V_contra, /) -> bool:
        """Whether what a unit leaves is there."""


class Cluster(Protocol):
    """Other machines that do units of work."""

    def spread(
        self, work: Work[U], units: Iterable[U], check: Callable[[], None] | None = None
    ) -> Iterator[U]:
        """Have units done side by side; yield each, in order, when it is done or left over.

        Args:
            work: of which the units are.
            units: any number, taken as there is room.
            check: raises when nobody waits for them any more; default: the budget.

        Raises:
            EngineUnavailableError: nobody does them.
            ProcessDiedError: one has ended several processes.
            TaskFailedError: a worker met a fault of our own.
            CancelledError: nobody waits for them any more.
        """


class Gone(Protocol):
    """Tells whether the client left; asked in threads, so it must only read a flag."""

    def is_set(self) -> bool:
        """Whether the client left."""
