"""Auxiliary files: checked when they come, found again by digest, parsed once."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import InvalidOptionError
from core.errors import InputError
from core.losses.inputs import (
    EventRates,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)

from .input_store import DIGEST_SIZE, InputStore, Kept

KINDS = ("quantiles", "event_rates", "occurrence")

_ANY_PERIODS = 2**31 - 1
_CACHED = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a file."""

    digest: str
    kept: Kept


class Inputs:
    """The auxiliary files of a service."""

    def __init__(self, store: InputStore) -> None:
        self._store = store
        self._parsed: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._parsing = threading.Lock()

    def put(self, kind: str, data: bytes, periods: int | None = None) -> Stored:
        """Check a file and keep it.

        Raises:
            InputError: it is not a file of this kind.
            StorageFullError: it cannot be kept.
        """
        # One at a time: parsing takes several times the memory of the file.
        with self._parsing:
            if kind == "quantiles":
                parse_quantiles(data)
            elif kind == "event_rates":
                parse_event_rates(data)
            else:
                _parse_occurrence(data, periods, default=_ANY_PERIODS)
        digest = hashlib.blake2b(data, digest_size=DIGEST_SIZE).hexdigest()
        return Stored(digest, self._store.put(kind, digest, data))

    def quantiles(self, text: str) -> npt.NDArray[np.float32]:
        """Quantiles from a list, or from the file of this digest.

        Raises:
            InvalidOptionError: a quantile is no number, or not in 0 to 1, or comes twice.
            InputGoneError: there is no such file.
        """
        if not _is_digest(text):
            try:
                return quantiles_from_text(text)
            except InputError as e:
                raise InvalidOptionError(e.message, hint=e.hint, option="quantiles") from e
        found: npt.NDArray[np.float32] = self._cached(
            "quantiles", _digest(text, "quantiles"), None, parse_quantiles
        )
        return found

    def event_rates(self, text: str) -> EventRates:
        """The event rates of this digest.

        Raises:
            InvalidOptionError: it is no digest.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "event_rates")
        found: EventRates = self._cached("event_rates", digest, None, parse_event_rates)
        return found

    def occurrence_rates(self, text: str, periods: int | None) -> EventRates:
        """Event rates from the occurrences of this digest.

        Raises:
            InvalidOptionError: it is no digest, or the number of periods is missing or
                does not fit.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "occurrence")

        def parse(data: bytes) -> EventRates:
            try:
                return _parse_occurrence(data, periods)
            except InputError as e:
                # It was right when it came: the number of periods is what does not fit.
                raise InvalidOptionError(
                    e.message, hint="It is the number of periods", option="no_of_periods"
                ) from e

        found: EventRates = self._cached("occurrence", digest, periods, parse)
        return found

    def _cached(
        self, kind: str, digest: str, extra: int | None, parse: Callable[[bytes], Any]
    ) -> Any:  # noqa: ANN401 - whatever was parsed
        key = (kind, digest, extra)
        with self._lock:
            parsed = self._parsed.get(key)
            if parsed is not None:
                self._parsed.move_to_end(key)
        if parsed is not None:
            self._store.touch(kind, digest)
            return parsed
        parsed = parse(self._store.read(kind, digest))
        with self._lock:
            self._parsed[key] = parsed
            while len(self._parsed) > _CACHED:
                self._parsed.popitem(last=False)
        return parsed


def _is_digest(text: str) -> bool:
    return len(text) == 2 * DIGEST_SIZE and set(text) <= set("0123456789abcdef")


def _digest(text: str, option: str) -> str:
    if not _is_digest(text):
        raise InvalidOptionError(
            f"{option} is {text!r}, which is no digest of an input",
            hint=f"PUT the file to /v1/inputs/{option}, and use the digest it answers",
            option=option,
        )
    return text


def _parse_occurrence(data: bytes, periods: int | None, default: int | None = None) -> EventRates:
    try:
        return parse_occurrence(data, periods).event_rates()
    except InputError as e:
        if "--no-of-periods" not in (e.hint or "") or e.offset is not None:
            raise
        if periods is None and default is not None:
            return parse_occurrence(data, default).event_rates()
        raise InvalidOptionError(
            e.message, hint="Set the option no_of_periods", option="no_of_periods"
        ) from e
