"""Programmes whose layers are of perils, over HTTP, against plain Python."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.portfolio import perils
from tests.app.portfolio.book import SAMPLES, SETS, Book, Desk
from tests.portfolio_programme_oracle import Layer, Row, Year, run_year

PERILS = {"WW1": "1-2, 5", "EQ": [3, 4, 777]}
PERIL_OF = {1: "WW1", 2: "WW1", 5: "WW1", 3: "EQ", 4: "EQ"}
"""Events 6 and 7 are of no peril, and 777 never happens."""
CXL = {"ReinsType": "CXL", "OccAttachment": 200, "OccLimit": 900}
LAYERS = [
    {**CXL, "ReinsNumber": 1, "ReinsPeril": "WW1"},
    {**CXL, "ReinsNumber": 2, "ReinsPeril": "EQ", "InuringPriority": 2},
    {**CXL, "ReinsNumber": 3, "InuringPriority": 3, "HoursClause": {"Hours": 120}},
]
ASKED = {"programme": {"layers": LAYERS}, "perils": PERILS, "float_width": 8}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("data"))
    for name, seed in (("a", 1), ("other", 2)):
        made = desk.make(desk.run(Book(seed=seed)), name=name, summary_info=desk.info())
        assert made.status_code == 201, made.text
    return desk


@pytest.mark.parametrize(
    ("date", "recovered", "notes"),
    [("2031-06-02", 80, 0), ("2050-06-02", 80, 0), ("2050-06-04", 0, 0), ("", None, 1)],
)
def test_days_of_independent_years_share_windows(
    desk: Desk, date: str, recovered: float | None, notes: int
) -> None:
    dated = f",Date\n1,2,100,{date}\n" if date else "\n1,2,100\n"
    for name, text in (("da", ",Date\n1,1,80,2031-06-01\n"), ("db", dated)):
        desk.send("DELETE", f"{SETS}/{name}")
        path, body = f"{SETS}/{name}?form=ylt&no_of_periods=1", f"Period,EventId,Loss{text}"
        assert desk.send("PUT", path, content=body).status_code == 201
    layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 100, "OccLimit": 500}
    clause = {"HoursClause": {"Hours": 72}} if date else {}
    programme = {"layers": [{**layer, **clause}]}
    sets = [{"id": "da"}, {"id": "db"}]
    answer = desk.ask(loss_sets=sets, report="recoveries", programme=programme)
    rows = [row["CededLoss"] for row in answer.json()["tables"]["recoveries"]]
    assert rows == [recovered] * bool(recovered)
    assert sum("db have no dates" in note for note in answer.json()["notes"]) == notes


def years(layers: Sequence[Layer] = LAYERS) -> dict[tuple[int, int], Year]:
    """What the programme makes of the book, by period and sample."""
    book, rows = Book(), defaultdict(list)
    for (period, day, event), sample in itertools.product(book.occurrences, range(SAMPLES + 1)):
        loss = sum(book.losses.get((event, summary, sample), 0.0) for summary in (1, 2, 4))
        if loss:
            row = Row(day, event, PERIL_OF.get(event, ""), "", 1.0, loss)
            rows[period, sample].append(row)
    return {cell: run_year(layers, of_cell) for cell, of_cell in rows.items()}


def table(desk: Desk, name: str, **body: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    answer = desk.ask(**{**ASKED, **body})
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["tables"][name]
    return rows


def recovered(desk: Desk, **body: Any) -> dict[tuple[int, int, int], float]:  # noqa: ANN401
    rows = table(desk, "recoveries", report="recoveries", **body)
    return {(row["Layer"], row["Period"], row["SampleId"]): row["CededLoss"] for row in rows}


def test_layers_and_windows_are_of_perils_as_the_oracle_says(desk: Desk) -> None:
    expected = {
        (layer, *cell): ceded
        for cell, year in years().items()
        for layer, ceded in year.ceded.items()
        if ceded > 0
    }
    assert {layer for layer, _, _ in expected} == {1, 2, 3}
    assert recovered(desk) == pytest.approx(expected)
    # Windows are of one peril, so that the third layer sees others.
    lists = {"WW1": "1-2,5,6,7", "EQ": "3-4"}
    other = {key: loss for key, loss in recovered(desk, perils=lists).items() if key[0] == 3}
    assert other != pytest.approx({key: x for key, x in expected.items() if key[0] == 3})


def test_parts_of_net_losses_add_up_to_what_perils_leave(desk: Desk) -> None:
    asked = {"return_periods": [20], "of": "net", "curves": "F"}
    parts = table(desk, "contributions", report="contributions", group_by=["Region"], **asked)
    whole = [year for (_, sample), year in years().items() if sample]
    largest = sorted((sum(year.net) for year in whole), reverse=True)[SAMPLES - 1]
    of_var = [row for row in parts if (row["EPType"], row["ReturnPeriod"]) == (3, 20)]
    assert {row["Region"] for row in of_var} == {"N", "S"}
    assert sum(row["Loss"] for row in of_var) == pytest.approx(largest)


def test_lists_of_perils_are_part_of_the_tag(desk: Desk) -> None:
    tags = {
        desk.ask(**{**ASKED, "perils": lists}).headers["etag"]
        for lists in (PERILS, {**PERILS, "WW1": "1"}, PERILS)
    }
    assert len(tags) == 2


@pytest.mark.parametrize(
    ("body", "detail", "hint"),
    [
        ({"perils": {"WW1": "1-3", "EQ": "3-4"}}, "event 3 is of the perils WW1 and EQ", "once"),
        ({"perils": {"WW2": "1-3", "EQ": "4"}}, "ReinsPeril has 'WW1'", "Did you mean WW2?"),
        ({"perils": {"WW1": "1-3", "EQ": "777"}}, "'EQ', of which no event happens", "leave"),
        ({"perils": {"WW1": "1-x", "EQ": "4"}}, "perils.WW1 is '1-x'", "List at most"),
        ({"perils": {"WW1": [], "EQ": "4"}}, "perils.WW1 is ''", "List at most"),
        ({"perils": {"WW1": 3, "EQ": "4"}}, "perils.WW1 must be a text", ""),
        ({"perils": {"W;1": "1", "EQ": "4"}}, "'W;1', but in ReinsPeril AA1", ""),
        ({"perils": {"AA1": "1"}}, "AA1 is any peril", ""),
        ({"perils": {}}, "no event has a peril", '{"perils": {"WW1": "1-500"}}'),
        ({"programme": None, "report": "averages"}, "perils need a programme", ""),
        ({"peril": {}}, "peril", "Did you mean perils?"),
        (
            {"loss_sets": [{"id": "a"}, {"id": "other"}]},
            "in two catalogues of the loss sets",
            "ids",
        ),
    ],
)
def test_perils_that_contradict_say_where(
    desk: Desk, body: dict[str, object], detail: str, hint: str
) -> None:
    answer = desk.ask(**{**ASKED, "report": "layers", **body})
    assert answer.status_code == 422, answer.text
    assert detail in answer.json()["detail"]
    assert hint in answer.json().get("hint", "")


def test_perils_beside_a_layer_that_names_any_of_them_change_nothing(desk: Desk) -> None:
    def priced(**body: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
        return table(desk, "layers", report="layers", **body)

    layer = {**CXL, "ReinsNumber": 1}
    named = {"programme": {"layers": [{**layer, "ReinsPeril": "AA1"}]}}
    assert priced(**named) == priced(programme={"layers": [layer]}, perils={})


def test_perils_that_tell_nothing_are_noted(desk: Desk) -> None:
    def notes(layer: dict[str, Any], **body: Any) -> list[str]:  # noqa: ANN401 - JSON
        programme = {"layers": [{**CXL, "ReinsNumber": 1, "AggLimit": 2000, **layer}]}
        asked = {"report": "layers", "perils": {"WW1": [1, 777], "EQ": "2, 3-500"}}
        answer = desk.ask(**asked, programme=programme, **body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["notes"])

    unheard = "Of perils no loss set has a loss of 777"
    unnamed = "No layer is of {} in perils: their events count as of no peril"
    lossless = "Of WW1 in ReinsPeril no loss counts: nothing is recovered of them"
    both = {"ReinsPeril": "WW1;EQ"}
    assert notes(both) == [unheard]
    assert notes({"ReinsPeril": "WW1"}) == [unnamed.format("EQ"), unheard]
    assert notes({"ReinsPeril": "AA1"}) == [unnamed.format("EQ, WW1"), unheard]
    clause = {"HoursClause": {"Hours": 72, "Start": "cedant"}}
    assert notes(clause) == [unheard]
    assert notes({**clause, "ReinsPeril": "EQ"})[0] == unnamed.format("WW1")
    assert notes(both, filter={"events": "3"})[0] == lossless
    assert lossless not in notes(both, filter={"events": "1"})


def test_perils_have_so_many_events(desk: Desk) -> None:
    half = perils.MAX_EVENTS // 2
    lists = {"WW1": f"1-{half}", "EQ": f"{half + 1}-{perils.MAX_EVENTS}"}
    layer = {**LAYERS[0]}
    asked = {"programme": {"layers": [layer]}, "report": "layers"}
    assert desk.ask(**asked, perils=lists).status_code == 200
    answer = desk.ask(**asked, perils={**lists, "FL": f"{perils.MAX_EVENTS + 1}"})
    assert answer.status_code == 422
    assert "perils has more than 1,000,000 events" in answer.json()["detail"]


def test_what_is_ceded_of_a_window_counts_as_one_in_the_largest_loss(desk: Desk) -> None:
    layers = [{**LAYERS[2], "HoursClause": {"Hours": 2400}}]
    asked = {"programme": {"layers": layers}}
    rows = table(desk, "plt", report="periods", of="ceded", **asked)
    found = {(row["Period"], row["SampleId"]): row["MaxLoss"] for row in rows}
    ceding = {cell: year for cell, year in years(layers).items() if sum(year.ceded.values())}
    expected = {cell: year.largest for cell, year in ceding.items()}
    assert found == pytest.approx(expected)
    apart = {cell: replace(year, joined={}).largest for cell, year in ceding.items()}
    assert any(apart[cell] < most * 0.99 for cell, most in expected.items())


def test_hours_of_no_whole_days_need_times_in_every_set_that_has_the_peril(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tables = {
        "days": b"Period,EventId,Loss,Date\n1,1,4,2001-02-27\n1,2,7,2001-02-28\n",
        "times": b"Period,EventId,Loss,Date\n1,11,4,2001-02-27 23:00\n1,12,7,2001-02-28 01:00\n",
    }
    for name, body in tables.items():
        made = desk.send(
            "PUT", f"{SETS}/{name}?form=ylt&no_of_periods=10&currency=EUR", content=body
        )
        assert made.status_code == 201, made.text

    def asked(hours: float, peril: str | None, *sets: str) -> httpx.Response:
        layer = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 5, "OccLimit": 10}
        layer |= {"HoursClause": {"Hours": hours}} | ({"ReinsPeril": peril} if peril else {})
        perils = {"perils": {"D": "1-2", "T": "11-12"}} if peril else {}
        asked = {"programme": {"layers": [layer]}, **perils, "report": "layers"}
        return desk.ask(**asked, loss_sets=[{"id": name} for name in sets])

    for sets in (("days",), ("days", "times")):
        for peril in (None, "D"):
            refused = asked(100, peril, *sets)
            assert refused.status_code == 422
            assert "the loss set days are days" in refused.json()["detail"]
            assert "Give a multiple of 24" in refused.json()["hint"]
    assert asked(100, "T", "days", "times").status_code == 200
    assert asked(96, None, "days", "times").status_code == 200
    # Both losses are one of 11, so that 6 of it are beyond the attachment.
    (layer,) = asked(24, None, "times").json()["tables"]["layers"]
    assert layer["ExpectedLoss"] == pytest.approx(0.6)
