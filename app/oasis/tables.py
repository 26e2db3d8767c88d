"""Report files of a run: one for each output of each summary set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.losses.outputs import Output, Outputs
from app.losses.tables import TableEncoder, table_encoder
from core.arrays import Rows
from core.losses.inputs import SummaryInfo
from core.losses.reports import REPORTS

from .directory import RunDirectory
from .outputs import OUTPUTS, output_file, stem
from .settings import Losses, SetRequest

Table = tuple[TableEncoder, Output]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputJob:
    """The outputs of a run directory."""

    directory: Path
    form: str | None = None
    """Format of all outputs, instead of that of the settings."""
    join: bool = False
    """Whether to join the summary info whatever the settings say."""
    out: Path | None = None
    """Where the outputs go; by default ``output`` in the directory."""

    def open_directory(self) -> RunDirectory:
        """The files of the run.

        Raises:
            InputError: they are unusable.
        """
        return RunDirectory(self.directory, self.form, join=self.join)

    @property
    def folder(self) -> Path:
        """Where the outputs go."""
        return self.out or self.directory / "output"


def set_name(losses: Losses, request: SetRequest) -> str:
    """Beginning of the names of a set."""
    return stem(losses.perspective, losses.priority, request.set_id)


class OutputTables:
    """The tables of a run.

    Args:
        outputs: of which they are.
        directory: of the run.
        folder: of the files.
    """

    def __init__(self, outputs: Outputs, directory: RunDirectory, folder: Path) -> None:
        self._outputs = outputs
        self._directory = directory
        self._folder = folder
        self._tables: dict[tuple[str, int, str], list[Table]] = defaultdict(list)
        self.paths: list[Path] = []
        """Paths of all files."""

    def add(self, losses: Losses, request: SetRequest) -> None:
        """Open the files of a set, one for each of its outputs.

        Raises:
            InputError: a file cannot be created, or the columns to join are missing.
            ReportError: its format cannot have columns of text.
        """
        name = set_name(losses, request)
        paths = {o: self._folder / output_file(name, o, request.form) for o in request.outputs}
        self.open(losses, request, paths, request.form, self._directory.info(request, losses))

    def open(
        self,
        losses: Losses,
        request: SetRequest,
        paths: Mapping[str, Path],
        form: str,
        info: SummaryInfo | None = None,
    ) -> None:
        """Open files of a set, by output; see :meth:`add`."""
        for name, path in paths.items():
            report = OUTPUTS[name].report
            encoder = table_encoder(form, REPORTS[report], self._directory.float_width, info)
            output = self._outputs.open(path)
            self._tables[losses.name, request.set_id, report].append((encoder, output))
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
