"""Columns as reports have them in common."""

from __future__ import annotations

from .report import Column

CURRENCY = "currency of the exposure"


def integer(name: str, description: str) -> Column:
    """A column of integers."""
    return Column(name, "i4", None, description)


def amount(name: str, decimals: int, description: str, dtype: str = "loss") -> Column:
    """A column of amounts of money."""
    return Column(name, dtype, decimals, description, CURRENCY)


def number(name: str, decimals: int, description: str, dtype: str = "loss") -> Column:
    """A column of numbers without a unit."""
    return Column(name, dtype, decimals, description)


EVENT_ID = integer("EventId", "Event")
SUMMARY_ID = integer("SummaryId", "Summary within its set")
