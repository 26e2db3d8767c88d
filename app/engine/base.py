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


class Charge(Protocol):
    """Bytes charged to an owner in the ledger of the process."""

    def grow(self, nbytes: int) -> None:
        """Charge further bytes.

        Raises:
            ServiceError: the process or the owner has no more.
        """

    def release(self) -> None:
        """Give all bytes back."""


class Ledger(Protocol):
    """The bytes of the process, by owner."""

    def hold(self, owner: str, nbytes: int, purpose: str) -> Charge:
        """Charge bytes to an owner.

        Raises:
            ServiceError: the process or the owner has no more.
        """


class Gone(Protocol):
    """Tells whether the client left; asked in threads, so it must only read a flag."""

    def is_set(self) -> bool:
        """Whether the client left."""
