"""Work in the background that ends when nobody wants it any more."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator

from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import ServiceError

from .news import News

LOOK_SECONDS = 0.05
"""Seconds between two looks whether work is still wanted, where no news of its run are heard or the
store does not answer."""


@contextlib.contextmanager
def while_wanted(  # noqa: PLR0913, PLR0917 - of one piece of work
    owner: str,
    is_wanted: Callable[[], bool],
    gone: threading.Event,
    stopped: threading.Event,
    news: News,
    pause: float,
) -> Iterator[None]:
    """Have the work in a block stop when it is no longer wanted; it has no other bounds.

    Args:
        owner: for whom the work is.
        is_wanted: asked again and again, in a thread of its own.
        gone: set once it has said no.
        stopped: set when the server stops.
        news: after which to ask again; used by nobody else.
        pause: seconds after which to ask again without news, if they are heard.

    Raises:
        CancelledError: from any look at the budget.
    """
    ended = threading.Event()
    longest = pause if news.listen() else min(pause, LOOK_SECONDS)

    def watch() -> None:
        while not ended.is_set():
            wait = longest
            try:
                if not is_wanted():
                    gone.set()
                    return
            except ServiceError:
                # The store may answer the next time.
                wait = min(pause, LOOK_SECONDS)
            news.wait(wait)

    endless = BudgetLimits(sys.maxsize, math.inf, sys.maxsize)
    watching = threading.Thread(target=watch, name="wanted", daemon=True)
    watching.start()
    try:
        with RequestBudget(endless, gone, stopped, owner).in_thread():
            yield
    finally:
        ended.set()
        news.set()
        watching.join()
