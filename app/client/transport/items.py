# Made from async_items.py by deploy/unasync.py (make fmt): change that one.
"""What is iterated over or closed with blocking calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from .blocking import BlockingShell
from .effects import Steps, next_item

T = TypeVar("T")


class Closing(ABC):
    """A context manager that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class BlockingItems(Closing, Generic[T]):
    """The items that an operation delivers; an iterator and context manager.

    Args:
        shell: runs the operation; closed with it.
        steps: the operation.
    """

    def __init__(self, shell: BlockingShell, steps: Steps[None]) -> None:
        self._shell = shell
        self._steps = steps

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            item: T | None = self._shell.run(next_item(self._steps))
        except BaseException:
            self.close()
            raise
        if item is None:
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        """Stop early; items delivered so far remain valid."""
        self._steps.close()
        self._shell.close()
