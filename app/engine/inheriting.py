"""What code that knows no request asks of the budget that it runs under."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from app.tracing import NO_TRACE, Trace
from core.budget import UNLIMITED, Budget, current

from .request_budget import ThreadBudget

P = ParamSpec("P")
T = TypeVar("T")


def peak_bytes() -> int:
    """Return the most bytes that the request of this task or thread has held at once."""
    budget = current()
    return budget.request.peak if isinstance(budget, ThreadBudget) else 0


def current_owner() -> str:
    """Return who the request of this task or thread belongs to; empty outside of requests."""
    budget = current()
    return budget.request.owner if isinstance(budget, ThreadBudget) else ""


def current_trace() -> Trace:
    """Return the span of the request of this task or thread; none outside of requests."""
    budget = current()
    return budget.request.trace if isinstance(budget, ThreadBudget) else NO_TRACE


def inherited(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs in another thread under the budget of the caller."""
    budget: Budget = current()
    if budget is UNLIMITED or not isinstance(budget, ThreadBudget):
        return function
    request = budget.request

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return request.run(function, *args, **kwargs)

    return run
