"""An engine of threads in this process; kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from .budgets import inherited
from .precedence import lower_priority

T = TypeVar("T")


class LocalEngine:
    """An engine with its own pool, of lower priority, so that heavy work never delays requests.

    Args:
        width: number of calls that run at once.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        self._pool = ThreadPoolExecutor(width, "engine", lower_priority, (niceness,))

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """See Engine; the call works under the budget of the caller."""
        return self._pool.submit(inherited(partial(function, *args)))

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown(wait=True, cancel_futures=True)
