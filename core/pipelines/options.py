"""Checkers of option values, one for each kind of value.

A checker takes a JSON value and returns its canonical form, or raises :class:`Refused` with a
predicate such as ``is -1``. The parser adds the stage and the option that the error is about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ..errors import names_hint
from ..iterate.options import MAX_NAME

Checker = Callable[[Any], Any]

MAX_ITEMS = 1 << 48
"""Most items, because a permutation can have no more."""
MAX_ARGUMENTS = 4096
"""Characters of JSON of the arguments of a function."""
MAX_SEED = (1 << 63) - 1


class Refused(Exception):  # noqa: N818 - never leaves the parser
    """A value was refused; ``hint`` says how to fix it."""

    def __init__(self, message: str, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.field = field


class _Required:
    """Marks an option without a default."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a stage."""

    check: Checker
    default: Any = REQUIRED
    """Canonical value of an option that is left out."""
    kept: bool = True
    """Whether it belongs to the stage; other options exist only for a helpful refusal."""


def integer(low: int, high: int = MAX_ITEMS, also: str = "") -> Checker:
    """Integers from ``low`` to ``high``, both included; true and 1.0 are not integers.

    The hint of a refusal ends with ``also``, which says what else an option takes.
    """
    hint = f"Give an integer from {low} to {high}{also}."

    def check(value: Any) -> int:  # noqa: ANN401 - any JSON value
        if isinstance(value, bool) or not isinstance(value, int):
            # Parsers of JSON make floats of integers that no 64 bits hold.
            large = isinstance(value, float) and value > high
            fault = "is too large" if large else f"is {_quoted(value)}, not an integer"
            raise Refused(fault, hint)
        if not low <= value <= high:
            raise Refused(f"is {value}", hint)
        return value

    return check


seed: Final = integer(0, MAX_SEED)


def fraction(value: Any) -> float:  # noqa: ANN401 - any JSON value
    """A number above 0 and below 1."""
    number = finite(value)
    if not 0 < number < 1:
        raise Refused(f"is {_quoted(value)}", "Give a number above 0 and below 1.")
    return number


def finite(value: Any) -> float:  # noqa: ANN401 - any JSON value
    """A finite number, as a float, or as an integer that no float is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"is {_quoted(value)}", "Give a number.")
    try:
        number = float(value)
    except OverflowError:
        raise Refused("is too large", "Give a finite number.") from None
    if not math.isfinite(number):
        raise Refused(f"is {number}", "Give a finite number.")
    return number if number == value else value


def boolean(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """True or false."""
    if not isinstance(value, bool):
        raise Refused(f"is {_quoted(value)}", "Give true or false.")
    return value


def name(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Text of 1 to :data:`MAX_NAME` printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise Refused(
            f"is {_quoted(value)}", f"Give a name of 1 to {MAX_NAME} printable characters."
        )
    return value


def one_of(*choices: str, example: str = "", **synonyms: str) -> Checker:
    """One of these words; ``synonyms`` says what to use for others that people know."""

    def check(value: Any) -> str:  # noqa: ANN401 - any JSON value
        if not isinstance(value, str) or value not in choices:
            known = synonyms.get(str(value).lower())
            hint = f"Use {known}" if known else names_hint(str(value), choices)
            raise Refused(f"is {_quoted(value)}", f"{hint}.{example}")
        return value

    return check


def optional(check: Checker) -> Checker:
    """Null, or a value that ``check`` accepts."""
    return lambda value: None if value is None else check(value)


def either(word: str, check: Checker) -> Checker:
    """This word, or a value that ``check`` accepts."""
    return lambda value: value if value == word and isinstance(value, str) else check(value)


def names(value: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    """A non-empty list of different names."""
    if not isinstance(value, list) or not value:
        raise Refused(f"is {_quoted(value)}", "Give a list of one name or more.")
    result = [name(item) for item in value]
    if len(set(result)) < len(result):
        raise Refused("repeats a name", "Give each name once.")
    return result


def span(value: Any) -> list[int]:  # noqa: ANN401 - any JSON value
    """``[start, stop]`` with 0 <= start <= stop."""
    whole = integer(0)
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - start and stop
        raise Refused(f"is {_quoted(value)}", "Give [start, stop].")
    start, stop = (whole(item) for item in value)
    if start > stop:
        raise Refused(f"stops at {stop}, before its start {start}", "Give [start, stop].")
    return [start, stop]


def weights(value: Any) -> list[int]:  # noqa: ANN401 - any JSON value
    """Non-negative integers, not all zero."""
    whole = integer(0, 1 << 20)
    if not isinstance(value, list):
        raise Refused(f"is {_quoted(value)}", "Give a list of integers, one for each input.")
    if any(isinstance(item, float) for item in value):
        shares = [Fraction(max(finite(item), 0)).limit_denominator(100) for item in value]
        common = math.lcm(*(share.denominator for share in shares))
        integers = [int(share * common) for share in shares]
        raise Refused(f"is {_quoted(value)}", f"Give integers, such as {integers}.")
    result = [whole(item) for item in value]
    if sum(result) == 0:
        raise Refused("sums to zero", "Give at least one input a weight above 0.")
    return result


def mapping(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """A JSON object of finite numbers and bounded size; sorts its keys at every depth."""
    if not isinstance(value, dict):
        raise Refused(f"is {_quoted(value)}", "Give an object.")
    try:
        text = json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise Refused("is not JSON", "Use finite numbers, and strings as keys.") from None
    if len(text) > MAX_ARGUMENTS:
        raise Refused(
            f"is {len(text)} characters of JSON", f"Keep it to {MAX_ARGUMENTS} characters."
        )
    result: dict[str, Any] = json.loads(text)
    return result


def refused_always(message: str, hint: str) -> Checker:
    """Null only; for an option that belongs elsewhere."""

    def check(value: Any) -> None:  # noqa: ANN401 - any JSON value
        if value is not None:
            raise Refused(message, hint)

    return check


def _quoted(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - fits a line
