"""Checks of stage options; every error names the option."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import PipelineError
from ..rng import MAX_SEED, Key, derive
from .base import MAX_ITEMS


def whole(name: str, value: object, low: int, high: int) -> int:
    """Check a whole number between two bounds, both included.

    Raises:
        PipelineError: the value is anything else, such as True or 1.0.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise PipelineError(
            f"{name} is {value!r}", field=name, hint=f"A whole number from {low} to {high}."
        )
    return value


def seed_key(seed: object, *path: str | int) -> Key:
    """The key of a seed and a path.

    Raises:
        PipelineError: the seed is invalid.
    """
    return derive(whole("seed", seed, 0, MAX_SEED), *path)


def one_of(name: str, value: object, choices: Collection[str]) -> str:
    """Check one of several names.

    Raises:
        PipelineError: the value is not among them.
    """
    if not isinstance(value, str) or value not in choices:
        raise PipelineError(
            f"{name} is {value!r}", field=name, hint=f"One of {', '.join(sorted(choices))}."
        )
    return value


def bounded(name: str, length: int) -> int:
    """Check a number of items that positions can count.

    Raises:
        PipelineError: it is above 2**62.
    """
    if length > MAX_ITEMS:
        raise PipelineError(f"{length} items", field=name, hint="At most 2**62.")
    return length
