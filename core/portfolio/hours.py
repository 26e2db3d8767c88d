"""Hours clauses: how far apart occurrences may be that are one loss occurrence.

A loss occurrence is of one peril and lasts at most H hours; windows do not overlap. With
``first-loss`` a window begins at the first loss that no earlier one has. With ``cedant`` the
losses of each peril are cut, in order of date, into windows of at most H hours such that the
layer, taken alone, recovers most. H hours are H / 24 dates of the calendar if dates are days:
with 72 hours, the day of the first loss and the two that follow.
"""

from __future__ import annotations

from ..errors import InputError
from .losses import Calendar
from .programme import Layer

_HOURS_PER_DAY = 24
_MINUTES_PER_HOUR = 60


def window_length(layer: Layer, calendar: Calendar) -> int:
    """Length of the windows of a layer, in units of the calendar; 0 if it has no hours clause.

    Raises:
        InputError: the calendar has no dates, or none that are fine enough.
    """
    if layer.hours == 0:
        return 0
    path = f"{layer.place}.HoursClause"
    if not calendar.dated:
        raise InputError(
            f"{path} needs dates, and the occurrences of the loss set have none",
            hint="Leave it out, or use a loss set whose occurrences have dates.",
            parameter="programme",
        )
    length = layer.hours
    length = length * _MINUTES_PER_HOUR if calendar.granular else length / _HOURS_PER_DAY
    if length != int(length):
        unit = "whole minutes" if calendar.granular else "a multiple of 24, as dates are days"
        raise InputError(
            f"{path}.Hours is {layer.hours:g}", hint=f"Give {unit}.", parameter="programme"
        )
    return int(length)
