"""Report files of a run: one for each output of each summary set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from app.losses.outputs import Output, Outputs
from app.losses.tables import TableEncoder, table_encoder
from core.arrays import Rows
from core.losses.inputs import SummaryInfo
from core.losses.reports import REPORTS

from .outputs import OUTPUTS
from .settings import SetRequest

Table = tuple[TableEncoder, Output]


class OutputTables:
    """The tables of a run.

    Args:
        outputs: of which they are.
        float_width: bytes of a loss.
    """

    def __init__(self, outputs: Outputs, float_width: int) -> None:
        self._outputs = outputs
        self._float_width = float_width
        self._tables: dict[tuple[str, int, str], list[Table]] = defaultdict(list)
        self.paths: list[Path] = []
        """Of all files."""

    def add(
        self,
        losses: str,
        request: SetRequest,
        paths: Mapping[str, Path],
        info: SummaryInfo | None = None,
        form: str | None = None,
    ) -> None:
        """Open the files of a set.

        Args:
            losses: name of the losses.
            request: of the set.
            paths: file of each output.
            info: columns to join.
            form: instead of that of the request.

        Raises:
            InputError: a file cannot be created.
            ReportError: its format cannot have columns of text.
        """
        for name, path in paths.items():
            report = OUTPUTS[name].report
            encoder = table_encoder(form or request.form, REPORTS[report], self._float_width, info)
            output = self._outputs.open(path)
            self._tables[losses, request.set_id, report].append((encoder, output))
            self.paths.append(path)
            output.write(encoder.begin())

    def write(self, losses: str, set_id: int, report: str, rows: Rows) -> None:
        """Write rows of a report to every output that is this report."""
        for encoder, output in self._tables.get((losses, set_id, report), ()):
            output.write(encoder.encode(rows))

    def end(self) -> None:
        """Write what comes after the last rows."""
        for tables in self._tables.values():
            for encoder, output in tables:
                output.write(encoder.end())
