"""What code that knows no request asks of the budget that it runs under."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from app.tracing import NO_TRACE, Trace
from core.budget import current

from .request_budget import RequestBudget, ThreadBudget

P = ParamSpec("P")
T = TypeVar("T")


def current_request() -> RequestBudget | None:
    """Return the budget of the request of this task or thread; None outside of requests."""
    budget = current()
    return budget.request if isinstance(budget, ThreadBudget) else None


def peak_bytes() -> int:
    """Return the most bytes that the request of this task or thread has held at once."""
    request = current_request()
    return 0 if request is None else request.peak


def current_owner() -> str:
    """Return who the request of this task or thread belongs to; empty outside of requests."""
    request = current_request()
    return "" if request is None else request.owner


def current_trace() -> Trace:
    """Return the span of the request of this task or thread; none outside of requests."""
    request = current_request()
    return NO_TRACE if request is None else request.trace


def inherited(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs in another thread under the budget of the caller."""
    request = current_request()
    if request is None:
        return function

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return request.run(function, *args, **kwargs)

    return run
