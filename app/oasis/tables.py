"""Report files of a run: one for each output of each summary set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.losses.outputs import Outputs
from app.losses.report_files import TableFiles
from core.losses.inputs import SummaryInfo

from .directory import RunDirectory
from .outputs import OUTPUTS, output_file, stem
from .settings import Losses, SetRequest


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


class OutputTables(TableFiles):
    """The tables of a run, in groups by the names of losses and the id of a set.

    Args:
        outputs: of which they are.
        directory: of the run.
        folder: of the files.
    """

    def __init__(self, outputs: Outputs, directory: RunDirectory, folder: Path) -> None:
        super().__init__(outputs, directory.float_width)
        self._directory = directory
        self._folder = folder
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
        self.add_files(losses, request, paths, request.form, self._directory.info(request, losses))

    def add_files(
        self,
        losses: Losses,
        request: SetRequest,
        paths: Mapping[str, Path],
        form: str,
        info: SummaryInfo | None = None,
    ) -> None:
        """Open files of a set, by output; see :meth:`add`."""
        for name, path in paths.items():
            group = (losses.name, request.set_id)
            self.open(group, OUTPUTS[name].report, path, form, info)
            self.paths.append(path)
