"""Uses every kernel of programmes once, so that it is compiled."""

from __future__ import annotations

import numpy as np

from .inuring import run_programme
from .losses import Calendar, OccurrenceLosses, Occurrences
from .programme import parse_programme


def use_layers() -> None:
    """Run a layer with reinstatements, and one whose hours clause the cedant reads."""
    one = np.ones(1, np.int32)
    dates = np.zeros(1, np.int64)
    calendar = Calendar(1, Occurrences(one, one, dates), np.zeros(0))
    subject = OccurrenceLosses(np.array([0, 1]), one, one, one - one, np.ones(1))
    terms = {"ReinsType": "CXL", "OccLimit": 1}
    layers = [
        {**terms, "ReinsNumber": 1, "Reinstatement": 1},
        {**terms, "ReinsNumber": 2, "HoursClause": {"Hours": 72, "Start": "cedant"}},
    ]
    programme = parse_programme({"layers": [{**layer, "CededPercent": 0.5} for layer in layers]})
    recoveries = run_programme(programme, subject, calendar, 1)
    recoveries.reinstatement_premiums(0)
    recoveries.results()
