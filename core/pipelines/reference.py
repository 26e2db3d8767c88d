"""What stages and their functions do, with options, arguments and an example of each, as data."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import PipelineError, names_hint

_FUNCTIONS = ("map", "filter", "scan")
"""Stages that have functions."""


@cache
def reference() -> dict[str, Any]:
    """Return ``stages``, and the functions of ``map``, ``filter`` and ``scan``, each by name."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("reference.json").read_bytes())
    return found


def reference_of(name: str) -> dict[str, Any]:
    """Return what a stage does, with its functions if it has any.

    Raises:
        PipelineError: there is no such stage.
    """
    entries = reference()
    if name not in entries["stages"]:
        kinds = [kind for kind in _FUNCTIONS if name in entries[kind]]
        known = f"{names_hint(name, entries['stages'])}."
        hint = f"It is a function of the stage {kinds[0]}." if kinds else known
        raise PipelineError(f"there is no stage {name[:60]!r}", hint=hint)
    functions = {"functions": entries[name]} if name in _FUNCTIONS else {}
    return {"stage": name, **entries["stages"][name], **functions}
