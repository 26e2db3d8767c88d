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

from ._base import ExecutionStep as ExecutionStep
from ._base import Hooks as Hooks
from ._base import Reader as Reader
from ._base import StopFlag as StopFlag
from ._base import Writer as Writer
from ._builders import CompositeReaderBuilder as CompositeReaderBuilder
from ._builders import Pipe as Pipe
from ._builders import PipedReaderBuilder as PipedReaderBuilder
from ._builders import ReaderBuilder as ReaderBuilder
from ._readers import CompositeReader as CompositeReader
from ._readers import CounterReader as CounterReader
from ._readers import CountUntil as CountUntil
from ._readers import ReaderWithDelay as ReaderWithDelay
from ._readers import ReaderWithLimit as ReaderWithLimit
from ._readers import ReaderWithLimitBase as ReaderWithLimitBase
from ._readers import ReaderWithTimeLimit as ReaderWithTimeLimit
