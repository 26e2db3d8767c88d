"""Reductions and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..transport.answers import FrameAnswer
from ..transport.frames import Array, Frame
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
