"""What is iterated over or closed with asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

from .asynchronous import AsyncShell
from .effects import Steps, next_item

T = TypeVar("T")


class AsyncClosing(ABC):
    """An asynchronous context manager that is closed at its end."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of everything."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncItems(AsyncClosing, Generic[T]):
    """The items that an operation delivers; an asynchronous iterator and context manager.

    Args:
        shell: runs the operation; closed with it.
        steps: the operation.
    """

    def __init__(self, shell: AsyncShell, steps: Steps[None]) -> None:
        self._shell = shell
        self._steps = steps

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            item: T | None = await self._shell.run(next_item(self._steps))
        except BaseException:
            await self.aclose()
            raise
        if item is None:
            await self.aclose()
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Stop early; items delivered so far remain valid."""
        self._steps.close()
        await self._shell.aclose()
