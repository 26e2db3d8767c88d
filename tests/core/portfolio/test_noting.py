"""Notes name defaults that matter and odd terms, once each."""

from __future__ import annotations

from typing import Any

from core.portfolio.inuring import run_programme
from core.portfolio.noting import notes_of, notes_on
from core.portfolio.programme import parse_programme
from tests.core.portfolio.programmes import random_case, seeded

CXL = {"ReinsNumber": 1, "ReinsType": "CXL", "OccLimit": 10}


def notes(*layers: dict[str, Any]) -> list[str]:
    return list(notes_of(parse_programme({"layers": list(layers)})))


def test_defaults_that_change_what_a_programme_costs_are_named_once() -> None:
    clause = {**CXL, "ReinsNumber": 2, "AggLimit": 5, "HoursClause": {"Hours": 72}}
    found = notes(CXL, {**clause, "ReinsPremium": 11, "CededPercent": 0.3})
    for note, start in zip(found, (
        "layers[0], layers[1]: without InuringPriority it is 1, and layers of one priority apply",
        "layers[0]: without Reinstatement and AggLimit the limit is paid for every loss",
        "layers[1]: without Start an hours clause begins with the first loss",
        "layers[1]: CededPercent is of each loss, before other terms; PlacedPercent is",
        "layers[1]: ReinsPremium is more than the limit",
    ), strict=True):  # fmt: skip
        assert note.startswith(start)
    said = {**clause, "HoursClause": {"Hours": 72, "Start": "first-loss"}}
    assert notes(said) == []
    assert len(notes(*({**said, "ReinsNumber": k} for k in range(1, 9)))) == 1
    assert "layers[4], …: " in notes(*({**said, "ReinsNumber": k} for k in range(1, 9)))[0]


def test_amounts_that_are_tiny_beside_the_losses_are_named() -> None:
    case = random_case(seeded(1), parts=False)

    def noted(attachment: float) -> list[str]:
        programme = parse_programme({"layers": [{**CXL, "OccAttachment": attachment}]})
        return list(notes_on(run_programme(programme, case.subject, case.calendar, case.samples)))

    (note,) = noted(1e-5)
    assert note.startswith("layers[0]: an amount is below a millionth of the largest annual loss")
    assert noted(0) == noted(1) == []
