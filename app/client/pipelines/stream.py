"""The batches of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ProtocolError
from ..transport.answers import FrameAnswer
from ..transport.frames import Frame, Octets
from .batch import Batch, EpochEnd
from .layout import Layout
from .selection import is_token


@dataclass(frozen=True, slots=True)
class BatchesEnd:
    """How an answer ended.

    Attributes:
        reason: exhausted, count, bytes, time, epoch or drain.
        data_finished: no batch follows.
        profile: seconds per stage, as the service measured them.
    """

    reason: str
    data_finished: bool
    profile: Mapping[str, Any] = field(default_factory=dict)


class BatchReader(FrameAnswer[Batch | EpochEnd, BatchesEnd]):
    """The batches of one answer, each checked against the layout before it gets memory.

    Args:
        layout: of the batches.
        first: number of the batch that must come first; None if only the token knows.
    """

    def __init__(self, layout: Layout, first: int | None) -> None:
        self._layout = layout
        self._next = first

    def _memory(self, header: dict[str, Any], size: int) -> Octets:
        self._layout.check(header, size)
        return np.empty(size, np.uint8)

    def _epoch(self) -> EpochEnd:
        return EpochEnd()

    def _data(self, frame: Frame) -> Batch:
        header = frame.header
        sequence = _number(header, "seq")
        if self._next is not None and sequence != self._next:
            raise ProtocolError(f"batch {sequence} came where {self._next} was due")
        token: Any = header.get("token")
        if not is_token(token):
            raise ProtocolError("a frame does not say where to resume")
        self._next = sequence + 1
        return Batch(
            self._layout.columns(header, frame.payload),
            token=token,
            sequence=sequence,
            epoch=_number(header, "epoch"),
            count=_number(header, "count"),
            rows=self._layout.rows(header),
        )

    def _finish(self, header: Mapping[str, Any]) -> None:
        reason, finished = header.get("reason"), header.get("data_finished")
        if not isinstance(reason, str) or not isinstance(finished, bool):
            raise ProtocolError("the END frame does not say how it ended")
        if reason == "exhausted" and not finished:
            raise ProtocolError("the data is exhausted, but not finished")
        profile = header.get("profile")
        self.end = BatchesEnd(reason, finished, profile if isinstance(profile, dict) else {})


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"a frame does not say its {name}")
    return value
