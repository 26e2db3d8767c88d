"""The interface of engines, which run heavy work: that of ``concurrent.futures``."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Engine(Protocol):
    """Runs calls in any order; their results must not depend on it."""

    @property
    def width(self) -> int:
        """Number of calls that run at once."""

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """Schedule a call."""

    def close(self) -> None:
        """Finish the running calls, drop the others, and stop."""
