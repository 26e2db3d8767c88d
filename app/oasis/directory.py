"""The run directory of an analysis: where its settings and inputs are, and its outputs go.

::

    analysis_settings.json           as given
    input/                           occurrence.bin, periods.bin, gulsummaryxref.bin, ...
    input/RI_1/ RI_2/ ... (or RI_1/) fmsummaryxref.bin of each layer of reinsurance
    static/                          model files that input/ may lack
    output/                          analysis_settings.json as resolved, summary info, reports
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from app.losses.analyses import taken_inputs
from app.losses.input_parsers import parse_input, read_input
from app.losses.outputs import Outputs
from app.losses.report_files import TableFiles
from core.errors import InputError
from core.losses.inputs import SummaryInfo
from core.losses.parameters import ReportInputs
from core.losses.reports import REPORTS
from core.losses.summaries import SummarySets

from . import outputs
from .files import failing_as, json_object
from .outputs import OUTPUTS, output_file, stem
from .settings import Losses, SetRequest, Settings, losses_of, read_settings

_SETTINGS = "analysis_settings.json"
_XREFS = {"gul": "gulsummaryxref", "il": "fmsummaryxref"}
_MAPS = {"gul": "gul_summary_map.csv", "il": "fm_summary_map.csv"}
_FILES = {
    "occurrence": ("occurrence.bin", "occurrence.parquet"),
    "periods": ("periods.bin", "periods.csv"),
    "return_periods": ("returnperiods.bin", "returnperiods.csv"),
    "quantiles": ("quantile.bin", "quantile.csv"),
    "event_rates": ("event_rates.bin", "event_rates.csv"),
}


class RunDirectory:
    """The files of one run.

    Args:
        path: of the directory.
        form: format of all outputs instead of that of the settings.
        join: whether to join the summary info whatever the settings say.

    Raises:
        InputError: the directory, its settings or a variable of the environment is unusable.
    """

    def __init__(self, path: Path, form: str | None = None, *, join: bool = False) -> None:
        if not (path / "input").is_dir():
            raise InputError("is not a run directory: it has no folder input", source=str(path))
        self.path = path
        found = [path / "output" / _SETTINGS, path / _SETTINGS, path / "input" / _SETTINGS]
        chosen = next((file for file in found if file.is_file()), None)
        if chosen is None:
            raise InputError("has no analysis_settings.json", source=str(path))
        self.settings: Settings = read_settings(chosen, form, join=join)
        self._read: dict[Path, Any] = {}
        try:
            self.float_width = outputs.float_width()
        except ValueError as e:
            raise InputError(str(e)) from e

    # -- what is asked for -----------------------------------------------------------

    def losses(self, perspectives: Iterable[str] | None = None) -> list[Losses]:
        """Losses that reports are asked of.

        Args:
            perspectives: only of these; None for all that the settings ask for.

        Raises:
            InputError: the settings ask for what the directory does not have.
        """
        chosen = list(self.settings.sets) if perspectives is None else perspectives
        levels, layers = self._levels, self.layers
        return [
            losses
            for perspective in chosen
            for losses in losses_of(self.settings, perspective, levels, layers)
        ]

    def requests(self, losses: Losses) -> tuple[SetRequest, ...]:
        """What is asked of the summary sets of some losses."""
        return self.settings.sets[losses.perspective]

    @cached_property
    def layers(self) -> int:
        """Number of layers of reinsurance; 0 without any.

        The directories in ``ri_layers.json`` may be of another machine: their last parts count.

        Raises:
            InputError: a layer has no folder.
        """
        document = self._json("ri_layers.json")
        for number, layer in document.items():
            named = str(layer.get("directory", "")) if isinstance(layer, dict) else ""
            name = Path(named.replace("\\", "/")).name or f"RI_{number}"
            if self._layer_folder(name) is None:
                raise InputError(
                    f"layer {number} is in {name}, but there is no such folder",
                    hint=f"It is looked for in {self.path / 'input'} and {self.path}",
                    source=str(self.path / "input" / "ri_layers.json"),
                )
        return len(document)

    @cached_property
    def _levels(self) -> dict[int, int]:
        """Last layer of each inuring priority."""
        document = self._json("ri_inuring_priority_output_levels.json")
        if document:
            return {int(priority): int(level) for priority, level in document.items()}
        layers = self._json("ri_layers.json")
        levels: dict[int, int] = {}
        for number, layer in layers.items():
            priority = int(layer.get("inuring_priority", number))
            levels[priority] = max(int(number), levels.get(priority, 0))
        return levels

    def _json(self, name: str) -> Mapping[str, Any]:
        path = self.path / "input" / name
        return json_object(path.read_bytes(), path) if path.is_file() else {}

    def _layer_folder(self, name: str) -> Path | None:
        folders = (self.path / "input" / name, self.path / name)
        return next((folder for folder in folders if folder.is_dir()), None)

    # -- inputs ----------------------------------------------------------------------

    def sets(self, losses: Losses) -> SummarySets:
        """The requested summary sets of some losses.

        Raises:
            InputError: the xref or map is missing or unusable, or lacks a set.
        """
        path, map_path = self._xref(losses), self._map(losses)
        xref = self._parsed("summary_xref", path)
        risks = None if map_path is None else self._parsed("summary_map", map_path)
        ids = [request.set_id for request in self.requests(losses)]
        name = None if map_path is None else str(map_path)
        return SummarySets(xref, ids, risks, name=str(path), map_name=name)

    def _xref(self, losses: Losses) -> Path:
        folder = self._folder(losses)
        stem = _XREFS.get(losses.perspective, _XREFS["il"])
        path = self._first(folder / f"{stem}{suffix}" for suffix in (".bin", ".csv"))
        if path is None:
            requested = ", ".join(str(r.set_id) for r in self.requests(losses))
            raise InputError(
                f"summary sets {requested} of {losses.name} are asked for, but there is no xref",
                hint=f"{stem}.bin or .csv has the summary of each item",
                source=str(folder / f"{stem}.bin"),
            )
        return path

    def _map(self, losses: Losses) -> Path | None:
        path = self.path / "input" / _MAPS.get(losses.perspective, "none")
        return path if path.is_file() else None

    def _folder(self, losses: Losses) -> Path:
        if losses.level is None:
            return self.path / "input"
        folder = self._layer_folder(f"RI_{losses.level}")
        return folder or self.path / "input" / f"RI_{losses.level}"

    def inputs(self, request: SetRequest, losses: Losses) -> ReportInputs:
        """The inputs of the reports of a set.

        Raises:
            InputError: one that a report needs is missing or unusable.
        """
        paths = self._input_paths(request, losses)
        return ReportInputs(**{name: self._input(name, path) for name, path in paths.items()})

    def files(self, losses: Losses) -> dict[str, Path]:
        """The files that the reports of some losses are computed from, by name of the input.

        Raises:
            InputError: one that a report needs is missing.
        """
        found = {"summary_xref": self._xref(losses)}
        risks = self._map(losses)
        if risks is not None:
            found["summary_map"] = risks
        for request in self.requests(losses):
            found |= self._input_paths(request, losses)
        return found

    def _input_paths(self, request: SetRequest, losses: Losses) -> dict[str, Path]:
        reports = [REPORTS[name] for name in request.reports]
        needed = {need.name for report in reports for need in report.needs}
        used = taken_inputs(reports)
        if not request.at_return_periods:
            used.discard("return_periods")
        elif "return_periods" in used:
            needed.add("return_periods")
        found: dict[str, Path] = {}
        for name in used:
            path = self._input_path(name)
            if path is not None:
                found[name] = path
            elif name in needed:
                self._refuse(name, request, losses)
        if "occurrence" not in found:
            found.pop("periods", None)
        return found

    def _refuse(self, name: str, request: SetRequest, losses: Losses) -> None:
        files = " or ".join(_FILES[name])
        asking = []
        for output in request.outputs:
            report = REPORTS[outputs.OUTPUTS[output].report]
            asking += [output for entry in (*report.needs, *report.takes) if entry.name == name]
        raise InputError(
            f"{', '.join(asking)} of {losses.name} set {request.set_id} need {files}, which"
            " neither input nor static has",
            source=self.settings.source,
        )

    def _input_path(self, name: str) -> Path | None:
        folders = (self.path / "input", self.path / "static")
        return self._first(folder / file for folder in folders for file in _FILES[name])

    def _input(self, name: str, path: Path) -> Any:  # noqa: ANN401 - by name
        periods = None
        if name == "periods":
            occurrence = self._input_path("occurrence")
            if occurrence is None:
                return None
            periods = self._parsed("occurrence", occurrence).periods
        return self._parsed(name, path, periods)

    def info(self, request: SetRequest, losses: Losses) -> SummaryInfo | None:
        """What the summaries of a set are, where it is to be joined.

        Raises:
            InputError: it is missing or unusable.
        """
        if not request.joined:
            return None
        # Oasis writes none for rl, whose sets are those of ri.
        names = [losses.perspective, *(["ri"] if losses.perspective == "rl" else [])]
        suffixes = ("parquet", "csv") if request.form == "parquet" else ("csv", "parquet")
        paths = [
            self.path / "output" / f"{name}_S{request.set_id}_summary-info.{suffix}"
            for name in names
            for suffix in suffixes
        ]
        path = self._first(paths)
        if path is None:
            raise InputError(
                f"summary info is to be joined to set {request.set_id} of {losses.name},"
                " but there is none",
                source=str(paths[0]),
            )
        info: SummaryInfo = self._parsed("summary_info", path)
        return info

    @cached_property
    def ascends(self) -> bool:
        """Whether the events are dealt out in ascending order, so that tables can be sorted."""
        path = self.path / "input" / "events.bin"
        if not path.is_file() or path.stat().st_size % 4:
            return True
        events = np.fromfile(path, "<i4")
        return bool((events[1:] > events[:-1]).all())

    def _parsed(self, name: str, path: Path, periods: int | None = None) -> Any:  # noqa: ANN401 - by name
        if path not in self._read:
            self._read[path] = parse_input(name, read_input(str(path)), periods, str(path))
        return self._read[path]

    @staticmethod
    def _first(paths: Iterable[Path]) -> Path | None:
        return next((path for path in paths if path.is_file()), None)

    # -- identity --------------------------------------------------------------------

    def digest(self, losses: Losses) -> str:
        """Identity of what reports of some losses follow from, besides the streams.

        Returns:
            32 hexadecimal digits, equal on every machine with a copy of the directory.
        """
        octets = hashlib.blake2b(digest_size=16)
        octets.update(repr((losses, self.requests(losses), self.float_width)).encode())
        sets = self.sets(losses)
        octets.update(sets.places.items.tobytes())
        octets.update(sets.places.summaries.tobytes())
        for request in self.requests(losses):
            for part in self.inputs(request, losses).octets():
                octets.update(part)
        return octets.hexdigest()


def check_writable(folder: Path) -> None:
    """Check that files can be made in a folder, which is made if it is missing.

    Raises:
        InputError: naming the folder.
    """
    with failing_as("cannot be made", folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("cannot be written: it is read-only", source=str(folder))


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
