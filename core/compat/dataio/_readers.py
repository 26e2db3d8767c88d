"""Readers that count, limit, delay and combine."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np

from ...errors import StateError
from ..checkpoints import MAX_COUNT, VERSION, Saved
from ..errors import ArgumentError, CheckpointError, ContractError
from ..schema import Struct
from ._base import Fields, Hooks, Read, Reader, ReadResult

_NS = 1_000_000_000


def _saved(reader: Reader, checkpoint: object, *fields: str, **arguments: object) -> Saved:
    return Saved(type(reader).__name__, fields, checkpoint, arguments, kind="reader")


class CounterReader(Reader):
    """0, 1, 2, ... without end; each number goes to one thread.

    The first step that sets the reader up owns the counter, which starts from 0 in every
    run of that step. Other steps continue from its current value.
    """

    def __init__(self) -> None:
        super().__init__(Struct(("iter", np.int64)))
        self._next = 0
        self._owned = False
        self._restored = False
        self._lock = threading.Lock()

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Start the counter in every run of the first step."""
        del finish
        if not self._owned:
            self._owned = True
            init.append(self._begin)

    def _begin(self) -> None:
        if not self._restored:
            self._next = 0
        self._restored = False

    def read(self) -> ReadResult:
        """Read the next number."""
        with self._lock:
            value = self._next
            self._next += 1
        return False, (value,)

    def getstate(self) -> dict[str, Any]:
        """The next number."""
        return {"reader": "CounterReader", "version": VERSION, "next": self._next}

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Continue with the saved number, even if a new run begins."""
        self._next = _saved(self, checkpoint, "next").count("next")
        self._restored = True


class _Wrapping(Reader):
    """Base of readers that read another one."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader._schema)  # noqa: SLF001 - of the same base, and may be None
        self.reader = reader

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Set up the reader."""
        self.reader.setup_ex(init, finish)

    def read(self) -> ReadResult:
        """Read a record."""
        return self.read_ex(Hooks(), Hooks())()

    def read_ex(self, local_init: Hooks, local_finish: Hooks) -> Read:
        """Return the function that one thread reads with."""
        inner = self.reader.read_ex(local_init, local_finish)
        self._set_schema(self.reader._schema)  # noqa: SLF001 - it may have become known
        return partial(self._read_through, inner)

    def _read_through(self, inner: Read) -> ReadResult:
        """Read with the function of the inner reader."""
        raise NotImplementedError


class ReaderWithLimitBase(_Wrapping):
    """Base of readers that may stop before the reader they wrap.

    The limit is checked before each record. ``data_finished`` tells whether the data ended
    first. Only a read that finds the end shows that, so if the limit is exactly the number of
    records it is False, as in Caffe2.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._data_finished = False
        self._restored = False

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Reset the limit and ``data_finished`` at the beginning of every task."""
        init.append(self._begin)
        self.reader.setup_ex(init, finish)
        self.setup_limiter(init, finish)

    def _begin(self) -> None:
        if not self._restored:
            self._data_finished = False

    def _read_through(self, inner: Read) -> ReadResult:
        """Read a record, unless the limit is reached."""
        if self.check_limiter_condition():
            return True, ()
        stop, fields = inner()
        if stop:
            self._data_finished = True
        return stop, fields

    def setup_limiter(self, init: Hooks, finish: Hooks) -> None:
        """Add the functions the limit needs once per task."""
        raise NotImplementedError("Subclass must implement `setup_limiter`")

    def check_limiter_condition(self) -> bool:
        """Whether the limit is reached; called before each record, in any thread."""
        raise NotImplementedError("Subclass must implement `check_limiter_condition")

    def data_finished(self) -> bool:
        """Whether a read of this task found the end of the data."""
        return self._data_finished

    def _limit_state(self) -> dict[str, Any]:
        return {
            "reader": type(self).__name__,
            "version": VERSION,
            "data_finished": self._data_finished,
            "inner": self.reader.getstate(),
        }

    def _set_limit_state(
        self, checkpoint: Mapping[str, Any], field: str, most: int | None = MAX_COUNT
    ) -> Any:  # noqa: ANN401 - None without a limit
        """Restore the fields that all limits share; return that of this one, up to ``most``."""
        saved = _saved(self, checkpoint, "data_finished", "inner", field)
        value = saved[field]
        if most is not None:
            saved.count(field, most)
        elif value is not None:
            raise CheckpointError(f"{field} in a checkpoint is {value!r}, and here is no limit")
        if not isinstance(saved["data_finished"], bool):
            raise CheckpointError(f"data_finished in a checkpoint is {saved['data_finished']!r}")
        self.reader.setstate(saved["inner"])
        self._data_finished = saved["data_finished"]
        self._restored = True
        return value


class ReaderWithLimit(ReaderWithLimitBase):
    """At most ``num_iter`` records per task, over all threads.

    Args:
        reader: the records.
        num_iter: 0 for no records, None for no limit.

    Raises:
        ArgumentError: ``num_iter`` is no whole number from 0.
    """

    def __init__(self, reader: Reader, num_iter: int | None = 1) -> None:
        super().__init__(reader)
        number: object = 0 if num_iter is None else num_iter
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise ArgumentError(f"num_iter is {num_iter!r}", hint="None means no limit.")
        self.num_iter = None if num_iter is None else int(number)
        self._left = self.num_iter
        self._lock = threading.Lock()

    def setup_limiter(self, init: Hooks, finish: Hooks) -> None:
        """Reset the count at the beginning of every task."""
        del finish
        init.append(self._start)

    def _start(self) -> None:
        if not self._restored:
            self._left = self.num_iter
        self._restored = False

    def check_limiter_condition(self) -> bool:
        """Whether no record is left; if one is, count it."""
        with self._lock:
            if self._left is None:
                return False
            if self._left == 0:
                return True
            self._left -= 1
            return False

    def getstate(self) -> dict[str, Any]:
        """The records left, and the reader's checkpoint; for use between tasks."""
        return {**self._limit_state(), "left": self._left}

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Go to a checkpoint; the next task has the records that were left."""
        self._left = self._set_limit_state(checkpoint, "left", self.num_iter)


def CountUntil(num_iter: int | None) -> ReaderWithLimit:  # noqa: N802 - the peer's name
    """A reader of the numbers 0 to ``num_iter - 1``."""
    return ReaderWithLimit(CounterReader(), num_iter)


class ReaderWithTimeLimit(ReaderWithLimitBase):
    """Records for ``duration`` seconds from the beginning of the task.

    Args:
        reader: the records.
        duration: seconds; None, 0 and negative values mean no limit.
        clock: returns nanoseconds since any moment.

    Raises:
        ArgumentError: the duration is not a number.
    """

    def __init__(
        self,
        reader: Reader,
        duration: float | None = 0,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(reader)
        number: object = 0 if duration is None else duration
        if not isinstance(number, Real) or not math.isfinite(number):
            raise ArgumentError(f"duration is {duration!r}", hint="None means no limit.")
        self.duration = duration
        self._limit = round(duration * _NS) if duration is not None and duration > 0 else None
        self._clock = clock
        self._used = 0
        self._started: int | None = None
        self._lock = threading.Lock()

    def setup_limiter(self, init: Hooks, finish: Hooks) -> None:
        """Start the clock with the task and stop it with the task."""
        init.append(self._start)
        finish.append(self._stop)

    def _start(self) -> None:
        if not self._restored:
            self._used = 0
        self._restored = False
        self._started = self._clock()

    def _stop(self) -> None:
        self._used = self._elapsed()
        self._started = None

    def _elapsed(self) -> int:
        return self._used + (0 if self._started is None else self._clock() - self._started)

    def check_limiter_condition(self) -> bool:
        """Whether the time is up. Outside a task, the first read starts the clock."""
        if self._limit is None:
            return False
        with self._lock:
            if self._started is None:
                self._started = self._clock()
        return self._elapsed() >= self._limit

    def getstate(self) -> dict[str, Any]:
        """The time used, and the reader's checkpoint; for use between tasks."""
        return {**self._limit_state(), "used_ns": self._elapsed()}

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Go to a checkpoint; the next task has the time that was left."""
        self._used = self._set_limit_state(checkpoint, "used_ns")
        self._started = None


class ReaderWithDelay(_Wrapping):
    """Waits ``delay`` seconds before each record of another reader.

    Raises:
        ArgumentError: the delay is negative.
    """

    def __init__(
        self, reader: Reader, delay: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(reader)
        if not delay >= 0:
            raise ArgumentError(f"delay is {delay}")
        self.delay = delay
        self._sleep = sleep

    def _read_through(self, inner: Read) -> ReadResult:
        self._sleep(self.delay)
        return inner()

    def reset(self) -> None:
        """Reset the reader."""
        self.reader.reset()

    def getstate(self) -> dict[str, Any]:
        """The reader's checkpoint."""
        return self.reader.getstate()

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Go to a checkpoint of the reader."""
        self.reader.setstate(checkpoint)


class CompositeReader(Reader):
    """Joins one record of every reader into a record, until the first reader ends.

    A read is atomic over all readers, so threads cannot mix up records. Records read before
    one of the readers ended stay in ``unread`` for the next read.

    Raises:
        ContractError: there are no readers, their number is not that of the names, or one has no
            schema.
    """

    def __init__(self, names: Sequence[str], readers: Sequence[Reader]) -> None:
        if len(names) != len(readers) or not readers:
            raise ContractError(f"{len(names)} names for {len(readers)} readers")
        pairs = zip(names, readers, strict=True)
        super().__init__(Struct(*((name, reader.schema()) for name, reader in pairs)))
        self._names = list(names)
        self._readers = list(readers)
        self._pending: dict[str, Fields] = {}
        self._lock = threading.Lock()

    @property
    def unread(self) -> dict[str, Fields]:
        """Values that were read but not returned, by name; a new task drops them."""
        return dict(self._pending)

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Set up the readers."""
        init.append(self._pending.clear)
        for reader in self._readers:
            reader.setup_ex(init, finish)

    def read(self) -> ReadResult:
        """Read one record of every reader."""
        return self.read_ex(Hooks(), Hooks())()

    def read_ex(self, local_init: Hooks, local_finish: Hooks) -> Read:
        """Return the function that one thread reads with."""
        reads = [reader.read_ex(local_init, local_finish) for reader in self._readers]

        def read() -> ReadResult:
            with self._lock:
                return self._read(reads)

        return read

    def _read(self, reads: list[Read]) -> ReadResult:
        for name, read in zip(self._names, reads, strict=True):
            if name not in self._pending:
                stop, fields = read()
                if stop:
                    return True, ()
                self._pending[name] = fields
        values = tuple(value for name in self._names for value in self._pending[name])
        self._pending.clear()
        return False, values

    def reset(self) -> None:
        """Reset all readers."""
        with self._lock:
            self._pending.clear()
            for reader in self._readers:
                reader.reset()

    def getstate(self) -> dict[str, Any]:
        """The readers' checkpoints.

        Raises:
            StateError: values are ``unread``, which a checkpoint does not hold.
        """
        with self._lock:
            if self._pending:
                raise StateError(
                    f"records of {sorted(self._pending)} were read and not returned",
                    hint="One reader has ended. Reset, or take the checkpoint before that.",
                )
            states = [reader.getstate() for reader in self._readers]
        saved = {"reader": "CompositeReader", "version": VERSION, "names": self._names}
        return {**saved, "readers": states}

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Go to a checkpoint of all readers.

        Raises:
            CheckpointError: it is malformed, or of other readers. If the fault is in that of one
                reader, those before it have moved: go to another checkpoint, or reset.
        """
        saved = _saved(self, checkpoint, "readers", names=self._names)
        states = saved.states("readers", len(self._readers))
        with self._lock:
            self._pending.clear()
            for reader, state in zip(self._readers, states, strict=True):
                reader.setstate(state)
