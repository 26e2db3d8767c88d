"""Event rates, from csv (``EventIds,Event_rates``) or packed (i4, f4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...slices import slices
from ...sorting import order_of
from .rows import Data, Form, decode_rows, encode_rows

_CSV: Final = np.dtype([("EventIds", "<i8"), ("Event_rates", "<f8")])
_BIN: Final = np.dtype([("EventIds", "<i4"), ("Event_rates", "<f4")])


@dataclass(frozen=True, slots=True, eq=False)
class EventRates:
    """How often each event happens in one period."""

    event_ids: NDArray[np.int32]
    """Ascending and unique, at least 1; shape (events,)."""
    rates: NDArray[np.float64]
    """Finite and not negative; shape (events,)."""


def parse_event_rates(data: Data, source: str | None = None) -> EventRates:
    """Read event rates from csv (``EventIds,Event_rates``) or packed (i4, f4).

    Args:
        data: the whole file, or its columns; under a header, csv columns may come in either order.
        source: name of the file, for messages.

    Returns:
        Rates by ascending event id; float32 values if the file is packed.

    Raises:
        InputError: the file is neither of the two, is empty, or has an event id below 1
            or twice, or a rate that is negative or not finite.
    """
    rows = decode_rows(data, (_CSV,), _BIN, source)
    event_ids = rows.ids("EventIds")
    with np.errstate(invalid="ignore"):  # a signalling NaN is refused below
        rates = rows.data["Event_rates"].astype(np.float64)
    usable = np.isfinite(rates) & (rates >= 0)
    rows.require(usable, "Event_rates", "is negative or not finite")
    rows.require_unique(event_ids, "EventIds")
    ids, order = order_of(event_ids, "input")
    ordered = np.empty_like(rates)
    for a, b in slices(len(order), "input"):
        event_ids[a:b] = ids[a:b]
        np.abs(rates[order[a:b]], out=ordered[a:b])
    return EventRates(event_ids, ordered)


def encode_event_rates(rates: EventRates, form: Form) -> bytes:
    """Write event rates as the peer's file of this form; a packed one has float32."""
    rows = np.empty(len(rates.event_ids), _BIN if form == "bin" else _CSV)
    rows["EventIds"] = rates.event_ids
    rows["Event_rates"] = rates.rates
    return encode_rows(rows, form)
