"""The arrangement of axes, one for each summary, in rows; their units and ticks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .options import PERSPECTIVES, PictureOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_UNITS = ((1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion"), (1e12, "trillion"))
_TOO_LONG = 9e5
"""Amounts from which ticks would have seven digits."""
_MANTISSAS = (1, 2, 5)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit in which amounts are written."""

    divisor: float
    label: str
    """Such as ``million EUR``; empty for plain amounts without currency."""

    def write(self, amount: float, decimals: int) -> str:
        """An amount with thousands separators."""
        return f"{amount / self.divisor:,.{decimals}f}".replace("-", "\N{MINUS SIGN}")

    def title(self, quantity: str) -> str:
        """The title of an axis."""
        return f"{quantity} ({self.label})" if self.label else quantity


def choose_unit(maxima: Iterable[float], currency: str | None) -> Unit:
    """The largest unit in which no axis ends below one, or one that keeps numbers short.

    Args:
        maxima: largest amount of each axis.
        currency: code of the currency, or None.
    """
    positive = [value for value in maxima if value > 0] or [1.0]
    divisor, name = _UNITS[0]
    for larger, larger_name in _UNITS[1:]:
        # Thousands only shorten: an axis that ends at 50,000 is written out.
        suits = larger <= min(positive) and larger_name != "thousand"
        if suits or max(positive) / divisor >= _TOO_LONG:
            divisor, name = larger, larger_name
    if currency is not None:
        return Unit(divisor, f"{name} {currency}".strip())
    return Unit(divisor, name and f"{name}s")


def ticks_within(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within a range, evenly spaced.

    Args:
        low: start of the axis.
        high: its end, above the start.
        most: how many steps to fit in at the most.
    """
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in _STEPS if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_labels(ticks: Sequence[float], unit: Unit) -> list[str]:
    """The ticks of an axis in a unit, with as many decimals as tell them apart."""
    scaled = [tick / unit.divisor for tick in ticks]
    step = min((b - a for a, b in itertools.pairwise(scaled)), default=1.0)
    decimals = next(d for d in range(30) if abs(round(step, d) - step) <= step * 1e-6)
    return [unit.write(tick, decimals) for tick in ticks]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2, 5, 10, … within a range; where these are too many, powers of ten only.

    Args:
        low: start of the axis, above 0.
        high: its end.
        most: ticks, at the most.
    """
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for mantissas in (_MANTISSAS, (1,)):
        values = (m * 10.0**e for e in exponents for m in mantissas)
        ticks = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def short_number(value: float) -> str:
    """A number of years or samples with thousands separators."""
    return f"{value:,.10g}"


def three_digits(amount: float, unit: Unit) -> str:
    """An amount with about three significant digits, for labels of bars."""
    scaled = abs(amount / unit.divisor)
    decimals = 0 if scaled == 0 else max(0, 2 - math.floor(math.log10(scaled)))
    return unit.write(amount, min(decimals, 6))


_TICKS = {1: 16, 2: 9, 3: 7, 4: 5}
"""Labels that fit on a logarithmic axis, by the number of panels side by side."""
_LOSS_TICKS = {1: 8, 2: 6, 3: 5, 4: 5}
"""Steps that fit on an axis of losses, by the same."""
_CELLS = {1: (7.6, 4.1), 2: (4.4, 3.1), 3: (3.4, 2.5), 4: (2.8, 2.2)}
"""Width and height of a panel with its labels in inches, by the same."""
_EDGE = (0.30, 0.34, 0.20)
"""Inches at the left and below, for the titles of axes, and at the right, for half a label."""
_LEFT, _RIGHT, _BELOW, _ABOVE = 0.54, 0.16, 0.22, 0.34
"""Inches around the axes of a panel: tick labels, and above them the title."""


def columns_of(panels: int) -> int:
    """How many panels stand side by side."""
    if panels in {1, 2, 4}:
        return min(panels, 2)
    return 4 if panels > 9 else 3  # noqa: PLR2004 - three rows of three


def inches_of(panels: int) -> tuple[float, float]:
    """Width and height of that many panels."""
    columns = columns_of(panels)
    width, height = _CELLS[columns]
    return _EDGE[0] + width * columns + _EDGE[2], _EDGE[1] + height * math.ceil(panels / columns)


def add_axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the lower left corner of the figure."""
    across, up = figure.get_size_inches()
    return figure.add_axes((x / across, y / up, width / across, height / up))


def make_panels(figure: Figure, panels: int, left: float = 0.0) -> list[Axes]:
    """Axes side by side and in rows; only those without a panel below label their x axis.

    Args:
        figure: to add them to.
        panels: how many.
        left: inches from the left edge of the figure.
    """
    columns = columns_of(panels)
    width, height = _CELLS[columns]
    rows = math.ceil(panels / columns)
    found = []
    for index in range(panels):
        row, column = divmod(index, columns)
        axes = add_axes(
            figure,
            left + _EDGE[0] + column * width + _LEFT,
            _EDGE[1] + (rows - 1 - row) * height + _BELOW,
            width - _LEFT - _RIGHT,
            height - _BELOW - _ABOVE,
        )
        axes.tick_params(labelbottom=index + columns >= panels)
        found.append(axes)
    return found


def label_edges(panels: Sequence[Axes], x: str, y: str) -> None:
    """Label the x axes without a panel below, and the y axes at the left."""
    columns = columns_of(len(panels))
    for index, axes in enumerate(panels):
        if index + columns >= len(panels):
            axes.set_xlabel(x)
        if index % columns == 0:
            axes.set_ylabel(y, va="bottom")
            width = _CELLS[columns][0] - _LEFT - _RIGHT
            axes.yaxis.set_label_coords(-_LEFT / width, 0.5)


def scale_years(axes: Axes, low: float, high: float, columns: int) -> None:
    """A logarithmic x axis of years or samples."""
    ticks = log_ticks(low, high, _TICKS[columns])
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(ticks, [short_number(tick) for tick in ticks])
    margin = (high / low) ** 0.02
    axes.set_xlim(low / margin, high * margin)


def scale_losses(axes: Axes, low: float, high: float, unit: Unit, columns: int) -> None:
    """A linear y axis of amounts with some room around them, unless it begins at 0."""
    if high <= low:
        high = low + (abs(low) or unit.divisor)
    room = 0.06 * (high - low)
    # Amounts that are not negative need no room below 0.
    bottom = min(low, max(low - room, 0.0)) if low >= 0 else low - room
    ticks = ticks_within(bottom, high + room, _LOSS_TICKS[columns])
    axes.set_yticks(ticks, tick_labels(ticks, unit))
    axes.set_ylim(bottom, high + room)


def say_no_losses(axes: Axes) -> None:
    """An empty panel, and why it is empty."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No losses", transform=axes.transAxes, ha="center", va="center")


def describe_run(options: PictureOptions) -> list[str]:
    """Parts of the subtitle that every picture has."""
    if options.summary_set is None:
        return []
    return [f"Summary set {options.summary_set}"]


def title_of(subject: str, options: PictureOptions) -> str:
    """The title of a picture, with the perspective where it is known."""
    if options.perspective is None:
        return f"{subject}: {options.losses}" if options.losses else subject
    losses = options.losses or PERSPECTIVES[options.perspective]
    return f"{subject}: {losses} ({options.perspective.upper()})"
