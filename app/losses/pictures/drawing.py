"""Pictures by the report they are of."""

from __future__ import annotations

import contextlib
import gc
import io
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.server.memory import give_back
from core.arrays import Rows
from core.errors import ReportError
from core.losses.reports import REPORTS

from .averages import AveragesSheet
from .collecting import Collected
from .exceedance import ExceedanceSheet
from .options import PALETTES, Palette, PictureOptions, require_library

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def draw(report: str, tables: Mapping[str, Rows], options: PictureOptions) -> bytes:
    """Draw the picture of a report.

    Args:
        report: ``ept`` or ``aal``.
        tables: rows by report; those of ``aal`` and ``alct`` for a picture of ``aal``.
        options: of the picture.

    Raises:
        ReportError: there is no picture of the report, too many summaries, none of those chosen,
            or a number that is not finite.
        OptionError: the library that draws is not installed.
    """
    collector = PictureCollector(report, options)
    for name in collector.sources:
        collector.take(name, tables[name])
    return collector.draw()


class PictureCollector:
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
        self._report = report
        self._options = options
        self._collected = Collected(options)

    def take(self, name: str, rows: Rows) -> None:
        """Take the next rows of one of the sources, which are valid only during the call.

        Raises:
            ReportError: rows are about more summaries than a picture holds.
        """
        self._collected.take(name, rows)

    def draw(self, summary_set: int | None = None) -> bytes:
        """Draw the rows taken.

        Args:
            summary_set: of the stream, where the options do not name it.

        Raises:
            ReportError, OptionError: see :func:`draw`.
        """
        options = self._options
        if options.summary_set is None:
            options = replace(options, summary_set=summary_set)
        return paint(self._sheet(options), options)

    def _sheet(self, options: PictureOptions) -> Sheet:
        rows = [self._collected.rows(name, REPORTS[name].dtype(8)) for name in self.sources]
        summaries = self._collected.summaries
        if self._report == "ept":
            return ExceedanceSheet(rows[0], summaries, options)
        return AveragesSheet(rows[0], rows[1], summaries, options)
