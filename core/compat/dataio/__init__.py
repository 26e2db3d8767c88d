"""Caffe2's readers and writers as plain Python: what its nets did, functions do.

A *task* reads records in one or several threads and hands each to writers or functions
(``ExecutionStep.run``). Where the peer fills nets to be run at the beginning and end of
the task and of each thread, here functions are added to ``Hooks``: ``init`` and ``finish``
once per task, ``local_init`` and ``local_finish`` once per thread. ``read_ex`` gives the
function that reads, for one thread; ``read`` reads at once.
"""

from __future__ import annotations

from ._base import ExecutionStep, Hooks, Reader, StopFlag, Writer
from ._builders import CompositeReaderBuilder, Pipe, PipedReaderBuilder, ReaderBuilder
from ._readers import (
    CompositeReader,
    CounterReader,
    CountUntil,
    ReaderWithDelay,
    ReaderWithLimit,
    ReaderWithLimitBase,
    ReaderWithTimeLimit,
)

__all__ = [
    "CompositeReader",
    "CompositeReaderBuilder",
    "CountUntil",
    "CounterReader",
    "ExecutionStep",
    "Hooks",
    "Pipe",
    "PipedReaderBuilder",
    "Reader",
    "ReaderBuilder",
    "ReaderWithDelay",
    "ReaderWithLimit",
    "ReaderWithLimitBase",
    "ReaderWithTimeLimit",
    "StopFlag",
    "Writer",
]
