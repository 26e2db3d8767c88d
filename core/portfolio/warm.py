"""Uses every kernel of roll-ups and of programmes once, so that it is compiled."""

from __future__ import annotations

import numpy as np

from ..losses.inputs import ReturnPeriods
from .combining import Subject
from .contributions import Aim, contribute
from .curves import Question, roll_up
from .inuring import run_programme
from .joining import Member
from .losses import Calendar, LossTable, OccurrenceLosses, Occurrences
from .programme import parse_programme
from .uncertainty import Doubt, bands


def use_roll_ups() -> None:
    """Ask about two blocks of an event that happens twice, with losses of both widths."""
    for dtype in (np.float32, np.float64):
        subject = Subject([_member(np.ones(3, dtype))], 2)
        for _ in roll_up(subject, Question(("aal", "ept"), ReturnPeriods(np.ones(1, np.int32)))):
            """Ignore the rows."""
    subject.distinct_cells(0)
    whole = subject.whole().occurrence_losses()
    contribute(subject, whole, Aim((1,), leave_one_out=True, close=1e-9))
    for _ in bands(subject, Doubt((1,), replicates=100)):
        """Ignore the rows."""


def _member(losses: np.ndarray) -> Member:
    one, ids = np.ones(1, np.int32), np.arange(1, 3, dtype=np.int32)
    places = np.array([0, 2])
    counts = np.array([2, 1], np.int32)
    samples = np.array([0, 1, 1], np.int32)
    table = LossTable(one, np.array([0, 2]), ids, places, places, counts, samples, losses)
    twice = np.ones(2, np.int32)
    calendar = Calendar(1, Occurrences(twice, twice, np.zeros(2, np.int64)), np.zeros(0))
    return Member(table, calendar, ids, ids - ids[0], 1)


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
