"""Tables of reports in files: for each report, and for each summary set if there are several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path

from core.arrays import Rows
from core.losses.inputs import SummaryInfo
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
