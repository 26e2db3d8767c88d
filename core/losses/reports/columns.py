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


def by_period(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a report of periods, from those of an event that happens once.

    Args:
        columns: the first is the event.
    """
    return (
        integer("Period", "Period in which the event happens"),
        number("PeriodWeight", 6, "Weight of the period in a mean over periods"),
        columns[0],
        integer("Year", "Date on which it happens"),
        integer("Month", "Month of the date, 1 to 12"),
        integer("Day", "Day of the month, 1 to 31"),
        integer("Hour", "Hour of the day, 0 to 23; 0 if the file has days only"),
        integer("Minute", "Minute of the hour, 0 to 59; 0 if the file has days only"),
        *columns[1:],
    )
