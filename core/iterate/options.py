"""Checks of the options of stages: each error names the field it is about."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import PipelineError
from ..rng import MAX_SEED, Key, derive
from .sources import MAX_ITEMS


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number between two bounds, both included.

    Raises:
        PipelineError: anything else, such as True or 1.0.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise PipelineError(
            f"{name} is {value!r}", field=name, hint=f"A whole number from {low} to {high}."
        )
    return value


def seed_key(seed: object, *path: str | int) -> Key:
    """The key of a seed and a path.

    Raises:
        PipelineError: a seed that is none.
    """
    return derive(whole("seed", seed, 0, MAX_SEED), *path)


def one_of(name: str, value: object, choices: Collection[str]) -> str:
    """One of some names.

    Raises:
        PipelineError: another.
    """
    if not isinstance(value, str) or value not in choices:
        raise PipelineError(
            f"{name} is {value!r}", field=name, hint=f"One of {', '.join(sorted(choices))}."
        )
    return value


def bounded(name: str, length: int) -> int:
    """A number of items that positions can count.

    Raises:
        PipelineError: it has 2**62 or more.
    """
    if length > MAX_ITEMS:
        raise PipelineError(f"{length} items", field=name, hint="At most 2**62.")
    return length
