"""Bounded threads for parsing and encoding."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Threads that compute, so that the event loop never does."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "worker")

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Begin a call in a thread; await the future for what it returns."""
        return asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    def close(self) -> None:
        """End the threads after their current call."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def share_of_cores(processes: int) -> int:
    """Threads for one of several processes: at least two, as one answer must not block all."""
    return max(2, len(os.sched_getaffinity(0)) // processes)
