"""Auxiliary inputs of reports: one module for each file of the peer.

Each is read from csv or from the packed records the peer's ``csvtobin`` writes,
told apart by content. Bytes come in and arrays go out; what cannot be used is an
``InputError`` that names the line of a csv, or the byte of a packed file.
"""

from __future__ import annotations

from .event_rates import EventRates, parse_event_rates
from .occurrence import Occurrence, day_ids, parse_occurrence
from .quantiles import parse_quantiles, quantiles_from_text

__all__ = [
    "EventRates",
    "Occurrence",
    "day_ids",
    "parse_event_rates",
    "parse_occurrence",
    "parse_quantiles",
    "quantiles_from_text",
]
