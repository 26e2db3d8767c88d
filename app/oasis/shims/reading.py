"""Streams of summaries through the engine, into tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.losses.sources import Sources
from core.losses.analysis import Analysis
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.seen import SeenEvents

from .certifying import Sum, check_written


def policy(float_width: int, **fields: Any) -> Policy:  # noqa: ANN401 - of Policy
    """What streams of a run may contain: all that the peer reads without a wrong result."""
    return Policy(float_width=float_width, negative="keep", sample_order="any", **fields)


def read_streams(
    names: Sequence[str],
    reports: Sequence[str],
    sink: Sink,
    float_width: int,
    **options: Any,  # noqa: ANN401 - of Analysis
) -> Partitions:
    """Read all streams; rows go to the sink as they arise.

    Args:
        names: of files and fifos; ``-`` for standard input.
        reports: names.
        sink: receives the rows.
        float_width: bytes of a loss.
        options: inputs and more of the analysis of each stream.

    Raises:
        CoreError: a stream is faulty or cannot be read, or streams do not belong together.
    """

    def make(name: str, sink: Sink, seen: SeenEvents) -> Analysis:
        return Analysis(reports, sink, policy=policy(float_width), **options, name=name, seen=seen)

    sums = [Sum() for _ in names]
    with Sources(names) as sources:
        partitions = Partitions([source.name for source in sources.sources], make, sink)
        while (piece := sources.read()) is not None:
            index, data = piece
            if len(data):
                sums[index].add(data)
                partitions.receive(index, data)
            else:
                check_written(names[index], sums[index])
                partitions.close(index)
    return partitions
