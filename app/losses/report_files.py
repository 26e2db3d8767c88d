"""The report files of a job: for each report, and for each summary set if there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from core.arrays import Rows
from core.losses.inputs import SummaryInfo
from core.losses.reports import REPORTS

from .outputs import STDOUT, Output, Outputs
from .tables import TableEncoder, table_encoder

Key = tuple[int | None, str]
"""Set id, None where streams are of one set; and report."""


def file_name(set_id: int | None, report: str, form: str) -> str:
    """Name of a report file, such as ``melt.csv``, or ``S2_melt.csv`` of set 2."""
    prefix = "" if set_id is None else f"S{set_id}_"
    return f"{prefix}{report}.{form}"


def _path(out: str, set_id: int | None, report: str, form: str) -> str | Path:
    path = Path(out)
    if out == STDOUT or (path.suffix == f".{form}" and not path.is_dir()):
        return out
    return path / file_name(set_id, report, form)


class ReportFiles:
    """The tables of a job.

    Args:
        outputs: of which they are.
        out: directory, file of a single table, or ``-`` for standard output, which takes one.
        form: of the tables.
        reports: names.
        float_width: bytes of a loss.
        set_ids: of the summary sets; None alone where streams are of one.
        infos: columns to join to the rows of a set, by its id.

    Raises:
        InputError: a file cannot be created.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the files depend on
        self,
        outputs: Outputs,
        out: str,
        form: str,
        reports: Sequence[str],
        float_width: int,
        set_ids: Sequence[int | None] = (None,),
        infos: Mapping[int | None, SummaryInfo] | None = None,
    ) -> None:
        infos = infos or {}
        self._encoders: dict[Key, TableEncoder] = {}
        self._outputs: dict[Key, Output] = {}
        for set_id in set_ids:
            for name in reports:
                encoder = table_encoder(form, REPORTS[name], float_width, infos.get(set_id))
                self._encoders[set_id, name] = encoder
                self._outputs[set_id, name] = outputs.open(_path(out, set_id, name, form))

    def begin(self) -> None:
        """Write what comes before the first rows."""
        for key, encoder in self._encoders.items():
            self._outputs[key].write(encoder.begin())

    def write(self, set_id: int | None, report: str, rows: Rows) -> None:
        """Write the next rows of a report."""
        key = (set_id, report)
        self._outputs[key].write(self._encoders[key].encode(rows))

    def end(self) -> None:
        """Write what comes after the last rows."""
        for key, encoder in self._encoders.items():
            self._outputs[key].write(encoder.end())
