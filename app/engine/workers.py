"""A bounded number of threads for parsing and encoding."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from .budgets import inherited

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Threads that compute, so that the event loop never does."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "worker")

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Start a call in a thread, under the budget of the request; await its result."""
        return asyncio.wrap_future(self._pool.submit(inherited(function), *args, **kwargs))

    def close(self) -> None:
        """Finish the running calls, drop the others, and stop."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def share_of_cores(processes: int) -> int:
    """Return the number of threads per process: at least two, so that no call blocks all."""
    return max(2, len(os.sched_getaffinity(0)) // processes)
