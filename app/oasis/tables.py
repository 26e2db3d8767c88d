"""Report files of a run: one for each output of each summary set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from app.losses.outputs import FileOutput, Output, open_output
from app.losses.tables import TableEncoder, table_encoder
from core.arrays import Rows
from core.losses.inputs import SummaryInfo
from core.losses.reports import REPORTS

from .outputs import OUTPUTS
from .settings import SetRequest

Table = tuple[TableEncoder, Output]


class OutputTables:
    """Files that are committed together or not at all.

    Args:
        float_width: bytes of a loss.
    """

    def __init__(self, float_width: int) -> None:
        self._float_width = float_width
        self._tables: dict[tuple[str, int, str], list[Table]] = defaultdict(list)
        self._finished = False
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
            output = open_output(path)
            self._tables[losses, request.set_id, report].append((encoder, output))
            self.paths.append(path)
            output.write(encoder.begin())

    def write(self, losses: str, set_id: int, report: str, rows: Rows) -> None:
        """Write rows of a report to every output that is this report."""
        for encoder, output in self._tables.get((losses, set_id, report), ()):
            output.write(encoder.encode(rows))

    def finish(self) -> None:
        """Write all bytes; what remains is to give the files their names.

        Raises:
            InputError: a disk is full, or failed.
        """
        if not self._finished:
            self._finished = True
            for encoder, output in self._all():
                output.write(encoder.end())
            for _, output in self._all():
                if isinstance(output, FileOutput):
                    output.save()

    def commit(self) -> None:
        """Complete all files.

        Raises:
            InputError: a disk is full, or failed.
        """
        self.finish()
        for _, output in self._all():
            output.commit()

    def _all(self) -> Iterator[Table]:
        return chain.from_iterable(self._tables.values())

    def discard(self) -> None:
        """Leave no file that is not complete."""
        for _, output in self._all():
            if isinstance(output, FileOutput):
                output.discard()
