"""What calls about runs are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from ..losses.sources import SourceLike
from .description import Run

RunLike: TypeAlias = "str | Run"
"""A run, or its id."""
Perspective: TypeAlias = Literal["gul", "il", "ri", "rl"]

PARALLEL = 4
"""Uploads at a time."""


class RunOptions(TypedDict, total=False):
    """Options of a run; those left out have the server's defaults."""

    partitions: int
    """Number of streams; sealing requires all of them."""
    quantiles: Sequence[float]
    return_periods: Sequence[int]
    no_of_periods: int
    confidence: float
    curves: str
    tvar: Literal["count", "weight"]
    float_width: Literal[4, 8]
    nan: Literal["error", "zero", "drop"]
    negative: Literal["error", "keep"]
    sample_order: Literal["ascending", "any"]
    order: Literal["received", "event"]
    sets: Sequence[int]
    summary_ids: str


class ReportOptions(TypedDict, total=False):
    """What a report is made of, and as what it is written."""

    set: int
    """The summary set, of a run with several."""
    summary_ids: str
    """Only rows of these summaries, such as ``1,5,10-20``."""
    event_ids: str
    """Only rows of these events, in the same form."""
    variant: str
    """What ``add_reports`` returned, for a further report."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition to upload.

    Attributes:
        partition: which one it is, from 1.
        source: its stream, as for ``client.losses.post``.
        exec: a command to run instead, whose output is the stream; once its turn has come.
        state: file that lets another process go on. Of parts that are uploaded together all files
            stay until all parts are stored, so that the same call can be made again.
        replace: whether to delete the stream that the partition has, unless ``state`` goes on
            with it.
    """

    partition: int
    source: SourceLike | None = None
    exec: Sequence[str] | None = None
    state: str | os.PathLike[str] | None = None
    replace: bool = False


def run_id(run: RunLike) -> str:
    """Return the id of a run."""
    return run if isinstance(run, str) else run.id
