"""An engine of threads in this process; kernels release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from .inheriting import inherited

T = TypeVar("T")


class LocalEngine:
    """An engine with its own pool, so that heavy work never delays requests.

    Args:
        width: number of calls that run at once.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._pool = ThreadPoolExecutor(width, "engine")

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """See Engine; the call works under the budget of the caller."""
        return self._pool.submit(inherited(function), *args)

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown(wait=True, cancel_futures=True)
