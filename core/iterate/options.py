"""The options of stages, and the arguments of functions that a served pipeline may name, checked.

Every error names the option; that of all arguments is ``args``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..errors import PipelineError, names_hint, shown
from ..rng import MAX_SEED, Key, derive
from .base import MAX_ITEMS, Field, Schema


def whole(name: str, value: object, low: int, high: int) -> int:
    """Check a whole number between two bounds, both included.

    Raises:
        PipelineError: the value is anything else, such as True or 1.0.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise refuse(f"{name} is {shown(value)}", f"A whole number from {low} to {high}.", name)
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
        raise refuse(f"{name} is {shown(value)}", f"One of {', '.join(sorted(choices))}.", name)
    return value


def bounded(name: str, length: int) -> int:
    """Check a number of items that positions can count.

    Raises:
        PipelineError: it is above 2**62.
    """
    if length > MAX_ITEMS:
        raise refuse(f"{length} items", "At most 2**62.", name)
    return length


Arguments = Mapping[str, Any]
MAX_NAME = 200
NUMBERS = "biuf"
"""Kinds of dtypes that are numbers."""
_ARRAYS = (
    "Filter by a field of one number, such as a label. Of frames, make one: reduce them by mean"
    " over pixels, and give source the result as labels. Windows have none: zip them with a source"
    " of one."
)


def refuse(message: str, hint: str | None = None, option: str = "args") -> PipelineError:
    """The error for an option that does not fit, or for arguments."""
    return PipelineError(message, field=option, hint=hint)


def _found(value: object) -> str:
    return "missing" if value is None else repr(value)


class Args:
    """Arguments by name; unknown ones are refused."""

    def __init__(self, arguments: Arguments, schema: Schema, known: tuple[str, ...]) -> None:
        self.schema = schema
        self._arguments = arguments
        for name in arguments:
            if name not in known:
                raise refuse(f"unknown argument {name!r}", f"Known: {', '.join(known)}.")

    def field(self, kinds: str = NUMBERS, *, scalar: bool = False) -> Field:
        """The field that the argument ``field`` names, if its dtype is of one of the kinds."""
        name = self._arguments.get("field")
        known: list[str] = []
        for candidate in self.schema:
            is_number = candidate.dtype.kind in kinds
            is_array = scalar and (candidate.ragged or candidate.shape)
            if is_number and not is_array:
                known.append(candidate.name)
            if candidate.name != name:
                continue
            if not is_number:
                raise refuse(f"field {name!r} has dtype {candidate.dtype}")
            if is_array:
                raise refuse(f"field {name!r} is not one number per item", _ARRAYS)
            return candidate
        hint = f"{names_hint(str(name), known)}." if known else _ARRAYS if scalar else None
        raise refuse(f"field is {_found(name)}", hint)

    def number(self, name: str, default: float | None = None) -> float:
        """Give a finite number; an integer stays one, as floats have only some beyond 2**53."""
        return self._number(name, self._arguments.get(name, default))

    def numbers(self, name: str, default: float, field: Field) -> float | list[float]:
        """Give a finite number, or a list of them for the last axis of a field."""
        value = self._arguments.get(name, default)
        if not isinstance(value, list):
            return self._number(name, value)
        if len(value) not in field.shape[-1:]:
            last = f", or {field.shape[-1]} for the last axis" if field.shape else ""
            raise refuse(f"{name} has {len(value)} numbers", f"Give one{last} of {field.name}.")
        return [self._number(name, each) for each in value]

    @staticmethod
    def _number(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(f"{name} is {_found(value)}", "Give a number.")
        if not abs(value) <= sys.float_info.max:
            raise refuse(f"{name} is {shown(value)}", "Give a finite number.")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Text of 1 to :data:`MAX_NAME` printable characters."""
        value = self._arguments.get(name, default)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
            hint = f"Give a name of 1 to {MAX_NAME} printable characters."
            raise refuse(f"{name} is {_found(value):.60}", hint)
        return value

    def texts(self, name: str) -> list[str]:
        """Give a list of names."""
        value = self._arguments.get(name)
        names = list(value) if isinstance(value, list | tuple) else []
        if not names or not all(isinstance(candidate, str) for candidate in names):
            raise refuse(f"{name} is {_found(value)}", "Give a list of names.")
        return names

    def dtype(self) -> np.dtype[Any]:
        """A numeric dtype."""
        value = self.text("dtype")
        try:
            dtype = np.dtype(value)
        except TypeError as error:
            raise refuse(
                f"dtype is {shown(value)}", "Give a numpy dtype of numbers, such as f4."
            ) from error
        if dtype.kind not in NUMBERS:
            raise refuse(f"dtype is {shown(value)}", "Give a numpy dtype of numbers, such as f4.")
        return dtype
