"""How a picture is drawn, with which colours, and by which library: that of the extra ``plot``.

Series have the colours of Okabe and Ito (2008), which people with any of the common kinds of
colour blindness can tell apart: the darker ones on white, the lighter ones on dark.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from core.errors import OptionError


def can_draw() -> bool:
    """Whether the library is installed; does not import it."""
    return importlib.util.find_spec("matplotlib") is not None


def require_library() -> None:
    """Refuse to draw without the library.

    Raises:
        OptionError: naming the extra that installs it.
    """
    if not can_draw():
        raise OptionError(
            "pictures need matplotlib, which is not installed",
            hint="Install the extra plot, in a checkout with pip install -e '.[plot]'",
        )


PictureForm = Literal["svg", "png"]
Theme = Literal["light", "dark"]
Perspective = Literal["gul", "il", "ri", "rl"]

MOST_SUMMARIES = 12
"""Summaries in one picture."""
FORMS: tuple[PictureForm, ...] = get_args(PictureForm)
THEMES: tuple[Theme, ...] = get_args(Theme)
PERSPECTIVES: dict[Perspective, str] = {
    "gul": "ground-up loss",
    "il": "insured loss",
    "ri": "loss net of reinsurance",
    "rl": "reinsurance loss",
}
"""Perspectives of a run, in titles."""

_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PictureOptions:
    """How a picture is drawn.

    Raises:
        OptionError: a value is not one of those documented.
    """

    form: PictureForm = "svg"
    theme: Theme = "light"
    summary_ids: npt.NDArray[np.int32] | None = None
    """Summaries to show, ascending; None for all, of which a picture holds twelve."""
    chosen_by: str = "summary_ids"
    """Option that says them, for messages."""
    tail_means: bool = False
    """Whether EP curves come with their TVaR."""
    confidence: float = 0.95
    """Confidence level of the intervals in ``alct``, for the legend."""
    perspective: Perspective | None = None
    """Perspective of the run, for the title; a stream does not tell it."""
    losses: str | None = None
    """What the losses are, if not those of the perspective, for the title."""
    summary_set: int | None = None
    """Summary set of the stream, for the title."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Of panels, by the ids of summaries; those of others name the id."""
    currency: str | None = None
    """ISO 4217 code of the amounts, such as EUR, for the axes."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("form", self.form, FORMS),
            ("theme", self.theme, THEMES),
            ("perspective", self.perspective, (None, *PERSPECTIVES)),
        ):
            if value not in known:
                choices = ", ".join(filter(None, known))
                raise OptionError(f"{name} is {value!r}, but must be one of {choices}")
        if self.currency is not None and not _CURRENCY.fullmatch(self.currency):
            raise OptionError(
                f"currency is {self.currency[:20]!r}, not a code of three capital letters",
                hint="Give one such as EUR or USD",
            )


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme."""

    background: str
    text: str
    muted: str
    """Colour of labels and ticks."""
    grid: str
    first: str
    """OEP, and means."""
    second: str
    """AEP, and standard deviations."""
    reference: str
    """Lines to compare with."""


PALETTES: dict[Theme, Palette] = {
    "light": Palette(
        background="#ffffff",
        text="#1b1f24",
        muted="#57606a",
        grid="#e2e5e9",
        first="#0072b2",
        second="#d55e00",
        reference="#57606a",
    ),
    "dark": Palette(
        background="#14181d",
        text="#e9ecef",
        muted="#a5aeb8",
        grid="#2e353d",
        first="#56b4e9",
        second="#e69f00",
        reference="#a5aeb8",
    ),
}
