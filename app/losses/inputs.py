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
from app.state.ownership import Shares
from core.errors import InputError
from core.losses.inputs import (
    EventRates,
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    quantiles_from_text,
)

from .input_store import DIGEST_SIZE, InputStore, Receipt, digest_of, gone

KIND = "input"
KINDS = ("quantiles", "event_rates", "occurrence")

_ANY_PERIODS = 2**31 - 1
_CACHED = 16


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
    """

    def __init__(self, store: InputStore, heads: StateStore) -> None:
        self._store = store
        self._owners = Shares(heads, KIND)
        self._parsed: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
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
        # One at a time, because parsing takes several times the memory of the file.
        with self._parsing:
            if kind == "quantiles":
                parse_quantiles(data)
            elif kind == "event_rates":
                parse_event_rates(data)
            else:
                _parse_occurrence(data, periods, default=_ANY_PERIODS)
        digest = digest_of(data)
        ident = _ident(kind, digest)
        new = not self._owners.has(who.owner, ident)
        receipt = self._owners.put(
            who.owner, ident, len(data), lambda: self._store.put(kind, digest, data)
        )
        # Whether others have the file too is not for the caller to know.
        return Stored(digest, Receipt(new or receipt.created, receipt.expires))

    def delete(self, who: Identity, kind: str, digest: str) -> None:
        """Remove the caller from the owners of a file, and the file with the last of them.

        Raises:
            NotFoundError: the caller has no such file.
            StorageFullError: another owner stores the file right now, and it cannot be.
        """

        def remove() -> Callable[[], None]:
            data = self._store.remove(kind, digest)

            def restore() -> None:
                if data is not None:
                    self._store.put(kind, digest, data)

            return restore

        try:
            self._owners.delete(who.owner, _ident(kind, digest), remove, everyone=who.is_admin)
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
        quantiles: npt.NDArray[np.float32] = self._cached(
            who, "quantiles", _digest(text, "quantiles"), None, parse_quantiles
        )
        return quantiles

    def event_rates(self, who: Identity, text: str) -> EventRates:
        """Return the event rates in the file with this digest.

        Raises:
            InvalidOptionError: ``text`` is not a digest.
            InputGoneError: there is no such file.
        """
        digest = _digest(text, "event_rates")
        rates: EventRates = self._cached(who, "event_rates", digest, None, parse_event_rates)
        return rates

    def occurrence_rates(self, who: Identity, text: str, periods: int | None) -> EventRates:
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

        rates: EventRates = self._cached(who, "occurrence", digest, periods, parse)
        return rates

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
