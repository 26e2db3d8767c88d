"""Pictures by the report they are of."""

from __future__ import annotations

import contextlib
import gc
import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from app.server.memory import give_back
from core.arrays import Rows
from core.errors import OptionError, ReportError
from core.losses.reports import REPORTS

from ..outputs import Outputs
from .options import FORMS, MOST_SUMMARIES, PALETTES, Palette, PictureOptions, require_library
from .sheets import AveragesSheet, ExceedanceSheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_TAIL_MEANS = (2, 4)
"""EPType of TVaR."""
_LONG = 4096
"""Points of a curve, as they come at once, from which it is thinned."""
_POINTS_PER_DECADE = 1000


class Collected:
    """Rows of reports, as many as a picture shows.

    Args:
        options: of the picture.
    """

    def __init__(self, options: PictureOptions) -> None:
        self._options = options
        self._pieces: dict[str, list[Rows]] = {}
        self._summaries: set[int] = set()

    @property
    def summaries(self) -> list[int]:
        """Ids of the summaries that have rows, ascending."""
        return sorted(self._summaries)

    def take(self, report: str, rows: Rows) -> None:
        """Copy the rows that the picture shows.

        Args:
            report: name of their report.
            rows: the next of that report, valid only during the call.

        Raises:
            ReportError: they are about more summaries than a picture holds.
        """
        if self._options.summary_ids is not None:
            rows = rows[np.isin(rows["SummaryId"], self._options.summary_ids)]
        self._summaries.update(np.unique(rows["SummaryId"]).tolist())
        if len(self._summaries) > MOST_SUMMARIES:
            raise ReportError(
                f"a picture shows up to {MOST_SUMMARIES} summaries, and there are more",
                hint=f"Choose some with {self._options.chosen_by}",
            )
        if report == "ept":
            if not self._options.tail_means:
                rows = rows[~np.isin(rows["EPType"], _TAIL_MEANS)]
            rows = rows[_shown(rows)]
        if len(rows):
            self._pieces.setdefault(report, []).append(rows.copy())

    def rows(self, report: str, dtype: np.dtype[np.void]) -> Rows:
        """The rows of a report, in the order they came.

        Raises:
            ReportError: none is about a summary that was chosen.
        """
        if not self._summaries and self._options.summary_ids is not None:
            raise ReportError(
                f"no row of {report.upper()} is about the summaries chosen for its picture",
                hint="Choose summaries that have losses",
            )
        pieces = self._pieces.get(report)
        return np.zeros(0, dtype) if pieces is None else np.concatenate(pieces)


def _shown(rows: Rows) -> npt.NDArray[np.bool_]:
    """Which points of curves are shown: the first and last of each step in a long curve."""
    keep = np.ones(len(rows), np.bool_)
    if len(rows) <= _LONG:
        return keep
    begins = _changes(rows["SummaryId"], rows["EPCalc"], rows["EPType"])
    lengths = np.diff(np.append(np.flatnonzero(begins), len(rows)))
    of_long = np.repeat(lengths > _LONG, lengths)
    years = np.maximum(rows["ReturnPeriod"].astype(np.float64), 1e-9)
    steps = np.floor(np.log10(years) * _POINTS_PER_DECADE)
    first = begins | _changes(steps)
    last = np.append(first[1:], True)
    keep[of_long] = (first | last)[of_long]
    return keep


def _changes(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Whether each element differs from the one before it in any column; the first does."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[0] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes


_HEADER_INCHES = 0.86
"""Title, subtitle and legend."""
_MARGIN_INCHES = 0.14
_PNG_DPI = 160

_DRAWING = threading.Lock()
"""Held while Matplotlib draws, because its settings and font caches belong to the process."""
PICTURES: dict[str, tuple[str, ...]] = {"ept": ("ept",), "aal": ("aal", "alct")}
"""Reports that have a picture, and the reports whose rows it shows."""


Sheet = AveragesSheet | ExceedanceSheet
"""The content of a picture, below its title: in words, in inches, and as axes."""


def paint(sheet: Sheet, options: PictureOptions) -> bytes:
    """Draw a sheet.

    Several threads may call it; they take turns.

    Raises:
        OptionError: the library that draws is not installed.
    """
    require_library()
    palette = PALETTES[options.theme]
    with _DRAWING:
        import matplotlib as mpl  # noqa: PLC0415 - half a second, and an extra

        with _freed_figure():
            try:
                with mpl.rc_context():
                    # Not the user's settings: equal rows give equal bytes everywhere.
                    mpl.rcdefaults()
                    mpl.rcParams.update(_settings(palette))
                    return _encode(build_figure(sheet, palette), sheet.title, options.form)
            finally:
                _close_fonts()


@contextlib.contextmanager
def _freed_figure() -> Iterator[None]:
    """Free the figure drawn inside, and give its memory back to the system.

    The artists of a figure refer to each other: some 10 MB that would wait for the garbage
    collector, which hardly ever looks at what has survived a drawing. So it does not run
    meanwhile, and a collection of the youngest objects, in a hundredth of a second, frees them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()
        give_back()


def build_figure(sheet: Sheet, palette: Palette) -> Figure:
    """The figure of a sheet, with its header."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    width, height = sheet.inches[0], sheet.inches[1] + _HEADER_INCHES
    # Matplotlib's own layout engines give coordinates whose last bits vary from run to run.
    figure = Figure(figsize=(width, height))
    entries = sheet.fill(figure, palette)
    left = _MARGIN_INCHES / width

    def below_top(inches: float) -> float:
        return 1 - inches / height

    figure.text(left, below_top(0.14), sheet.title, va="top", fontsize=13, fontweight="bold")
    figure.text(left, below_top(0.40), sheet.subtitle, va="top", fontsize=9.5, color=palette.muted)
    if entries:
        figure.legend(
            handles=entries,
            loc="upper left",
            bbox_to_anchor=(left, below_top(0.63)),
            ncols=len(entries),
            borderpad=0,
            borderaxespad=0,
        )
    return figure


def _close_fonts() -> None:
    """Close the font files, which Matplotlib would keep open for each thread that drew."""
    from matplotlib import font_manager  # noqa: PLC0415 - as above

    # The cache is private: another version may do without, and then leaves files open.
    clear = getattr(getattr(font_manager, "_get_font", None), "cache_clear", None)
    if clear is not None:
        clear()


def _encode(figure: Figure, title: str, form: str) -> bytes:
    """The bytes of a figure, without date and version."""
    file = io.BytesIO()
    if form == "svg":
        metadata = {"Title": title, "Date": None, "Creator": None}
        figure.savefig(file, format="svg", metadata=metadata)
    else:
        metadata = {"Title": title, "Software": None}
        figure.savefig(file, format="png", dpi=_PNG_DPI, metadata=metadata)
    return file.getvalue()


def _settings(palette: Palette) -> Any:  # noqa: ANN401 - a dictionary with a thousand types
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": palette.muted,
        "axes.facecolor": palette.background,
        "axes.grid": True,
        "axes.labelcolor": palette.muted,
        "axes.labelsize": 9,
        "axes.linewidth": 0.8,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlecolor": palette.text,
        "figure.facecolor": palette.background,
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "grid.color": palette.grid,
        "grid.linewidth": 0.7,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.columnspacing": 1.6,
        "lines.solid_capstyle": "round",
        "savefig.facecolor": palette.background,
        "svg.fonttype": "path",
        "svg.hashsalt": "thalweg",
        "text.color": palette.text,
        "text.parse_math": False,
        "xtick.color": palette.muted,
        "xtick.labelcolor": palette.muted,
        "xtick.labelsize": 8.5,
        "xtick.major.size": 3,
        "ytick.color": palette.muted,
        "ytick.labelcolor": palette.muted,
        "ytick.labelsize": 8.5,
        "ytick.major.size": 0,
    }


class PictureCollector(Collected):
    """Takes rows of reports in pieces, and draws them at the end.

    Args:
        report: the report to draw.
        options: of the picture.

    Raises:
        ReportError: there is no picture of the report.
    """

    def __init__(self, report: str, options: PictureOptions) -> None:
        if report not in PICTURES:
            raise ReportError(
                f"there is no picture of {report.upper()}",
                hint=f"Reports with a picture are {' and '.join(PICTURES)}",
            )
        self.sources = PICTURES[report]
        """Reports whose rows it takes."""
        super().__init__(options)
        self._report = report

    def draw(self, summary_set: int | None = None) -> bytes:
        """Draw the rows taken.

        Args:
            summary_set: of the stream, where the options do not name it.

        Raises:
            ReportError: there are losses that are not finite, or no rows of the chosen summaries.
            OptionError: Matplotlib is not installed.
        """
        options = self._options
        if options.summary_set is None:
            options = replace(options, summary_set=summary_set)
        return paint(self._sheet(options), options)

    def _sheet(self, options: PictureOptions) -> Sheet:
        rows = [self.rows(name, REPORTS[name].dtype(8)) for name in self.sources]
        summaries = self.summaries
        if self._report == "ept":
            return ExceedanceSheet(rows[0], summaries, options)
        return AveragesSheet(rows[0], rows[1], summaries, options)


class PictureFiles:
    """The pictures of some reports, collected in their pass and drawn after it.

    Args:
        target: a file that ends in .svg or .png, for a single picture, or a directory.
        reports: the requested reports; those with a picture are drawn.
        options: of the pictures; their form is that of a directory's files.

    Raises:
        OptionError: no report has a picture, several are to go into one file, or the library that
            draws is not installed.
    """

    def __init__(self, target: str, reports: Sequence[str], options: PictureOptions) -> None:
        require_library()
        drawn = [name for name in reports if name in PICTURES]
        if not drawn:
            raise OptionError(
                "none of the requested reports has a picture",
                hint=f"Ask for {' or '.join(PICTURES)} with --reports",
            )
        path = Path(target)
        form = path.suffix.removeprefix(".").lower()
        if form in FORMS:
            if len(drawn) > 1:
                raise OptionError(
                    f"{target} takes a single picture, but {' and '.join(drawn)} have one each",
                    hint="Name a directory with --plot",
                )
            options = replace(options, form=form)
            self.paths = {drawn[0]: path}
        elif form and not path.is_dir():
            raise OptionError(
                f"there is no picture {form!r}", hint=f"Use {' or '.join(FORMS)}, or a directory"
            )
        else:
            self.paths = {name: path / f"{name}.{options.form}" for name in drawn}
        self._options = options
        self._collectors = {name: PictureCollector(name, options) for name in drawn}
        self._fault: ReportError | None = None

    @property
    def taps(self) -> Mapping[str, Callable[[Rows], None]]:
        """What takes rows, by the report they are of."""
        sources = {source for c in self._collectors.values() for source in c.sources}
        return {source: partial(self._take, source) for source in sorted(sources)}

    def _take(self, source: str, rows: Rows) -> None:
        if self._fault is not None:
            return
        try:
            for collector in self._collectors.values():
                if source in collector.sources:
                    collector.take(source, rows)
        except ReportError as e:
            # The tables are worth having without their picture.
            self._fault = e

    def write(self, summary_set: int | None) -> list[Path]:
        """Draw and write all pictures; return their paths.

        Args:
            summary_set: of the stream, for titles.

        Raises:
            ReportError: a picture cannot be drawn.
            InputError: a file cannot be written.
        """
        if self._fault is not None:
            raise self._fault
        with Outputs() as outputs:
            for name, collector in self._collectors.items():
                outputs.open(self.paths[name]).write(collector.draw(summary_set))
        return list(self.paths.values())
