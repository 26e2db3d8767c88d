"""Budgets: bounds on memory, CPU time and items that hold while work runs.

A pipeline, a view or a loss stream is described by whoever asks for it, so nobody knows before
it runs how much it will take: a filter may reject every item for ever, and one ragged item may
be as large as a disk. So work asks as it goes along. It finds the budget of the request it
belongs to with :func:`current`, because stages are built once and serve many requests at once::

    request ──▶ thread: with installed(budget):
                          stage.take ──▶ budget.spend("filter", 65536)    items, CPU, cancelled?
                                         budget.hold("pad", 1 << 26)      before it allocates
                                         ...
                                         budget.release(1 << 26)
                        budget.renew()                                    an item was delivered

Every call may raise: :class:`BudgetExceededError` once a bound is passed, or
:class:`CancelledError` once nobody waits for the result. Both are :class:`WorkStoppedError`;
code that survives the errors of items lets them pass. CPU time and items are counted from the
last delivered item on, so a stream may run for days while it delivers. Bytes are counted as long
as they are held.

Bytes are held by *scopes*, as the arrays of a function live about as long as its call. A
:class:`Scope` releases at its end everything that was held within, and its caller holds the
result instead. Loops that drop a block per turn use a scope per turn.

A check costs less than a microsecond. There is one per block of some 50 microseconds of work or
more, and none per item; kernels work in stretches of at most some 20 milliseconds, between which
they return for a check. Outside of a request there is no budget, and checks do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Protocol


class Budget(Protocol):
    """The budget of a piece of work, as one thread sees it."""

    @property
    def held(self) -> int:
        """Bytes that this thread holds."""

    def check(self, stage: str) -> None:
        """Check the CPU time, and that somebody still waits for the result.

        Args:
            stage: what is working, for the message, such as ``filter``.

        Raises:
            BudgetExceededError: the CPU time is used up.
            CancelledError: the result is no longer needed.
        """

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        """Count items that are about to be looked at, and check as :meth:`check` does.

        Args:
            stage: what is working.
            items: number of items.
            seconds: CPU time that other processes worked for this thread.

        Raises:
            BudgetExceededError: the items or the CPU time are used up.
            CancelledError: the result is no longer needed.
        """

    def hold(self, stage: str, nbytes: int) -> None:
        """Count bytes that are about to be allocated.

        Raises:
            BudgetExceededError: they do not fit; nothing was counted.
        """

    def release(self, nbytes: int) -> None:
        """Count bytes that were freed."""

    def renew(self) -> None:
        """Begin a new stretch, in which CPU time and items count from zero."""


class _Unlimited:
    """The budget of work outside of a request."""

    held = 0

    def check(self, stage: str) -> None:
        """Do nothing."""

    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None:
        """Do nothing."""

    def hold(self, stage: str, nbytes: int) -> None:
        """Do nothing."""

    def release(self, nbytes: int) -> None:
        """Do nothing."""

    def renew(self) -> None:
        """Do nothing."""


UNLIMITED: Budget = _Unlimited()
"""Allows everything."""
_current: ContextVar[Budget] = ContextVar("budget", default=UNLIMITED)


def current() -> Budget:
    """Return the budget of the work that this thread does; unlimited outside of requests."""
    return _current.get()


def check_room(stage: str, nbytes: int) -> None:
    """Check that bytes fit into the current budget before they are allocated.

    For arrays that somebody else holds once they exist.

    Raises:
        BudgetExceededError: they do not fit.
    """
    budget = _current.get()
    budget.hold(stage, nbytes)
    budget.release(nbytes)


def install(budget: Budget) -> Token[Budget]:
    """Make a budget the current one of this thread; the result is for :func:`uninstall`."""
    return _current.set(budget)


def uninstall(token: Token[Budget]) -> None:
    """Make the budget before the current one again."""
    _current.reset(token)


@contextmanager
def installed(budget: Budget) -> Iterator[None]:
    """Make a budget the current one of this thread until the block ends."""
    token = install(budget)
    try:
        yield
    finally:
        uninstall(token)


class Scope:
    """Releases at its end the bytes that the current budget counted within.

    Args:
        stage: what holds ``nbytes``, for the message.
        nbytes: bytes to hold from the beginning.

    Raises:
        BudgetExceededError: on entering, if they do not fit.
    """

    __slots__ = ("_before", "_budget", "_nbytes", "_stage")

    def __init__(self, stage: str = "", nbytes: int = 0) -> None:
        self._stage = stage
        self._nbytes = nbytes

    def __enter__(self) -> Budget:
        budget = self._budget = _current.get()
        self._before = budget.held
        if self._nbytes:
            budget.hold(self._stage, self._nbytes)
        return budget

    def __exit__(self, *_: object) -> None:
        self._budget.release(self._budget.held - self._before)
