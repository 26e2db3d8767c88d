"""What heavy work needs of wherever it runs: what ``concurrent.futures`` has."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Engine(Protocol):
    """Runs calls, in whatever order; results do not depend on where or when."""

    @property
    def width(self) -> int:
        """How many calls run at once."""

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:  # noqa: ANN401
        """Begin a call."""

    def close(self) -> None:
        """End, after the calls that run."""
