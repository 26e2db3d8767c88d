"""The result of a call in a thread, which wakes its task at once.

A future of asyncio has its task go on in the next turn of the event loop, after all that is ready
by then. A result from a thread has already waited for one turn: the one that it woke the loop for.
Under load a turn takes milliseconds, and a small read has few; so here the task goes on in that
same turn::

    asyncio.Future   thread ──wake──▶ turn: set_result ─────▶ next turn: the task goes on
    Result           thread ──wake──▶ turn: settle, the task goes on
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Result(asyncio.Future[T]):
    """A future whose callbacks ``settle`` calls itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._waiting: list[tuple[Callable[[Any], object], Context]] = []

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """See asyncio.Future."""
        if self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._waiting.append((fn, copy_context() if context is None else context))

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        """See asyncio.Future."""
        kept = [pair for pair in self._waiting if pair[0] != fn]
        removed = len(self._waiting) - len(kept)
        self._waiting = kept
        return removed + super().remove_done_callback(fn)

    def cancel(self, msg: Any = None) -> bool:  # noqa: ANN401 - as in asyncio.Future
        """See asyncio.Future."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            waiting, self._waiting = self._waiting, []
            for fn, context in waiting:
                super().add_done_callback(fn, context=context)
        return is_cancelled

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """Set the result or the error, and call whoever waits for it; nothing if it is done.

        To be called by the event loop itself, never by a task: no two tasks run at once.
        """
        if self.done():
            return
        if error is None:
            self.set_result(result)  # type: ignore[arg-type]  # None only where T is None
        else:
            self.set_exception(error)
        waiting, self._waiting = self._waiting, []
        for fn, context in waiting:
            context.run(fn, self)
