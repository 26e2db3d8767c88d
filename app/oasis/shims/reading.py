"""Streams of summaries through the engine, into tables; and the auxiliary files of a run.

These are found as the peer's tools look for them: packed, else csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.losses.analyses import Analyses
from app.losses.sources import Sources
from app.oasis.files import failing_as
from core.errors import InputError
from core.losses.inputs import (
    EventRates,
    ReturnPeriods,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_quantiles,
    parse_return_periods,
)
from core.losses.merge import Partitions
from core.losses.outputs import Sink
from core.losses.policy import Policy

from .certifying import Sum, check_written


def policy(float_width: int, **fields: Any) -> Policy:  # noqa: ANN401 - of Policy
    """What streams of a run may contain: all that the peer reads without a wrong result."""
    return Policy(float_width=float_width, negative="keep", sample_order="any", **fields)


def read_streams(
    names: Sequence[str],
    reports: Sequence[str],
    sink: Sink,
    float_width: int,
    **options: Any,  # noqa: ANN401 - of Analysis
) -> Partitions:
    """Read all streams; rows go to the sink as they arise.

    Args:
        names: of files and fifos; ``-`` for standard input.
        reports: names.
        sink: receives the rows.
        float_width: bytes of a loss.
        options: inputs and more of the analysis of each stream.

    Raises:
        CoreError: a stream is faulty or cannot be read, or streams do not belong together.
    """
    analyses = Analyses(reports, {"policy": policy(float_width), **options})
    sums = [Sum() for _ in names]
    with Sources(names) as sources:
        partitions = Partitions(
            [source.name for source in sources.sources], analyses.of_partition, sink
        )
        while (piece := sources.read()) is not None:
            index, data = piece
            if len(data):
                sums[index].add(data)
                partitions.receive(index, data)
            else:
                check_written(names[index], sums[index])
                partitions.close(index)
    return partitions


_RATE_WIDTH: Final = 4
"""Bytes of a rate in a packed file that the engine reads by itself."""


RUN_DIR: Final = "name it with --run_dir"


def find(folder: Path, name: str) -> Path | None:
    """``name.bin`` or else ``name.csv``; None if there is neither."""
    paths = (folder / f"{name}.bin", folder / f"{name}.csv")
    return next((path for path in paths if path.is_file()), None)


def require(folder: Path, name: str, option: str = RUN_DIR) -> Path:
    """The same; ``option`` names the folder.

    Raises:
        InputError: there is neither.
    """
    path = find(folder, name)
    if path is None:
        raise absent(f"{name}.bin and no {name}.csv in {folder}", option)
    return path


def absent(subject: str, option: str = RUN_DIR) -> InputError:
    """The error for a file or folder of the run that is not there, and is named by an option."""
    hint = f"Work in the folder of the run, or {option}"
    return InputError(f"there is no {subject}", hint=hint)


def read(path: Path) -> bytes:
    """The content of a file.

    Raises:
        InputError: it cannot be read.
    """
    if not path.exists():
        raise absent(str(path))
    with failing_as("cannot be read", path):
        return path.read_bytes()


class RunInputs:
    """The files of a run.

    Args:
        directory: of the run; they are in its folder ``input``.
        float_width: bytes of a packed rate.
    """

    def __init__(self, directory: str, float_width: int) -> None:
        self._folder = Path(directory, "input")
        self._float_width = float_width

    def quantiles(self) -> npt.NDArray[np.float32]:
        """Quantiles.

        Raises:
            InputError: there is no such file, or it is unusable.
        """
        path = require(self._folder, "quantile")
        return parse_quantiles(read(path), str(path))

    def event_rates(self) -> EventRates | None:
        """Rates of events; None without a file or with an empty one.

        Raises:
            InputError: the file is unusable.
        """
        path = find(self._folder, "event_rates")
        if path is None:
            return None
        data = read(path)
        if not (data if path.suffix == ".bin" else b"".join(data.splitlines()[1:])).strip():
            return None
        if path.suffix == ".bin" and self._float_width != _RATE_WIDTH:
            rows = np.frombuffer(
                data, [("EventIds", "<i4"), ("Event_rates", f"<f{self._float_width}")]
            )
            columns = {name: rows[name] for name in ("EventIds", "Event_rates")}
            return parse_event_rates(columns, str(path))
        return parse_event_rates(data, str(path))

    def calendar(self) -> dict[str, Any]:
        """``occurrence``, and ``periods``: their weights; None, for equal ones, without a file.

        Raises:
            InputError: there are no occurrences, or a file is unusable.
        """
        path = self._folder / "occurrence.bin"
        occurrence = parse_occurrence(read(path), source=str(path))
        # The peer asks for the packed file before it accepts one of csv.
        path = self._folder / "periods.bin"
        periods = None
        if path.is_file():
            periods = parse_periods(read(path), occurrence.periods, str(path))
        return {"occurrence": occurrence, "periods": periods}

    def return_periods(self) -> ReturnPeriods | None:
        """Return periods; None, for every point, if the file is empty.

        Raises:
            InputError: there is no such file, or it is unusable.
        """
        path = self._folder / "returnperiods.bin"
        data = read(path)
        return parse_return_periods(data, str(path)) if data else None
