"""Threads of this process: kernels release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class LocalEngine:
    """A pool of its own, so that heavy work never holds up requests.

    Args:
        width: how many calls run at once.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._pool = ThreadPoolExecutor(width, "engine")

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """Begin a call."""
        return self._pool.submit(function, *args)

    def close(self) -> None:
        """End, after the calls that run."""
        self._pool.shutdown(wait=True, cancel_futures=True)
