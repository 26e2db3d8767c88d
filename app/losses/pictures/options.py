"""How a picture is drawn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from core.errors import OptionError

PictureForm = Literal["svg", "png"]
Theme = Literal["light", "dark"]
Perspective = Literal["gul", "il", "ri", "rl"]

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
    tail_means: bool = False
    """Whether EP curves come with their TVaR."""
    confidence: float = 0.95
    """Confidence level of the intervals in ``alct``, for the legend."""
    perspective: Perspective | None = None
    """Perspective of the run, for the title; a stream does not tell it."""
    summary_set: int | None = None
    """Summary set of the stream, for the title."""
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
