"""Readers, writers, and the tasks that connect them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError, ContractError
from ..schema import Field, Record

Fields = tuple[Any, ...]
ReadResult = tuple[bool, Fields]
"""Whether the data ended, and the values of a record if it did not."""
Read = Callable[[], ReadResult]
ReadRecord = Callable[[], tuple[bool, Any]]
Write = Callable[[Any], None]
ShouldStop = Callable[[], bool] | threading.Event


class Hooks(list[Callable[[], None]]):
    """Functions to call when a task or thread begins or ends, and registered objects."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: dict[str, list[object]] = {}

    def add_attribute(self, key: str, value: object) -> None:
        """Register an object under a key."""
        self.attributes.setdefault(key, []).append(value)

    def run(self) -> None:
        """Call the functions in order."""
        for hook in self:
            hook()


class Reader:
    """A source of records that any number of threads may share."""

    def __init__(self, schema: Field | None = None) -> None:
        """Set the schema, if known.

        Raises:
            ContractError: the schema is not a Field.
        """
        if schema is not None and not isinstance(schema, Field):
            raise ContractError(f"a schema has to be a Field, not {type(schema).__name__}")
        self._schema = schema

    def schema(self) -> Field:
        """Schema of its records.

        Raises:
            ContractError: the schema is not known.
        """
        if self._schema is None:
            raise ContractError("Schema not provided for this reader.")
        return self._schema

    def _set_schema(self, schema: Field | None) -> None:
        self._schema = schema

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Add functions to call once per task, before and after it."""

    def read(self) -> ReadResult:
        """Read a record; atomic and thread-safe."""
        raise NotImplementedError("Readers must implement `read`.")

    def read_ex(self, local_init: Hooks, local_finish: Hooks) -> Read:
        """Return a function for one thread to read with; may add to the thread's hooks."""
        del local_init, local_finish
        return self.read

    def read_record(self) -> tuple[bool, Any]:
        """Read a record, as a Record if the schema is known."""
        stop, fields = self.read()
        return stop, self._record(stop, fields)

    def read_record_ex(self, local_init: Hooks, local_finish: Hooks) -> ReadRecord:
        """Like ``read_ex``; the function returns a Record if the schema is known."""
        read = self.read_ex(local_init, local_finish)

        def read_record() -> tuple[bool, Any]:
            stop, fields = read()
            return stop, self._record(stop, fields)

        return read_record

    def _record(self, stop: bool, fields: Fields) -> Any:  # noqa: ANN401 - Record or values
        return fields if stop or self._schema is None else Record(self._schema, fields)

    def reset(self) -> None:
        """Start over, if the reader supports that."""
        raise NotImplementedError("This reader cannot be resetted.")

    def getstate(self) -> dict[str, Any]:
        """A checkpoint as JSON values, if the reader supports that."""
        raise NotImplementedError("This reader has no checkpoints.")

    def setstate(self, checkpoint: Mapping[str, Any]) -> None:
        """Go to a checkpoint, if the reader supports that; the next task continues there."""
        raise NotImplementedError("This reader has no checkpoints.")

    def execution_step(
        self, reader_net_name: str | None = None, external_should_stop: ShouldStop | None = None
    ) -> tuple[ExecutionStep, Callable[[], Any]]:
        """A task that reads to the end, and a function that returns a thread's current record.

        Args:
            reader_net_name: prefix of the name of the step.
            external_should_stop: an event or function that ends the task when true. It is
                checked before each record, so that none is read and lost.
        """
        step = ExecutionStep(self, f"{reader_net_name or 'reader'}_step", external_should_stop)
        return step, step.current


class StopFlag(threading.Event):
    """Set by a writer that accepts no further records, to end the task."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Writer:
    """A destination of records that any number of threads may share."""

    _schema: Field | None = None

    def schema(self) -> Field | None:
        """Schema of the records, once known."""
        return self._schema

    def write(self, fields: Fields) -> None:
        """Write the values of a record; thread-safe."""
        raise NotImplementedError("Writers must implement write.")

    def write_record(self, fields: Any) -> None:  # noqa: ANN401 - Record or values
        """Write values, or a Record, which also sets the schema."""
        if isinstance(fields, Record):
            self._schema = fields.schema
            fields = fields.values
        self.write(fields)

    def setup_ex(self, init: Hooks, finish: Hooks) -> None:
        """Add functions to call once per task; the base adds ``commit`` to the end."""
        del init
        finish.append(self.commit)

    def write_ex(self, local_init: Hooks, local_finish: Hooks, stop: StopFlag) -> Write:
        """Return a function for one thread to write with; it may set ``stop``."""
        del local_init, local_finish, stop
        return self.write_record

    def write_record_ex(
        self, local_init: Hooks, local_finish: Hooks, stop: StopFlag | None = None
    ) -> tuple[Write, StopFlag]:
        """Return a function for one thread to write with, and the flag that ends the task."""
        stop = StopFlag("dequeue_status") if stop is None else stop
        return self.write_ex(local_init, local_finish, stop), stop

    def commit(self) -> None:
        """End the data."""


class ExecutionStep:
    """A task that reads to the end in some threads and passes records on.

    Its reader and writers are set up once, before the first run; every run calls the hooks
    they added. So every run of a step begins like the first, but another step with the same
    reader sets it up again.
    """

    def __init__(self, reader: Reader, name: str, external_should_stop: ShouldStop | None) -> None:
        self.name = name
        self._reader = reader
        self._external = external_should_stop
        self._init, self._finish = Hooks(), Hooks()
        self._to_set_up: list[Reader | Writer] = [reader]
        self._writers: list[Writer] = []
        self._functions: list[Write] = []
        self._local = threading.local()

    def add(self, consumer: Writer | Write) -> ExecutionStep:
        """Pass records to a writer or a function; returns the step.

        Raises:
            ArgumentError: it is neither.
        """
        if not isinstance(consumer, Writer) and not callable(consumer):
            raise ArgumentError(f"{consumer!r:.60} is no writer, and no function")
        if isinstance(consumer, Writer):
            self._writers.append(consumer)
            self._to_set_up.append(consumer)
        else:
            self._functions.append(consumer)
        return self

    def current(self) -> Any:  # noqa: ANN401 - Record or values
        """The record that this thread read last."""
        return self._local.record

    def run(self, num_threads: int = 1) -> int:
        """Run the task; return the number of records passed on.

        The finishing hooks run in any case. An exception in one thread ends the others and is
        raised here.

        Raises:
            ArgumentError: ``num_threads`` is below 1.
        """
        if num_threads < 1:
            raise ArgumentError(f"num_threads is {num_threads}")
        while self._to_set_up:
            self._to_set_up.pop(0).setup_ex(self._init, self._finish)
        task = _Task()
        self._init.run()
        try:
            threads = [
                threading.Thread(target=self._thread, args=(task,), name=f"{self.name} {k}")
                for k in range(num_threads)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._finish.run()
        if task.errors:
            raise task.errors[0]
        return sum(task.counts)

    def _thread(self, task: _Task) -> None:
        try:
            local_init, local_finish = Hooks(), Hooks()
            read = self._reader.read_record_ex(local_init, local_finish)
            opened = [writer.write_record_ex(local_init, local_finish) for writer in self._writers]
            consumers = [*(write for write, _ in opened), *self._functions]
            local_init.run()
            try:
                self._loop(task, read, consumers, [stop for _, stop in opened])
            finally:
                local_finish.run()
        except BaseException as error:  # noqa: BLE001 - raised by run
            task.errors.append(error)

    def _loop(
        self, task: _Task, read: ReadRecord, consumers: list[Write], stops: list[StopFlag]
    ) -> None:
        count = 0
        while not task.errors and not self._stopped():
            stop, record = read()
            if stop:
                break
            self._local.record = record
            for consumer in consumers:
                consumer(record)
            count += 1
            if any(flag.is_set() for flag in stops):
                break
        task.counts.append(count)

    def _stopped(self) -> bool:
        if self._external is None:
            return False
        if isinstance(self._external, threading.Event):
            return self._external.is_set()
        return self._external()


class _Task:
    """Results of the threads of one run."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.counts: list[int] = []
