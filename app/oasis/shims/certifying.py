"""What the tools of a run tell each other of their streams, as its script does not tell.

A stream has no end marker, and the script waits for most processes without a look at how they end.
A ``tee`` that is killed between two blocks, or a tool that loses its input, leaves a stream that
looks whole. So each ``summarypy`` leaves, beside its fifos, how much it has read and written::

    fifo/gul_P1             gul_P1.events              120           events read
    fifo/gul_S1_summary_P1  gul_S1_summary_P1.written  32484 9d3f…   bytes, and their checksum
    work/gul_S1_summary_palt/P1.bin       P1.written   the same

The files are empty until its streams have ended. Readers of summaries compare theirs with what was
written. And every tool of Oasis passes every event on, so that the ``summarypy`` that ends last
compares the events of all perspectives.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.losses.sources import STDIN
from app.oasis.confirming import check_events
from app.oasis.files import write_whole
from core.errors import TruncatedError

_ITEMS: Final = re.compile(r"((?:gul|il|ri|rl)(?:_IP[0-9]+)?)_P([0-9]+)")
_SUMMARIES: Final = re.compile(r"(.+_S[0-9]+)_summary_P([0-9]+)")
_COPIES: Final = re.compile(r"(.+_S[0-9]+)_(?:plt|elt|selt)_ord_P([0-9]+)")
_EVENTS: Final = ".events"
_WRITTEN: Final = ".written"
_OPTIONS: Final = "THALWEG_AGGREGATE_OPTIONS"
_DIFFERING: Final = "--differing-events"


class Sum:
    """Number of some bytes, and their checksum."""

    def __init__(self) -> None:
        self._count = 0
        self._checksum = 0

    def add(self, octets: Any) -> None:  # noqa: ANN401 - a buffer
        """Count the next bytes."""
        self._count += len(octets)
        self._checksum = zlib.crc32(octets, self._checksum)

    def __str__(self) -> str:
        return f"{self._count} {self._checksum:08x}"


def _fifo(name: str) -> Path | None:
    """Path of the fifo that an input is; None if it is none."""
    try:
        path = Path("/proc/self/fd/0").readlink() if name == STDIN else Path(name)
        return path if stat.S_ISFIFO(path.stat().st_mode) else None
    except OSError:
        return None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


class Writer:
    """What a ``summarypy`` leaves.

    Args:
        items: the stream of items, as the command line names it.
        paths: of the streams of summaries, by set.

    Raises:
        InputError: a folder of fifos cannot be written.
    """

    def __init__(self, items: str, paths: Mapping[int, str]) -> None:
        fifo = _fifo(items)
        self._items = fifo if fifo is not None and _ITEMS.fullmatch(fifo.name) else None
        self._paths = {set_id: Path(path) for set_id, path in paths.items() if _fifo(path)}
        self._sums: dict[int, Sum] = defaultdict(Sum)
        if self._items is not None:
            write_whole(_beside(self._items, _EVENTS), "")
        for records in self._records().values():
            for record in records:
                write_whole(record, "")

    def _records(self) -> dict[int, list[Path]]:
        """Where readers of each set look: beside the fifo, and beside its copies."""
        records = {}
        for set_id, path in self._paths.items():
            records[set_id] = [_beside(path, _WRITTEN)]
            if match := _SUMMARIES.fullmatch(path.name):
                stem, number = match.groups()
                # Those of a chunk are in a folder of its own.
                for work in (Path("work"), Path(f"{number}.work")):
                    folders = work.glob(f"{stem}_summary*/")
                    records[set_id] += [folder / f"P{number}{_WRITTEN}" for folder in folders]
        return records

    def add(self, set_id: int, octets: Any) -> None:  # noqa: ANN401 - a buffer
        """Count the next bytes of a set."""
        self._sums[set_id].add(octets)

    def certify(self, events: int) -> None:
        """Say how much it was, before the streams end.

        Args:
            events: number of those read.

        Raises:
            TruncatedError: the perspectives have different numbers of events, all being read.
        """
        if self._items is not None:
            write_whole(_beside(self._items, _EVENTS), str(events))
            self._compare(self._items.parent)
        for set_id, records in self._records().items():
            for record in records:
                write_whole(record, str(self._sums[set_id]))

    @staticmethod
    def _compare(folder: Path) -> None:
        totals: dict[str, int] = defaultdict(int)
        for fifo in sorted(folder.iterdir()):
            match = _ITEMS.fullmatch(fifo.name)
            if match is None:
                continue
            record = _beside(fifo, _EVENTS)
            text = record.read_text(encoding="utf-8") if record.exists() else ""
            if not text:
                # That one will end later, and compare all.
                return
            totals[match[1]] += int(text)
        if _DIFFERING not in shlex.split(os.environ.get(_OPTIONS, "")):
            check_events(totals, str(folder))


def check_written(name: str, read: Sum) -> None:
    """Check that a stream of summaries was read as it was written, if its writer has left that.

    Args:
        name: of the stream, as the command line has it.
        read: what was read, up to the end.

    Raises:
        TruncatedError: it is shorter, or its writer has died.
    """
    fifo = _fifo(name)
    path = fifo or Path(name)
    record = path.with_suffix(_WRITTEN) if fifo is None else _beside(path, _WRITTEN)
    if match := _COPIES.fullmatch(path.name):
        record = path.with_name(f"{match[1]}_summary_P{match[2]}{_WRITTEN}")
    try:
        written = record.read_text(encoding="utf-8")
    except OSError:
        return
    if written != str(read):
        count = written.partition(" ")[0]
        raise TruncatedError(
            f"the stream does not have the {count} bytes that were written"
            if written
            else "what writes the stream has ended before it was whole",
            hint="A process of the run was killed, so no output is written",
            source=str(path),
        )
