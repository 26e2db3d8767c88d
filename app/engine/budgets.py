"""Budgets of requests, and the ends that they share.

Each request has one :class:`RequestBudget`, made in its task on the event loop and inherited
by every thread that works for it. A thread sees it through a :class:`ThreadBudget` of its own,
because CPU time is measured per thread::

    Guard ── Budgets.of_request ──▶ RequestBudget ─┬─ ThreadBudget   worker: stages, checks
                   │                   │           └─ ThreadBudget   engine: chunks of frames
                   │                   └─ Charge, in the ledger of the process
                   └─ stop(), when the server ends
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.tracing import NO_TRACE, Trace
from core.budget import install, uninstall

from .base import Gone
from .ledger import Ledger
from .request_budget import BudgetLimits, RequestBudget, ThreadBudget


class Working:
    """Installs the budget of a request for a ``with`` block, after which its threads stop."""

    __slots__ = ("_budget", "_token")

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget

    def __enter__(self) -> RequestBudget:
        self._token = install(ThreadBudget(self._budget, in_loop=True))
        return self._budget

    def __exit__(self, *_: object) -> None:
        uninstall(self._token)
        self._budget.close()


class Budgets:
    """Makes the budgets of requests.

    Args:
        limits: of each request.
        ledger: charged for the bytes that requests hold; None for no charge.

    Attributes:
        on_exceeded: called with the stage and the budget that was exceeded.
        on_cancelled: called with the reason when a thread is stopped.
    """

    def __init__(self, limits: BudgetLimits | None = None, ledger: Ledger | None = None) -> None:
        self.on_exceeded: Callable[[str, str], None] | None = None
        self.on_cancelled: Callable[[str], None] | None = None
        self._limits = limits or BudgetLimits()
        self._ledger = ledger
        self._stopping = threading.Event()

    def of_request(self, owner: str, gone: Gone, trace: Trace = NO_TRACE) -> Working:
        """Give the tasks and threads of a request a budget, and cancel them at the end.

        Args:
            owner: pays in the ledger.
            gone: set when the client left.
            trace: its span.
        """
        budget = RequestBudget(self._limits, gone, self._stopping, owner, self._ledger)
        budget.on_exceeded, budget.on_cancelled = self.on_exceeded, self.on_cancelled
        budget.trace = trace
        return Working(budget)

    def stop(self) -> None:
        """Cancel the work of all requests, since the process is about to end."""
        self._stopping.set()
