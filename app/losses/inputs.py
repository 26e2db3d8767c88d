"""Auxiliary files: checked on upload, found by digest, parsed once."""

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

from .input_store import DIGEST_SIZE, InputStore, Receipt

KINDS = ("quantiles", "event_rates", "occurrence")

_ANY_PERIODS = 2**31 - 1
_CACHED = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored file."""

    digest: str
    receipt: Receipt


class Inputs:
    """The auxiliary files of a service, the last few of them parsed in memory."""

    def __init__(self, store: InputStore) -> None:
        self._store = store
        self._parsed: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._parsing = threading.Lock()

    def put(self, kind: str, data: bytes, periods: int | None = None) -> Stored:
        """Check a file and store it.

        Args:
            kind: one of KINDS.
            data: content of the file.
            periods: number of periods, for an occurrence csv.

        Raises:
            InputError: the content is not valid for this kind.
            StorageFullError: the file cannot be stored.
        """
        # One at a time, because parsing takes several times the memory of the file.
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
        """Return the quantiles in a list, or in the file with this digest.

        Raises:
            InvalidOptionError: the list is not one of distinct numbers from 0 to 1.
            InputGoneError: there is no such file.
        """
        if not _is_digest(text):
            try:
                return quantiles_from_text(text)
            except InputError as e:
                raise InvalidOptionError(e.message, hint=e.hint, option="quantiles") from e
        quantiles: npt.NDArray[np.float32] = self._cached(
            "quantiles", _digest(text, "quantiles"), None, parse_quantiles
        )
        return quantiles

    def event_rates(self, text: str) -> EventRates:
        """Return the event rates in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "event_rates")
        rates: EventRates = self._cached("event_rates", digest, None, parse_event_rates)
        return rates

    def occurrence_rates(self, text: str, periods: int | None) -> EventRates:
        """Return event rates computed from the occurrence file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest, or the number of periods is
                missing or does not match the file.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "occurrence")

        def parse(data: bytes) -> EventRates:
            try:
                return _parse_occurrence(data, periods)
            except InputError as e:
                # The file was valid on upload, so the number of periods must be wrong.
                raise InvalidOptionError(
                    e.message, hint="Correct no_of_periods", option="no_of_periods"
                ) from e

        rates: EventRates = self._cached("occurrence", digest, periods, parse)
        return rates

    def _cached(
        self, kind: str, digest: str, extra: int | None, parse: Callable[[bytes], Any]
    ) -> Any:  # noqa: ANN401 - the result of parse
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
            f"{option} is {text!r}, not the digest of an input",
            hint=f"PUT the file to /v1/inputs/{option}, and use the digest in the answer",
            option=option,
        )
    return text


def _parse_occurrence(data: bytes, periods: int | None, default: int | None = None) -> EventRates:
    try:
        return parse_occurrence(data, periods).event_rates()
    except InputError as e:
        if e.parameter != "periods":
            raise
        if periods is None and default is not None:
            return parse_occurrence(data, default).event_rates()
        raise InvalidOptionError(
            e.message, hint="Set the option no_of_periods", option="no_of_periods"
        ) from e
