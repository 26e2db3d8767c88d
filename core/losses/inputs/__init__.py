"""Auxiliary inputs of reports, by the files of the peer.

Each is read from csv or from the packed records the peer's ``csvtobin`` writes,
told apart by content. Bytes come in and arrays go out; what cannot be used is an
``InputError`` that names the line of a csv, or the byte of a packed file.
"""

from __future__ import annotations

from .occurrence import (
    EventIndex,
    EventRates,
    Occurrence,
    calendar_dates,
    day_ids,
    encode_event_rates,
    encode_occurrence,
    parse_event_rates,
    parse_occurrence,
)
from .periods import Periods, encode_periods, parse_periods
from .points import (
    ReturnPeriods,
    encode_quantiles,
    encode_return_periods,
    parse_quantiles,
    parse_return_periods,
    quantiles_from_text,
    return_periods_from_text,
)
from .rows import Columns, Data, Form
from .summary_xref import SummaryXref, encode_summary_xref, parse_summary_xref
from .text_tables import (
    SummaryInfo,
    SummaryMap,
    encode_summary_info,
    encode_summary_map,
    parse_summary_info,
    parse_summary_map,
)

__all__ = [
    "Columns",
    "Data",
    "EventIndex",
    "EventRates",
    "Form",
    "Occurrence",
    "Periods",
    "ReturnPeriods",
    "SummaryInfo",
    "SummaryMap",
    "SummaryXref",
    "calendar_dates",
    "day_ids",
    "encode_event_rates",
    "encode_occurrence",
    "encode_periods",
    "encode_quantiles",
    "encode_return_periods",
    "encode_summary_info",
    "encode_summary_map",
    "encode_summary_xref",
    "parse_event_rates",
    "parse_occurrence",
    "parse_periods",
    "parse_quantiles",
    "parse_return_periods",
    "parse_summary_info",
    "parse_summary_map",
    "parse_summary_xref",
    "quantiles_from_text",
    "return_periods_from_text",
]
