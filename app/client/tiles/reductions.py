"""Reductions: their results, from the beginning after a cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import ConnectionFailed, ProtocolError
from ..transport.answers import FrameAnswer
from ..transport.effects import Finish, Steps
from ..transport.frames import Array, Frame, FrameReader
from ..transport.requests import Request
from ..transport.resumable import ResumableStream
from ..transport.retry import Backoff
from .options import plain

Watch: TypeAlias = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


def reduction_json(reduction: str | Mapping[str, Any]) -> dict[str, Any]:
    """A reduction as JSON values; one without parameters may be given by name."""
    if isinstance(reduction, str):
        return {"op": reduction}
    content: dict[str, Any] = plain(reduction)
    return content


class ReductionReader(FrameAnswer[None, str]):
    """The results of one answer.

    Args:
        watch: called whenever the service reports how far it is.

    Attributes:
        results: arrays by name.
    """

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self.results: dict[str, Array] = {}

    def _data(self, frame: Frame) -> None:
        name = frame.header.get("name")
        if not isinstance(name, str) or name in self.results:
            raise ProtocolError(f"a result has the name {name}")
        try:
            array = str(frame.header["arrays"][0]["name"])
        except (IndexError, KeyError, TypeError) as e:
            raise ProtocolError("a frame does not describe its array") from e
        self.results[name] = frame.array(array)

    def _finish(self, header: Mapping[str, Any]) -> None:
        self.end = str(header.get("reason"))

    def _beat(self, header: Mapping[str, Any]) -> None:
        done, total = header.get("done"), header.get("of")
        if self._watch is not None and isinstance(done, int) and isinstance(total, int):
            self._watch(done, total)


class Reduction(ResumableStream):
    """Asks for one reduction until its results are there.

    Args:
        request: for the reduction.
        backoff: decides on further attempts.
        watch: called whenever the service reports how far it is.

    Attributes:
        results: arrays by name, once all are there.
    """

    def __init__(self, request: Request, backoff: Backoff, watch: Watch | None) -> None:
        super().__init__(backoff)
        self._request = request
        self._watch = watch
        self.results: dict[str, Array] = {}

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        return bool(self.results)

    def _attempt(self) -> Steps[None]:
        yield from self._open(self._request)
        reader = ReductionReader(self._watch)
        frames = FrameReader(reader.allocate)
        while reader.end is None:
            yield from reader.receive(frames)
        if reader.end == "drain":
            raise ConnectionFailed("the server is stopping")
        if reader.end != "complete" or not reader.results:
            count = len(reader.results)
            raise ProtocolError(f"the answer ended with {reader.end} and {count} results")
        yield Finish()
        self.results = reader.results
