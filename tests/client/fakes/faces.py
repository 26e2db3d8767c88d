"""The asynchronous client with the blocking one's face, so that a test runs with either."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from app.client import AsyncClient

_PROPERTIES = {
    "AsyncDataset": {"info", "nav_shape", "sig_shape", "dtype", "fingerprint"},
    "AsyncView": {"plan", "shape", "dtype", "nbytes", "id"},
}
"""Asynchronous methods that are properties of the blocking client."""
_ARGUMENTS = {"threads": "connections"}
"""Arguments that have another name."""


class Face:
    """An object of the asynchronous client, driven to completion call by call."""

    # By the loop: a runner handles interrupts anew for each call, which takes longer than most.
    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        value = getattr(self._target, name)
        if name in _PROPERTIES.get(type(self._target).__name__, ()):
            return self._done(value())
        if not callable(value):
            return self._done(value)

        def method(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            given = [self._plain(each) for each in args]
            more = {_ARGUMENTS.get(k, k): self._plain(v) for k, v in named.items()}
            return self._done(value(*given, **more))

        return method

    def _done(self, value: Any) -> Any:  # noqa: ANN401
        if inspect.iscoroutine(value):
            value = self._loop.run_until_complete(value)
        if type(value).__module__.startswith("app.client") and "Async" in type(value).__name__:
            return Face(value, self._loop)
        return value

    @staticmethod
    def _plain(value: Any) -> Any:  # noqa: ANN401
        return value._target if isinstance(value, Face) else value

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401
        return self._done(self._target[key])

    def __iter__(self) -> Self:
        if not hasattr(self._target, "__aiter__"):
            raise TypeError(f"{type(self._target).__name__} cannot be iterated over")
        self._target.__aiter__()
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        async def following(items: AsyncIterator[Any]) -> Any:  # noqa: ANN401
            return await anext(items)

        try:
            return self._loop.run_until_complete(following(self._target))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._loop.run_until_complete(self._target.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncFace(Face):
    """The asynchronous client itself, in an event loop of its own."""

    def __init__(self, url: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
        self._runner = asyncio.Runner()
        super().__init__(AsyncClient(url, *args, **options), self._runner.get_loop())
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            super().close()
            self._runner.close()


def leftovers(directory: Path) -> list[str]:
    """Names of the files in a directory."""
    return sorted(path.name for path in directory.iterdir())
