"""Tables of reports in files, one for each report and summary set; and partial files."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from core.arrays import Rows
from core.errors import InputError
from core.losses.events import StreamHeader
from core.losses.inputs import SummaryInfo
from core.losses.ledger.ledger import Ledger
from core.losses.ledger.partials import export_ledger, header_of, import_ledger
from core.losses.reports import REPORTS

from .outputs import STDOUT, Output, Outputs
from .tables import TableEncoder, table_encoder

Key = tuple[Hashable, str]
"""Group and report."""


def report_path(out: str, set_id: int | None, report: str, form: str) -> str | Path:
    """Return the path of a report file, such as ``melt.csv``, or ``S2_melt.csv`` of set 2.

    It is ``out`` itself if that is the file of a single table, or ``-``.
    """
    path = Path(out)
    if out == STDOUT or (path.suffix == f".{form}" and not path.is_dir()):
        return out
    prefix = "" if set_id is None else f"S{set_id}_"
    return path / f"{prefix}{report}.{form}"


class TableFiles:
    """Tables of reports, in groups such as the summary sets.

    Args:
        outputs: of which they are.
        float_width: bytes of a loss.
    """

    def __init__(self, outputs: Outputs, float_width: int) -> None:
        self._files = outputs
        self._float_width = float_width
        self._tables: dict[Key, list[tuple[TableEncoder, Output]]] = defaultdict(list)

    def open(
        self,
        group: Hashable,
        report: str,
        path: Path | str,
        form: str,
        info: SummaryInfo | None = None,
    ) -> None:
        """Add a table, whose rows columns of ``info`` are joined to.

        Raises:
            InputError: the file cannot be created.
            ReportError: there is no such format, or it cannot have columns of text.
        """
        encoder = table_encoder(form, REPORTS[report], self._float_width, info)
        output = self._files.open(path)
        self._tables[group, report].append((encoder, output))
        output.write(encoder.begin())

    def write(self, group: Hashable, report: str, rows: Rows) -> None:
        """Write the next rows of a report to every table of it."""
        for encoder, output in self._tables.get((group, report), ()):
            output.write(encoder.encode(rows))

    def end(self) -> None:
        """Write what comes after the last rows."""
        for tables in self._tables.values():
            for encoder, output in tables:
                output.write(encoder.end())


_PIECE = 4 << 20


def _pieces(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as file:
            yield from iter(lambda: file.read(_PIECE), b"")
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", source=path) from e


def partial_header(path: str) -> StreamHeader:
    """What stream a partial file is of.

    Raises:
        FormatError: it is damaged or foreign.
        InputError: it cannot be read.
    """
    return header_of(itertools.islice(_pieces(path), 1), path)


class Exchange:
    """Adds partial files to a ledger that is complete otherwise, and writes one of the whole.

    Args:
        inputs: partial files to add.
        output: partial file to write, or None.
        outputs: of which it is.
    """

    def __init__(self, inputs: Sequence[str], output: str | None, outputs: Outputs) -> None:
        self._inputs = list(inputs)
        self._output = output
        self._outputs = outputs
        self.events = 0
        """In the ledger at the end."""

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._inputs) or self._output is not None

    def __call__(self, ledger: Ledger) -> None:
        """Do it.

        Raises:
            CoreError: a file is damaged, foreign, or of a partition that is there already.
        """
        for path in self._inputs:
            import_ledger(ledger, _pieces(path), path)
        if self._output is not None:
            write: Callable[[bytes], None] = self._outputs.open(self._output).write
            export_ledger(ledger, write)
        self.events = len(ledger.events())
