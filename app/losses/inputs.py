"""Auxiliary files: checked on upload, found by digest, parsed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import InvalidOptionError, NotFoundError
from app.http.identity import Identity
from app.state.base import HeadMissingError, StateStore
from app.state.shares import Shares
from app.state.turns import Turn
from core.errors import InputError
from core.losses.inputs import (
    EventRates,
    Occurrence,
    Periods,
    ReturnPeriods,
    parse_event_rates,
    parse_occurrence,
    parse_periods,
    parse_quantiles,
    parse_return_periods,
    parse_summary_info,
    parse_summary_map,
    parse_summary_xref,
    quantiles_from_text,
    return_periods_from_text,
)

from .input_store import DIGEST_SIZE, InputFile, InputStore, Receipt, digest_of, gone

KIND = "input"
UNUSED = ("ensemble", "items", "coverages")
"""Files of a model that no report is computed from."""

_PARQUET = b"PAR1"
_ANY_PERIODS = 2**31 - 1
_CACHED = 16
_CACHED_BYTES = 128 << 20
"""Bytes of parsed files that stay in memory; the last one does whatever its size."""
_PARSED = 8
"""Bytes that parsing takes for each byte of a file of numbers."""
_PARSED_TEXT = 32
"""The same for each byte of a file of texts, each of which is an object."""


def _check_occurrence(data: bytes, periods: int | None) -> None:
    _parse_occurrence(data, periods, default=_ANY_PERIODS)


_CHECKS: dict[str, Callable[[bytes, int | None], object]] = {
    "quantiles": lambda data, _periods: parse_quantiles(data),
    "event_rates": lambda data, _periods: parse_event_rates(data),
    "occurrence": _check_occurrence,
    "periods": lambda data, _periods: parse_periods(data),
    "return_periods": lambda data, _periods: parse_return_periods(data),
    "summary_xref": lambda data, _periods: parse_summary_xref(data),
    "summary_map": lambda data, _periods: parse_summary_map(data),
    "summary_info": lambda data, _periods: parse_summary_info(data),
}
KINDS = tuple(_CHECKS)
"""Names of the files that can be stored."""
_TEXTS = frozenset({"summary_map", "summary_info"})


def memory_to_parse(kind: str, nbytes: int) -> int:
    """Return at most how much memory it takes to parse a file of this kind and size."""
    return (_PARSED_TEXT if kind in _TEXTS else _PARSED) * nbytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored file."""

    digest: str
    receipt: Receipt


class Inputs:
    """The auxiliary files of a service, the last few of them parsed in memory.

    A file is stored once, however many owners have it; each has put it, and may use it.

    Args:
        store: holds the files.
        heads: holds the owners of each.
        turn: a turn among all that change the files or their owners.
    """

    def __init__(self, store: InputStore, heads: StateStore, turn: Turn) -> None:
        self._store = store
        self._owners = Shares(heads, KIND, turn)
        self._parsed: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._parsing = threading.Lock()

    def put(self, who: Identity, kind: str, data: bytes, periods: int | None = None) -> Stored:
        """Check a file and store it for the caller.

        Args:
            who: the caller.
            kind: one of KINDS.
            data: content of the file.
            periods: number of periods, for an occurrence csv.

        Raises:
            InputError: the content is not valid for this kind.
            QuotaExceededError: too much is stored already.
            StorageFullError: the file cannot be stored.
        """
        if data.startswith(_PARQUET):
            raise InputError(
                "it is a parquet file",
                hint="Send csv or packed records; thalweg-server aggregate reads parquet too",
            )
        # One at a time, because parsing takes several times the memory of the file.
        with self._parsing:
            _CHECKS[kind](data, periods)
        digest = digest_of(data)
        ident = _ident(kind, digest)
        new = not self._owners.has(who.owner, ident)
        content = InputFile(self._store, kind, digest, data)
        receipt = self._owners.put(who.owner, ident, len(data), content)
        # Whether others have the file too is not for the caller to know.
        return Stored(digest, Receipt(new or receipt.created, receipt.expires))

    def delete(self, who: Identity, kind: str, digest: str) -> None:
        """Remove the caller from the owners of a file, and the file with the last of them.

        Raises:
            NotFoundError: the caller has no such file.
        """
        try:
            self._owners.delete(
                who.owner,
                _ident(kind, digest),
                lambda: self._store.remove(kind, digest),
                everyone=who.is_admin,
            )
        except HeadMissingError as e:
            raise NotFoundError(f"there is no {kind} input {digest[:80]!r}") from e

    def quantiles(self, who: Identity, text: str) -> npt.NDArray[np.float32]:
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
        quantiles: npt.NDArray[np.float32] = self._file(who, "quantiles", text, parse_quantiles)
        return quantiles

    def return_periods(self, who: Identity, text: str) -> ReturnPeriods:
        """Return the return periods in a list, or in the file with this digest.

        Raises:
            InvalidOptionError: the list is not one of distinct whole numbers from 1.
            InputGoneError: there is no such file.
        """
        if not _is_digest(text):
            try:
                return return_periods_from_text(text)
            except InputError as e:
                raise InvalidOptionError(e.message, hint=e.hint, option="return_periods") from e
        years: ReturnPeriods = self._file(who, "return_periods", text, parse_return_periods)
        return years

    def event_rates(self, who: Identity, text: str) -> EventRates:
        """Return the event rates in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest.
            InputGoneError: there is no such file.
        """
        rates: EventRates = self._file(who, "event_rates", text, parse_event_rates)
        return rates

    def periods(self, who: Identity, text: str) -> Periods:
        """Return the period weights in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest.
            InputGoneError: there is no such file.
        """
        periods: Periods = self._file(who, "periods", text, parse_periods)
        return periods

    def occurrence(self, who: Identity, text: str, periods: int | None) -> Occurrence:
        """Return the occurrences in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest, or the number of periods is
                missing or does not match the file.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "occurrence")

        def parse(data: bytes) -> Occurrence:
            try:
                return _parse_occurrence(data, periods)
            except InputError as e:
                # The file was valid on upload, so the number of periods must be wrong.
                raise InvalidOptionError(
                    e.message, hint="Correct no_of_periods", option="no_of_periods"
                ) from e

        occurrence: Occurrence = self._cached(who, "occurrence", digest, periods, parse)
        return occurrence

    def _file(self, who: Identity, kind: str, text: str, parse: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - the result of parse
        return self._cached(who, kind, _digest(text, kind), None, parse)

    def _cached(
        self,
        who: Identity,
        kind: str,
        digest: str,
        extra: int | None,
        parse: Callable[[bytes], Any],
    ) -> Any:  # noqa: ANN401 - the result of parse
        if not (who.is_admin or self._owners.has(who.owner, _ident(kind, digest))):
            raise gone(kind, digest)
        key = (kind, digest, extra)
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
        if found is not None:
            self._store.touch(kind, digest)
            return found[0]
        data = self._store.read(kind, digest)
        parsed = parse(data)
        with self._lock:
            # Parsed files of numbers are about as large as they are packed.
            self._parsed[key] = parsed, len(data)
            while len(self._parsed) > _CACHED or (
                len(self._parsed) > 1
                and sum(size for _, size in self._parsed.values()) > _CACHED_BYTES
            ):
                self._parsed.popitem(last=False)
        return parsed


def _ident(kind: str, digest: str) -> str:
    """Return the id of a file's heads."""
    return f"{digest}.{kind}"


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


def _parse_occurrence(data: bytes, periods: int | None, default: int | None = None) -> Occurrence:
    try:
        return parse_occurrence(data, periods)
    except InputError as e:
        if e.parameter != "periods":
            raise
        if periods is None and default is not None:
            return parse_occurrence(data, default)
        raise InvalidOptionError(
            e.message, hint="Set the option no_of_periods", option="no_of_periods"
        ) from e
