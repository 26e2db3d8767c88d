"""Work in the background that ends when nobody wants it any more."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator

from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import ServiceError

LOOK_SECONDS = 0.05
"""Seconds between two looks whether work is still wanted."""


@contextlib.contextmanager
def while_wanted(
    owner: str,
    is_wanted: Callable[[], bool],
    gone: threading.Event,
    stopped: threading.Event,
    pause: float = LOOK_SECONDS,
) -> Iterator[None]:
    """Have the work in a block stop when it is no longer wanted; it has no other bounds.

    Args:
        owner: for whom the work is.
        is_wanted: asked again and again, in a thread of its own.
        gone: set once it has said no.
        stopped: set when the server stops.
        pause: seconds between two questions, at most ``LOOK_SECONDS``.

    Raises:
        CancelledError: from any look at the budget.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(min(pause, LOOK_SECONDS)):
            # The store may answer the next time.
            with contextlib.suppress(ServiceError):
                if not is_wanted():
                    gone.set()
                    return

    endless = BudgetLimits(sys.maxsize, math.inf, sys.maxsize)
    watching = threading.Thread(target=watch, name="wanted", daemon=True)
    watching.start()
    try:
        with RequestBudget(endless, gone, stopped, owner).in_thread():
            yield
    finally:
        ended.set()
        watching.join()
