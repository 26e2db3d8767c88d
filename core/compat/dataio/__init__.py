"""Caffe2's readers and writers in plain Python, with functions instead of nets.

A *task* reads records in one or more threads and passes each to writers or functions
(``ExecutionStep.run``). Where Caffe2 adds operators to nets that run at the beginning and
end of the task and of every thread, readers and writers here add functions to ``Hooks``:
``init`` and ``finish`` run once per task, ``local_init`` and ``local_finish`` once per
thread. ``read`` reads a record; ``read_ex`` returns a function for one thread to read with.

The limits are not :class:`core.iterate.limits.Limited`: they count over all threads of a
task, start over with every run, and leave ``data_finished`` False if a limit ends exactly with
the data, because no read has seen the end.
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
