"""The library that draws, which is there with the extra ``plot``."""

from __future__ import annotations

import importlib.util

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
