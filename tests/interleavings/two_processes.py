"""Two processes on one data directory, of which one goes on at a time, until its next call."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, cast

from app.runs.records import REPORT, RUN, SEGMENT, STREAM
from app.runs.sealing import jobs, sealer
from app.state.base import Usage
from app.state.blobs import BlobStore
from app.state.ownership import namespace
from app.state.storage import open_storage

from .calls import Call
from .exploring import Drawn, Step
from .points import Shared
from .run_acts import STATES
from .runs_world import ALICE, ListingWork, Process
from .scheduler import Outcome, Scheduler

STORES = (
    os.environ.get("THALWEG_TEST_STATE", "sqlite:"),
    os.environ.get("THALWEG_TEST_BLOBS", "file:"),
)
"""Where records and blobs are: other processes name those that nodes share."""
KINDS = (RUN, STREAM, SEGMENT, REPORT, jobs.KIND)


class ToldError(Exception):
    """An error of the other process."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class _CountedError(Exception):
    """What ends the attempt to create something, once its usage is known."""


class Stored(Shared):
    """SQLite and files in the place of stores in memory."""

    def __init__(self, scheduler: Scheduler, directory: Path) -> None:
        super().__init__(scheduler)
        storage = open_storage(directory, 0, *STORES)
        self.records = cast("Any", storage.records)
        self.blobs = cast("Any", storage.blobs)
        self._storage = storage

    def copy(self) -> Self:
        """Return this, emptied: there is one directory."""
        self.names.clear()
        self.states.clear()
        return self

    def digest(self) -> bytes:
        """Return nothing: each execution has a world of its own, which looks at one end."""
        return b""

    def all_records(self) -> list[tuple[str, str]]:
        return [(kind, record.id) for kind in KINDS for record in self.records.list(kind).records]

    def all_blobs(self) -> list[tuple[str, str]]:
        blobs: BlobStore = self.blobs
        return [(kind, blob.id) for kind in KINDS[1:4] for blob in blobs.list(kind).blobs]

    def usage(self) -> dict[tuple[str, str], tuple[int, int]]:
        space = f"{namespace(ALICE.owner)}."
        return {(kind, space): self._usage(kind, space) for kind in KINDS}

    def _usage(self, kind: str, space: str) -> tuple[int, int]:
        found: list[tuple[int, int]] = []

        def note(usage: Usage) -> None:
            found.append((usage.count - 1, usage.nbytes))
            raise _CountedError

        try:
            self.records.create(kind, f"{space}counting", b"", size=0, admit=note)
        except _CountedError:
            return found[0]
        raise AssertionError("it was not asked to admit")

    def close(self) -> None:
        self._storage.close()


class _Wire:
    """In the place of a Scheduler: another process says when to go on."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire
        self._thread = threading.get_ident()

    def point(self, call: Call) -> None:
        if threading.get_ident() != self._thread:
            # What gives signs of life beside an act does as it likes.
            return
        self._wire.send(("point", call.text))
        self._wire.recv()


def _work(directory: Path, wire: Connection) -> None:
    """Do acts as long as there are any."""
    sealer.SealingWork = cast("Any", ListingWork)  # type: ignore[attr-defined]
    acts = {act.name: act for _, acts in STATES.values() for act in acts}
    shared = Stored(cast("Any", _Wire(wire)), directory)
    while (message := wire.recv()) is not None:
        name, shared.names = message
        try:
            answer = ("done", acts[name].run(Process(shared)))
        except Exception as e:  # noqa: BLE001 - any is told
            answer = ("failed", (getattr(e, "code", type(e).__name__), str(e)))
        wire.send(answer)
    shared.close()


class TwoProcesses:
    """Two processes, and who goes on.

    Args:
        directory: their data directory.
    """

    def __init__(self, directory: Path) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._wires: list[Connection] = []
        self._processes = []
        for _ in range(2):
            ours, theirs = spawning.Pipe()
            process = spawning.Process(target=_work, args=(directory, theirs), daemon=True)
            process.start()
            theirs.close()
            self._wires.append(ours)
            self._processes.append(process)

    def run(
        self, names: Sequence[str], known: dict[str, str], seed: int
    ) -> tuple[list[Outcome], list[Step]]:
        """Have each do an act, in a drawn order of their calls.

        Args:
            names: of the acts.
            known: ids of what there is.
            seed: of the order.
        """
        drawn, outcomes = Drawn(seed), [Outcome(), Outcome()]
        waiting: dict[int, Call] = {}
        for number, name in enumerate(names):
            self._wires[number].send((name, known))
            self._listen(number, waiting, outcomes)
        while waiting:
            chosen = drawn.choose(waiting, frozenset(waiting))
            self._wires[chosen].send(None)
            self._listen(chosen, waiting, outcomes)
        return outcomes, drawn.steps

    def _listen(self, number: int, waiting: dict[int, Call], outcomes: list[Outcome]) -> None:
        """Wait for the next call of a process, or for its end."""
        what, value = self._wires[number].recv()
        waiting.pop(number, None)
        if what == "point":
            waiting[number] = Call(value)
        elif what == "done":
            outcomes[number].value = value
        else:
            outcomes[number].error = ToldError(*value)

    def close(self) -> None:
        for wire in self._wires:
            wire.send(None)
        for process in self._processes:
            process.join()
