"""Colours of pictures.

Series have the colours of Okabe and Ito (2008), which people with any of the common kinds of
colour blindness can tell apart: the darker ones on white, the lighter ones on dark.
"""

from __future__ import annotations

from dataclasses import dataclass

from .options import Theme


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
