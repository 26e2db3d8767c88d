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
    clause = {**CXL, "ReinsNumber": 2, "AggLimit": 50, "HoursClause": {"Hours": 72}}
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


def test_a_share_is_said_to_be_of_what_its_type_has_before_it() -> None:
    first = "CededPercent is of each loss, before other terms; PlacedPercent is the layer's share"
    risks = "CededPercent is of each risk's loss after RiskAttachment and RiskLimit, before others"
    for layer, wanted in (
        ({"ReinsType": "CXL", "OccLimit": 9, "AggLimit": 9}, first),
        ({"ReinsType": "AXL", "AggLimit": 9}, first),
        ({"ReinsType": "SL", "AggLimit": 9}, first),
        ({"ReinsType": "QS", "OccLimit": 9}, first),
        ({"ReinsType": "QS", "RiskLimit": 9}, risks),
        ({"ReinsType": "PR", "RiskAttachment": 9}, risks),
        ({"ReinsType": "FAC", "RiskLimit": 9}, risks),
        ({"ReinsType": "QS", "PlacedPercent": 0.5}, None),
    ):  # fmt: skip
        found = notes({"ReinsNumber": 1, "CededPercent": 0.5, **layer})
        assert found == ([] if wanted is None else [f"layers[0]: {wanted}"])


def test_terms_that_never_matter_or_bind_before_others_are_named() -> None:
    risk = {"ReinsType": "PR", "RiskLimit": 20, "Reinstatement": 3}
    share = {"ReinsType": "QS", "OccLimit": None, "CededPercent": 0.5}
    nothing = "CededPercent, PlacedPercent or TreatyShare is 0, so that nothing is ever paid"
    reverse = {"OccAttachment": 7, "OccReverseFranchise": 16}
    for more, wanted in (
        ({"Reinstatement": 3, "AggLimit": 20}, ["AggLimit is less than the limit times Rein"]),
        ({"Reinstatement": 3, "AggLimit": 50}, ["AggLimit is more than the limit times Rein"]),
        ({"Reinstatement": 3, "AggLimit": 40}, []),
        ({"OccLimit": 0.1, "Reinstatement": 2, "AggLimit": 0.3}, []),
        ({"CededPercent": 0, "AggLimit": 90}, ["CededPercent is of each loss", nothing]),
        ({"PlacedPercent": 0, "AggLimit": 90}, [nothing]),
        ({"TreatyShare": 0, "AggLimit": 90}, [nothing]),
        ({"AggLimit": 9}, ["AggLimit is less than OccLimit, which is never paid in full"]),
        ({"AggLimit": 10}, []),
        (risk, ["OccLimit is less than RiskLimit, which is never paid in full"]),
        ({**risk, "OccLimit": 20}, []),
        ({**share, "RiskLimit": 10, "AggLimit": 5}, ["CededPercent is of each risk's loss"]),
        (
            {**share, "RiskLimit": 11, "AggLimit": 5},
            ["CededPercent is of", "AggLimit is less than RiskLimit, which is never paid in full"],
        ),
        (
            {"OccFranchiseDed": 7, "OccAttachment": 7, "AggLimit": 90},
            ["OccFranchiseDed is not more than OccAttachment, and changes nothing"],
        ),
        ({"OccFranchiseDed": 8, "OccAttachment": 7, "AggLimit": 90}, []),
        ({**reverse, "AggLimit": 90}, ["OccReverseFranchise is less than OccAttachment + Occ"]),
        ({**reverse, "OccReverseFranchise": 17, "AggLimit": 90}, []),
    ):
        found = notes({**CXL, **more})
        assert len(found) == len(wanted), found
        assert all(map(str.startswith, found, [f"layers[0]: {note}" for note in wanted])), found


def test_amounts_that_are_tiny_beside_the_losses_are_named() -> None:
    case = random_case(seeded(1), parts=False)

    def noted(attachment: float) -> list[str]:
        programme = parse_programme({"layers": [{**CXL, "OccAttachment": attachment}]})
        return list(notes_on(run_programme(programme, case.subject, case.calendar, case.samples)))

    (note,) = noted(1e-5)
    assert note.startswith("layers[0]: an amount is below a millionth of the largest annual loss")
    assert noted(0) == noted(1) == []
