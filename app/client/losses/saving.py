"""Writing the tables of a post to files that another process can complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import StateError
from ..files.outputs import Mark, Output, open_output
from ..files.state import StateFile
from .requests import LossRequests, Mode
from .rows import Item, Piece, Position, Settled, Table, Undone
from .sources import Source

FORMATS = ("csv", "ndjson", "bin", "arrow", "parquet", "svg", "png")
"""Formats of saved tables and pictures; also their file name extensions."""

WHOLE_FORMATS = ("arrow", "parquet", "svg", "png")
"""Formats whose parts cannot be joined."""
MEMBER = "thalweg_state"
"""Member of the state file that holds its version."""


@dataclass(frozen=True, slots=True)
class State:
    """How far a stream was posted and its tables written.

    Attributes:
        reports: names of the reports.
        format: of their tables.
        token: where to resume.
        offset: stream offset in bytes that belongs to the token.
        source: identity of the source, None if it has none.
        passed: digest of its bytes before the position, if it cannot be read again.
        outputs: how far the table of each report was written.
    """

    reports: tuple[str, ...]
    format: str
    token: str | None
    offset: int
    source: Mapping[str, Any] | None = None
    passed: str | None = None
    outputs: Mapping[str, Mark] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> State:
        """The state that a file holds.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it holds none.
        """
        return cls(
            tuple(map(str, content["reports"])),
            str(content["format"]),
            str(content["token"]),
            int(content["offset"]),
            content["source"],
            content["passed"],
            {k: Mark(int(v["size"]), str(v["xxh3"])) for k, v in content["outputs"].items()},
        )

    def check(
        self, reports: tuple[str, ...], table_format: str, source: Mapping[str, Any] | None
    ) -> None:
        """Refuse to resume with another source or for other tables.

        Raises:
            StateError: with what differs.
        """
        if (self.reports, self.format) != (reports, table_format):
            tables = f"{','.join(self.reports)} as {self.format}"
            raise StateError(f"the state file is for {tables}: remove it to start over")
        if self.source != source:
            raise StateError("the stream has changed since: remove the state file to start over")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a post is.

    Attributes:
        bytes: of the stream whose rows have been answered.
        total: bytes of the stream, None if unknown.
        events: complete ones, as far as answers have said.
    """

    bytes: int
    total: int | None
    events: int


Observe: TypeAlias = Callable[[Progress], None]


def format_of(path: str | Path | int) -> str:
    """The format that the ending of a file says; csv if it says none.

    Raises:
        ValueError: there is no such format.
    """
    file = Path() if isinstance(path, int) else Path(path)
    ending = file.suffix.removeprefix(".")
    if ending in FORMATS:
        return ending
    if ending.isalpha() and not file.exists():
        raise ValueError(f"there is no format {ending!r}: choose {', '.join(FORMATS)}")
    return "csv"


def save_mode(table_format: str, mode: Mode | None) -> Mode:
    """The mode in which to ask for a format.

    Raises:
        ValueError: the format has no such mode.
    """
    if table_format in WHOLE_FORMATS:
        if mode not in {None, "whole"}:
            raise ValueError(f"{table_format} describes the whole stream: mode whole only")
        return "whole"
    if mode == "duplex" and table_format != "bin":
        raise ValueError(f"{table_format} has no tokens to resume after a cut: not duplex")
    return mode or "parts"


def wire_format(table_format: str) -> str:
    """The format to ask the service for: packed records are the very rows of frames.

    Raises:
        ValueError: there is no such format.
    """
    if table_format not in FORMATS:
        raise ValueError(f"there is no format {table_format!r}: choose {', '.join(FORMATS)}")
    return "frames" if table_format == "bin" else table_format


def labels(requests: LossRequests, table_format: str) -> tuple[str, ...]:
    """Names of the tables: reports, each with its set where a pass has several.

    Raises:
        ValueError: packed records of summary sets need their numbers.
    """
    if not requests.of_items or table_format != "bin":
        return requests.reports
    if not requests.sets:
        raise ValueError("bin of a summary xref needs the sets to save, such as sets=[1, 2]")
    if len(requests.sets) == 1:
        return requests.reports
    return tuple(label(set_id, name) for set_id in requests.sets for name in requests.reports)


def label(set_id: int, report: str) -> str:
    """Name of the table of a report of one of several summary sets, as offline."""
    return f"S{set_id}_{report}"


class Saving:
    """The tables of one post on their way into files.

    Args:
        reports: names of the tables: reports, or labels of reports of several summary sets.
        table_format: one of FORMATS.
        path: of the table; of a directory if there are several reports; or a file
            descriptor.
        state: path of the file to resume from and to write; None for none.
        source: the stream.
        live: whether a pipe gets rows as they come, rather than when all are known to be there.

    Attributes:
        start: where to begin; known after ``open``.
        passed: digest of the source's bytes before it, if known.
    """

    def __init__(  # noqa: PLR0913 - what the caller said
        self,
        reports: Sequence[str],
        table_format: str,
        path: Path | int,
        state: str | Path | None,
        source: Source,
        *,
        live: bool = False,
    ) -> None:
        self._live = live
        self._reports = tuple(reports)
        self._format = table_format
        self._path = path
        self._file = StateFile(state, MEMBER)
        self._source = source
        self._identity = source.identity()
        self._outputs: dict[str, Output] = {}
        self._position: Position | None = None
        self._passed: str | None = None
        self.start = Position()
        self.passed: str | None = None

    def open(self) -> None:
        """Read the state and open the outputs.

        Raises:
            StateError: the state file does not fit.
            OSError: a table cannot be written.
        """
        loaded = self._file.load(State.parse)
        marks: Mapping[str, Mark] = {}
        if loaded is not None:
            loaded.check(self._reports, self._format, self._identity)
            self.start = Position(loaded.token, loaded.offset)
            self.passed, marks = loaded.passed, loaded.outputs
        try:
            for report in self._reports:
                path, mark = self._path_of(report), marks.get(report)
                self._outputs[report] = open_output(path, mark, live=self._live)
        except BaseException:
            self._close(keep=loaded is not None)
            raise

    def _path_of(self, report: str) -> Path | int:
        if isinstance(self._path, int) or len(self._reports) == 1:
            return self._path
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path / f"{report}.{self._format}"

    def take(self, item: Item) -> None:
        """Write, settle or undo what the post delivered."""
        match item:
            case Table(report, rows, set_id):
                octets = np.ascontiguousarray(rows).view(np.uint8)
                if report not in self._outputs and set_id is not None:
                    report = label(set_id, report)
                self._outputs[report].write(octets.data)
            case Piece(data):
                self._outputs[self._reports[0]].write(data)
            case Settled(position):
                self._settle(position)
            case Undone():
                self._for_all(lambda output: output.undo())

    def _settle(self, position: Position | None) -> None:
        if position is None:
            # The end of the stream: the last state leads here again.
            return
        self._for_all(lambda output: output.settle())
        self._position = position
        self._passed = self._source.passed()
        if self._file.is_due:
            self._write_state()

    def _write_state(self) -> None:
        marks = {report: output.mark() for report, output in self._outputs.items()}
        known: dict[str, Mark] = {k: m for k, m in marks.items() if m is not None}
        at = self._position
        if at is not None and len(known) == len(marks):
            state = State(
                self._reports,
                self._format,
                at.token,
                at.offset,
                self._identity,
                self._passed,
                known,
            )
            self._file.save(asdict(state), lambda: self._for_all(lambda output: output.sync()))

    def finish(self) -> None:
        """Give the tables their final names: every row was written."""
        self._for_all(lambda output: output.settle())
        self._for_all(lambda output: output.finish())
        self._outputs.clear()
        self._file.remove()

    def stop(self) -> None:
        """Unless finished, keep what another process can complete and remove the rest."""
        if self._outputs:
            self._for_all(lambda output: output.undo())
            self._write_state()
            self._close(keep=self._file.exists())

    def _for_all(self, act: Callable[[Output], None]) -> None:
        for output in self._outputs.values():
            act(output)

    def _close(self, *, keep: bool) -> None:
        self._for_all(lambda output: output.close(keep=keep))
        self._outputs.clear()
