"""Questions about loss sets, over HTTP, against an oracle and against the reports of the run."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.http.identity import SINGLE_USER
from app.portfolio.answering import Answers
from tests import portfolio_oracle as oracle
from tests.app.portfolio.book import SAMPLES, Book, Desk

REGIONS = {1: 0, 2: 1, 4: 0}
"""N and S, in this order."""
CXL = {"ReinsNumber": 1, "ReinsName": "cat", "ReinsType": "CXL"}
TOWER = {"layers": [{**CXL, "OccAttachment": 200, "OccLimit": 500}]}
SCOPED = {"layers": [{**TOWER["layers"][0], "Scope": ["S"]}]}


def doubled() -> Book:
    """The book of the set ``a`` with twice its losses."""
    book = Book()
    book.losses = {key: 2 * loss for key, loss in book.losses.items()}
    return book


SURPLUS = {
    "programme": {"layers": [{"ReinsNumber": 1, "ReinsType": "SS", "RiskAttachment": 9}]},
    "group_by": ["SummaryId"],
}
GROUPED = ("averages", "curves", "periods", "contributions")
WIDEST = ("contributions", "uncertainty", "layers", "recoveries")
"""Reports whose amounts are always of eight bytes."""
PAIRED = [{"id": "a", "pairing_seed": 1}, {"id": "other", "pairing_seed": 2}]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("data"))
    desk.run_id, info = desk.run(Book()), desk.info()
    twin, other = desk.run(doubled()), desk.run(Book(seed=2))
    sets = [
        ("same", desk.run(Book()), "EUR"),
        ("a", desk.run_id, "EUR"),
        ("nothing", desk.run_id, None),
    ]
    sets += [("twin", twin, "USD"), ("other", other, "EUR")]

    for name, run, currency in sets:
        made = desk.make(run, name=name, currency=currency, summary_info=info)
        assert made.status_code == 201, made.text
    return desk


def rows_of(answer: httpx.Response, table: str) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["tables"][table]
    return rows


def means(rows: list[dict[str, Any]], kind: int = 2) -> dict[int, float]:
    return {row["SummaryId"]: row["MeanLoss"] for row in rows if row["SampleType"] == kind}


def expected_mean(*sets: oracle.Set, group: int = 0, periods: int = 20) -> float:
    sums = oracle.cells(oracle.by_occurrence(sets), math.fsum)
    return oracle.mean(sums, group, SAMPLES, [1 / periods] * periods)


@pytest.mark.parametrize("report", ["ept", "psept"])
def test_by_summary_curves_are_those_of_the_run_to_the_last_byte(desk: Desk, report: str) -> None:
    letters = "FfSsMm" if report == "ept" else "Ww"
    answer = desk.ask("csv", report="curves", curves=letters, group_by=["SummaryId"])
    own = desk.send("GET", f"/v1/runs/{desk.run_id}/reports/{report}?format=csv")
    assert answer.status_code == own.status_code == 200
    assert answer.content == own.content


def test_averages_of_groups_are_those_of_the_oracle_and_have_their_dimensions(
    desk: Desk,
) -> None:
    answer = desk.ask(report="averages", group_by=["Region"], float_width=8)
    rows = rows_of(answer, "aal")
    assert {(row["SummaryId"], row["Region"]) for row in rows} == {(1, "N"), (2, "S")}
    for group in (0, 1):
        expected = expected_mean(Book().whole(REGIONS), group=group)
        assert means(rows)[group + 1] == pytest.approx(expected, rel=1e-12)


def test_points_of_curves_are_order_statistics_of_the_oracle(desk: Desk) -> None:
    answer = desk.ask(report="curves", return_periods=[20, 10, 5], curves="Ff", float_width=8)
    points = {
        (row["EPType"], row["ReturnPeriod"]): row["Loss"]
        for row in rows_of(answer, "ept")
        if row["EPCalc"] == 2
    }
    for kind, together in ((1, max), (3, math.fsum)):
        cells = oracle.cells(oracle.by_occurrence([Book().whole()]), together)
        losses = sorted((x for (_, _, s), x in cells.items() if s), reverse=True)
        losses += [0.0] * (20 * SAMPLES - len(losses))
        for years in (20, 10, 5):
            assert points[kind, years] == pytest.approx(losses[20 * SAMPLES // years - 1])


@pytest.mark.parametrize(
    ("wanted", "events", "periods", "summaries"),
    [
        ({"dimensions": {"Region": ["S"]}}, range(100), range(100), {2}),
        ({"exclude": {"Region": ["S"]}}, range(100), range(100), {1, 4}),
        ({"events": "2-4,7"}, {2, 3, 4, 7}, range(100), {1, 2, 4}),
        ({"periods": [3, 9]}, range(100), range(3, 10), {1, 2, 4}),
        ({"months": [3, 5]}, range(100), range(100), {1, 2, 4}),
    ],
)
def test_filters_keep_what_they_name(
    desk: Desk,
    wanted: object,
    events: Container[int],
    periods: Container[int],
    summaries: Iterable[int],
) -> None:
    answer = desk.ask(report="averages", filter=wanted, float_width=8)
    book = Book()
    kept = [row for row in book.occurrences if row[0] in periods and row[2] in events]
    expected = expected_mean(oracle.Set(book.losses, kept, dict.fromkeys(summaries, 0)))
    assert means(rows_of(answer, "aal"))[1] == pytest.approx(expected)


def test_sets_of_one_catalogue_are_added_by_event_in_the_currency_of_the_answer(
    desk: Desk,
) -> None:
    parts = [{"id": "a"}, {"id": "twin", "weight": 0.5}]
    asked = {"loss_sets": parts, "report": "averages", "currency": "EUR", "float_width": 8}
    refused = desk.ask(**asked)
    assert (refused.status_code, refused.json()["option"]) == (422, "rates")
    answer = desk.ask(**asked, rates={"USD": 0.8})
    expected = expected_mean(Book().whole(), doubled().whole(factor=0.4))
    assert means(rows_of(answer, "aal"))[1] == pytest.approx(expected)
    without = desk.ask(loss_sets=parts, report="averages")
    assert "EUR and USD" in without.json()["detail"]


def test_sets_of_other_catalogues_are_added_by_period_in_a_seeded_pairing(
    desk: Desk,
) -> None:
    def asked(seed: int) -> dict[str, Any]:
        sets = [{"id": "a"}, {"id": "other", "pairing_seed": seed}]
        return {"loss_sets": sets, "report": "curves", "return_periods": [20], "float_width": 8}

    one, again, other = [desk.ask(**asked(seed)) for seed in (1, 1, 2)]
    assert one.content == again.content
    assert one.headers["etag"] != other.headers["etag"]
    answer = desk.ask(loss_sets=asked(1)["loss_sets"], report="averages", float_width=8)
    expected = expected_mean(Book().whole()) + expected_mean(Book(seed=2).whole())
    assert means(rows_of(answer, "aal"))[1] == pytest.approx(expected)
    of_periods = asked(1) | {"report": "periods", "return_periods": None}
    everything = rows_of(desk.ask(**of_periods), "plt")
    some = rows_of(desk.ask(**of_periods, filter={"periods": [3, 7]}), "plt")
    assert some == [row for row in everything if 3 <= row["Period"] <= 7] != []


def layered(losses: list[float]) -> float:
    return sum(min(max(loss - 200, 0), 500) for loss in losses)


def test_layers_recover_what_the_oracle_says_and_what_is_left_is_net(desk: Desk) -> None:
    asked = {"programme": TOWER, "float_width": 8}
    (samples, mean) = rows_of(desk.ask(report="layers", **asked), "layers")
    ceded = oracle.cells(oracle.by_occurrence([Book().whole()]), layered)
    weights = [1 / 20] * 20
    assert samples["ExpectedLoss"] == pytest.approx(oracle.mean(ceded, 0, SAMPLES, weights))
    expected = sum(x for (_, _, s), x in ceded.items() if s == 0) / 20
    assert (mean["SampleType"], mean["ExpectedLoss"]) == (1, pytest.approx(expected))
    attached = sum(x > 0 for (_, _, s), x in ceded.items() if s) / (20 * SAMPLES)
    assert samples["Attachment"] == pytest.approx(attached)
    assert samples["Name"] == "cat"
    found = {
        of: means(rows_of(desk.ask(report="averages", of=of, **asked), "aal"))[1]
        for of in ("gross", "net", "ceded")
    }
    assert found["gross"] == pytest.approx(found["net"] + found["ceded"])
    assert found["ceded"] == pytest.approx(samples["ExpectedLoss"])
    recovered = rows_of(desk.ask(report="recoveries", **asked), "recoveries")
    of_cells = {(0, r["Period"], r["SampleId"]): r["CededLoss"] for r in recovered}
    assert of_cells == pytest.approx({cell: x for cell, x in ceded.items() if x > 0})


def test_a_layer_may_cover_some_groups_and_net_losses_are_those_of_each(desk: Desk) -> None:
    asked = {"programme": SCOPED, "group_by": ["Region"], "float_width": 8, "report": "averages"}
    gross, net = [means(rows_of(desk.ask(**asked, of=of), "aal")) for of in ("gross", "net")]
    assert net[1] == pytest.approx(gross[1])
    ceded = oracle.cells(oracle.by_occurrence([Book().whole({2: 0})]), layered)
    expected = oracle.mean(ceded, 0, SAMPLES, [1 / 20] * 20)
    assert gross[2] - net[2] == pytest.approx(expected)
    alone = desk.ask(**asked, of="net", filter={"dimensions": {"Region": ["S"]}})
    assert means(rows_of(alone, "aal"))[1] == pytest.approx(net[2])


def periods_of(answer: httpx.Response) -> dict[tuple[int, int], tuple[float, float]]:
    """Sum and largest occurrence, by period and sample."""
    rows = rows_of(answer, "plt")
    assert {row["SummaryId"] for row in rows} <= {1}
    return {(row["Period"], row["SampleId"]): (row["Loss"], row["MaxLoss"]) for row in rows}


@pytest.mark.parametrize("of", ["net", "ceded"])
def test_the_whole_is_net_of_layers_that_cover_some_groups(desk: Desk, of: str) -> None:
    asked = {"programme": SCOPED, "programme_by": ["Region"], "float_width": 8, "of": of}
    found = periods_of(desk.ask(report="periods", **asked))
    wholes: dict[tuple[int, int], dict[int, float]] = {}
    for (group, period, sample, row), loss in oracle.by_occurrence([Book().whole(REGIONS)]).items():
        ceded = layered([loss]) if group == 1 else 0.0
        of_rows = wholes.setdefault((period, sample), {})
        of_rows[row] = of_rows.get(row, 0.0) + (ceded if of == "ceded" else loss - ceded)
    expected = {
        cell: (math.fsum(rows.values()), max(rows.values()))
        for cell, rows in wholes.items()
        if any(rows.values())
    }
    assert found.keys() == expected.keys()
    for cell, numbers in expected.items():
        assert found[cell] == pytest.approx(numbers)
    bands = rows_of(desk.ask(report="uncertainty", **asked | {"float_width": 8}), "bands")
    average = means(rows_of(desk.ask(report="averages", **asked), "aal"))[1]
    assert next(row["Loss"] for row in bands if row["EPType"] == 0) == pytest.approx(average)


@pytest.mark.parametrize("of", ["net", "ceded"])
def test_layers_that_cover_all_groups_are_those_of_the_whole(desk: Desk, of: str) -> None:
    clause = {"Hours": 72, "Start": "cedant"}
    layer = {**TOWER["layers"][0], "HoursClause": clause, "AggLimit": 800, "ReinsPremium": 9}
    everywhere = {"layers": [{**layer, "Scope": ["N", "S"]}]}
    asked = {"report": "periods", "of": of, "float_width": 8}
    whole = periods_of(desk.ask(**asked, programme={"layers": [layer]}))
    parts = periods_of(desk.ask(**asked, programme=everywhere, programme_by=["Region"]))
    assert whole.keys() == parts.keys()
    for cell, numbers in whole.items():
        assert parts[cell] == pytest.approx(numbers)
    priced = [
        rows_of(desk.ask(report="layers", programme=programme, **by), "layers")
        for programme, by in (
            ({"layers": [layer]}, {}),
            (everywhere, {"programme_by": ["Region"]}),
            (everywhere, {"group_by": ["Region"]}),
        )
    ]
    assert priced[1] == priced[2]
    for one, other in zip(*priced[:2], strict=True):
        assert one == pytest.approx(other)


def test_an_occurrence_is_ceded_as_one_where_an_hours_clause_joins_some_parts(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    days = ["1,1,2030-01-01,100,North", "1,2,2030-01-02,100,North", "1,2,2030-01-02,1000,South"]
    table = "\n".join(["Period,EventId,Date,Loss,Region", *days])
    path = "/v1/portfolios/loss-sets/mini?form=ylt&no_of_periods=10"
    made = desk.send("PUT", path, content=table.encode())
    assert made.status_code in {200, 201}, made.text
    half = {"ReinsNumber": 1, "ReinsType": "QS", "InuringPriority": 1, "CededPercent": 0.5}
    cover = {"ReinsNumber": 2, "ReinsType": "CXL", "InuringPriority": 2, "Scope": ["North"]}
    cover |= {"OccAttachment": 0, "OccLimit": 1000, "HoursClause": {"Hours": 72}}
    asked = {"loss_sets": [{"id": "mini"}], "programme": {"layers": [half, cover]}, "of": "ceded"}
    found = desk.ask(report="periods", programme_by=["Region"], float_width=8, **asked)
    # Event 2 cedes 600, which count with the 100 of event 1, in whose window it is.
    assert periods_of(found) == {(1, 1): (700.0, 700.0)}
    by_region = rows_of(desk.ask(report="periods", group_by=["Region"], **asked), "plt")
    assert {row["Region"]: row["MaxLoss"] for row in by_region} == {"North": 200, "South": 500}
    wrong = {**asked, "programme_by": ["Regio"], "report": "averages"}
    assert desk.ask(**wrong).json()["option"] == "programme_by"


def test_terms_of_risks_have_net_losses_of_the_whole(desk: Desk) -> None:
    cover = {"ReinsNumber": 1, "ReinsType": "PR", "RiskAttachment": 200, "RiskLimit": 500}
    asked = {"report": "averages", "of": "ceded", "programme": {"layers": [cover]}}
    whole = means(rows_of(desk.ask(**asked, programme_by=["SummaryId"], float_width=8), "aal"))
    risks = means(rows_of(desk.ask(**asked, group_by=["SummaryId"], float_width=8), "aal"))
    assert whole == {1: pytest.approx(sum(risks.values()))}


def test_an_answer_has_a_strong_tag_of_its_sets_and_question(desk: Desk) -> None:
    first = desk.ask(report="averages")
    tag = first.headers["etag"]
    assert tag.startswith('"')
    query = {"loss_sets": [{"id": "a"}], "report": "averages"}
    path = "/v1/portfolios/query?format=json"
    again = desk.send("POST", path, json=query, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    other = desk.send("POST", path, json=query, headers={"If-Match": '"other"'})
    assert (other.status_code, other.json()["code"]) == (412, "data-changed")
    tags = [
        (desk.ask(form, **body)).headers["etag"]
        for form, body in (
            ("csv", {"report": "averages"}),
            ("json", {"report": "averages", "group_by": ["Region"]}),
            ("json", {"report": "averages", "filter": {"events": "1"}}),
        )
    ]
    assert len({tag, *tags}) == 4


@pytest.mark.parametrize("form", ["csv", "json", "arrow"])
def test_an_answer_that_was_cut_goes_on_at_its_byte(desk: Desk, form: str) -> None:
    whole = desk.ask(form, report="periods")
    assert whole.headers["accept-ranges"] == "bytes"
    query, size = {"loss_sets": [{"id": "a"}], "report": "periods"}, len(whole.content)
    path, tag = f"/v1/portfolios/query?format={form}", whole.headers["etag"]

    def ask(of: str, tag: str) -> httpx.Response:
        headers = {"Range": of, "If-Range": tag}
        return desk.send("POST", path, json=query, headers=headers)

    for start in (1, size // 2, size - 1):
        rest = ask(f"bytes={start}-", tag)
        assert (rest.status_code, rest.content) == (206, whole.content[start:])
        assert rest.headers["content-range"] == f"bytes {start}-{size - 1}/{size}"
        assert rest.headers["etag"] == tag
    other = ask("bytes=1-", '"another"')
    assert (other.status_code, other.content) == (200, whole.content)
    assert ask(f"bytes={size}-", tag).status_code == 416


def test_tables_come_in_every_format_with_equal_rows(desk: Desk) -> None:
    asked = {"report": "averages", "group_by": ["Region"]}
    rows = rows_of(desk.ask(**asked), "aal")
    arrow = pa.ipc.open_stream(io.BytesIO((desk.ask("arrow", **asked)).content)).read_all()
    parquet = pq.read_table(io.BytesIO((desk.ask("parquet", **asked)).content))
    lines = (desk.ask("csv", **asked)).text.splitlines()
    assert arrow.equals(parquet.cast(arrow.schema))
    assert [row["Region"] for row in arrow.to_pylist()] == [row["Region"] for row in rows]
    assert lines[0].split(",") == list(rows[0])
    assert len(lines) == len(rows) + 1
    several = desk.ask("csv", report="summary")
    assert (several.status_code, several.json()["code"]) == (406, "not-acceptable")
    assert several.json()["hint"] == 'Name one: {"table": "aal"}, or ask for JSON'
    named = desk.ask("csv", report="summary", table="aal")
    assert named.content == desk.ask("csv", report="averages").content


def test_a_summary_without_return_periods_has_the_usual_ones(desk: Desk) -> None:
    points = rows_of(desk.ask(report="summary"), "ept")
    assert {row["ReturnPeriod"] for row in points} == {1, 2, 5, 10, 20}


def test_curves_are_drawn(desk: Desk) -> None:
    pytest.importorskip("matplotlib")
    answer = desk.ask("svg", report="curves")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert b"EUR" in answer.content
    assert b"curves: ground-up loss (GUL)</dc:title>" in answer.content
    for of, words in (("net", b"net of the programme"), ("ceded", b"ceded to the programme")):
        drawn = desk.ask("svg", report="curves", programme=TOWER, of=of).content
        assert b"curves: loss " + words + b" (GUL)</dc:title>" in drawn
    assert b"Summary 1" not in answer.content
    drawn = desk.ask("svg", report="curves", group_by=["Region", "TIV"]).content
    assert b"<!-- N / 1000 -->" in drawn or b">N / 1000<" in drawn
    assert (desk.ask("png", report="averages")).status_code == 406


@pytest.mark.parametrize(
    ("body", "word", "hint"),
    [
        ({"lossets": []}, "lossets is unknown", "Did you mean loss_sets?"),
        ({"filter": {"dimension": {}}}, "filter.dimension is unknown", "dimensions"),
        ({"loss_sets": [{"id": "a", "wieght": 2}]}, "wieght is unknown", "Did you mean weight?"),
        ({"loss_sets": [{"id": "a"}, {"id": "a"}]}, "names one twice", ""),
        ({"loss_sets": [{"id": "a"}, {"id": "nothing"}]}, "of the same run as a", "Name one"),
        ({"loss_sets": [{"id": "a"}, {"id": "same"}]}, "same is the same losses as a", "Name one"),
        ({"filter": {"events": "50-60"}}, "no event of filter.events '50-60'", "of 1 to 8"),
        ({"loss_sets": [{"id": "a", "weight": 0}]}, "weight must be above 0", ""),
        ({"group_by": ["Regio"]}, "no dimension 'Regio'", "Did you mean Region?"),
        ({"group_by": ["region"]}, "no dimension 'region'", "Did you mean Region?"),
        ({"group_by": ["SummaryId", "Region"]}, "stands alone", ""),
        ({"filter": {"dimensions": {"Region": ["E"]}}}, "no summary has Region 'E'", "N, S"),
        ({"filter": {"dimensions": {"Region": []}}}, "is empty", ""),
        ({"filter": {"events": "9-1"}}, "filter.events is '9-1'", ""),
        ({"filter": {"periods": [9, 1]}}, "ends before it begins", ""),
        ({"filter": {"periods": [9, 21]}}, "ends with 21, and there are 20 periods", "End with 20"),
        ({"programme": TOWER, "perils": {"EQ": "1"}}, "no layer has a ReinsPeril", "Leave perils"),
        (
            {"programme": {"layers": [{**TOWER["layers"][0], "ReinsPeril": "EQ"}]}},
            "layers[0].ReinsPeril has 'EQ', and no event has a peril",
            '{"perils": {"EQ": "1-500"}}',
        ),
        ({"return_periods": [21]}, "return period is 21 years", "20 years"),
        ({"return_periods": [61], "curves": "Ff"}, "there are 60 years", ""),
        ({"return_periods": [21.0]}, "return period is 21 years", "20 years"),
        ({"return_periods": [20.5]}, "return_periods[0] must be a whole number", ""),
        ({"filter": {"events": "-1"}}, "not a list of ids", "ids between 0 and"),
        ({"currency": "USD"}, "is in EUR, of which there is no rate", '"EUR"'),
        ({"currency": "USD", "rates": {"EUR": -1}}, "rates.EUR must be above 0, and is -1", ""),
        ({"currency": "EUR", "rates": {"GBP": 1.2}}, "no loss set is in GBP", "are in EUR"),
        ({"currency": "EUR", "rates": {"EUR": 0.9}}, "currency of the answer", "rate is 1"),
        ({"filter": {"months": [3, 13]}}, "filter.months[1] must be at most 12, and is 13", ""),
        ({"currency": "USD", "loss_sets": [{"id": "nothing"}]}, "currency of the loss set", ""),
        ({"rates": {"USD": 1}}, "rates need the currency", ""),
        ({"report": "layers"}, "report layers needs a programme", ""),
        ({"of": "net"}, '"of": "net" needs a programme', ""),
        ({"programme_by": ["Region"]}, "programme_by needs a programme", '{"layers": […]}'),
        (
            {"programme": SCOPED, "programme_by": ["Region"], "group_by": ["Region"]},
            "the answer is of the whole, and group_by has groups",
            "Leave one out",
        ),
        ({"programme": SCOPED, "programme_by": ["Rregion"]}, "no dimension 'Rregion'", "Region?"),
        ({"group_by": ["summaryid"]}, "no dimension 'summaryid'", "Did you mean SummaryId?"),
        (
            {
                "programme": {"layers": [{"ReinsNumber": 1, "ReinsType": "FAC", "RiskLimit": 9}]},
                "loss_sets": [{"id": "a"}, {"id": "other", "pairing_seed": 1}],
            },
            "terms of risks, which are the summaries of one loss set",
            "Ask about one",
        ),
        (
            {"programme": SCOPED, "programme_by": ["SummaryId"] * 2},
            "programme_by names one twice",
            "",
        ),
        ({"insured_value": "TIV"}, "insured values are for a programme", ""),
        ({"programme": {"layers": [{**CXL, "OccLimt": 1}]}}, "OccLimt is no field", "OccLimit"),
        ({"programme": {"layers": [{**CXL, "OccLimit": -1}]}}, "layers[0].OccLimit is -1", ""),
        ({"programme": TOWER, "insured_value": "TIV"}, "no layer is one", "Leave insured_value"),
        ({**SURPLUS, "insured_value": "Tiv"}, "a has no dimension 'Tiv'", "Did you mean TIV?"),
        ({**SURPLUS, "insured_value": "Region"}, "Region of summary 1 is 'N', and no number", ""),
        (SURPLUS, "layers[0] has terms of risks, which have no insured values", "insured_value"),
        ({"loss_sets": [{"id": "a", "pairing_seed": 0}]}, "and there is one", "Leave pairing_seed"),
        (
            {
                "loss_sets": [{"id": "a", "pairing_seed": 1}, {"id": "twin"}],
                "currency": "EUR",
                "rates": {"USD": 0.9},
            },
            "pairing_seed pairs years of several catalogues, and there is one",
            "Leave pairing_seed out",
        ),
        (
            {"programme": {"layers": [{**TOWER["layers"][0], "ReinsCurrency": "USD"}]}},
            "the programme is in USD, and losses are in EUR",
            '{"currency": "USD"}',
        ),
        ({"programme": SCOPED}, "Scope has 'S', and losses are", '["Region"]}; or give it as'),
        (
            {"programme": SCOPED, "report": "contributions", "of": "net"},
            "Scope has 'S'",
            '{"group_by": ["Region"]}',
        ),
        ({"filter": {"exclude": {"Region": ["E"]}}}, "no summary has Region 'E'", "N, S"),
        (
            {"filter": {"exclude": {"Region": ["N", "S"]}}},
            "no summary with a loss",
            "one of exclude",
        ),
        ({"filter": {"months": [4]}}, "no loss passes the filter", "Filter less"),
        ({"filter": {"events": "1-2", "periods": [20, 20]}}, "no loss passes the filter", ""),
        ({"table": "plt"}, "the answer has no table 'plt'", "It has aal, ept"),
        ({"loss_sets": []}, "loss_sets must be a list of at least 1", ""),
    ],
)
def test_a_question_that_contradicts_itself_or_its_sets_says_where(
    desk: Desk, body: dict[str, object], word: str, hint: str
) -> None:
    answer = desk.ask(**body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert word in problem["detail"]
    assert hint in problem.get("hint", "")


@pytest.mark.parametrize(
    ("report", "body", "option", "hint"),
    [
        *((name, {"programme": TOWER}, "of", "gross") for name in GROUPED),
        ("layers", {"programme": TOWER, "of": "gross"}, "of", "curves"),
        ("layers", {"programme": TOWER, "return_periods": [9]}, "return_periods", "uncertainty"),
        ("recoveries", {"programme": TOWER, "seed": 1}, "seed", "it is for uncertainty"),
        *((name, {"float_width": 4}, "float_width", "periods") for name in WIDEST),
        ("averages", {"curves": "F"}, "curves", "contributions"),
        ("periods", {"tvar": "weight"}, "tvar", "it is for curves, summary"),
        ("curves", {"tolerance": 0.1}, "tolerance", "uncertainty"),
        ("curves", {"confidence": 0.9}, "confidence", "uncertainty"),
        ("curves", {"band": 0.1}, "band", "contributions"),
        ("summary", {"leave_one_out": True}, "leave_one_out", "contributions"),
        ("uncertainty", {"programme": TOWER}, "of", "net"),
        ("contributions", {"curves": "FS"}, "curves", "F, f"),
        (
            "contributions",
            {"programme": SCOPED, "programme_by": ["Region"], "of": "net"},
            "programme_by",
            "it is for averages",
        ),
        ("averages", {"loss_sets": PAIRED}, "loss_sets", "once"),
    ],
)
def test_an_option_that_an_answer_would_ignore_is_refused(
    desk: Desk, report: str, body: dict[str, object], option: str, hint: str
) -> None:
    problem = desk.ask(report=report, **body).json()
    assert (problem["status"], problem["option"]) == (422, option)
    assert hint in problem["hint"]


def test_numbers_that_json_has_no_words_for_are_refused(desk: Desk) -> None:
    text = '{"loss_sets": [{"id": "a"}], "currency": "USD", "rates": {"EUR": 1e999}}'
    answer = desk.send("POST", "/v1/portfolios/query", content=text)
    assert answer.status_code in {400, 422}


def test_too_many_groups_name_the_setting(tmp_path_factory: pytest.TempPathFactory) -> None:
    desk = Desk(tmp_path_factory.mktemp("few"), max_groups=1)
    desk.make(desk.run(Book()), name="a", summary_info=desk.info())
    answer = desk.ask(report="averages", group_by=["Region"])
    problem = answer.json()
    assert (answer.status_code, problem["setting"]) == (413, "THALWEG_MAX_GROUPS")
    assert (problem["allowed"], problem["limit"]) == (1, "groups")


def test_layers_have_terms_of_risks_where_groups_are_risks(desk: Desk) -> None:
    layer = {"ReinsNumber": 1, "ReinsType": "PR", "RiskAttachment": 100, "RiskLimit": 300}
    asked = {"programme": {"layers": [layer]}, "report": "layers", "float_width": 8}
    for by in ([], ["Region"]):
        problem = desk.ask(**asked, group_by=by).json()
        fault = "layers[0] has terms of risks, and losses are not grouped by risk"
        assert problem["detail"] == fault
        assert '{"group_by": ["SummaryId"]}' in problem["hint"]
    answer = desk.ask(**asked, group_by=["SummaryId"])
    samples = rows_of(answer, "layers")[0]
    surplus = {"programme": {"layers": [{**layer, "ReinsType": "SS"}]}, "report": "layers"}
    problem = desk.ask(**surplus, group_by=["SummaryId"]).json()
    assert '"insured_value": …' in problem["hint"]
    expected = sum(
        min(max(loss - 100, 0), 300)
        for (period, _, event), (key, loss) in itertools.product(
            Book().occurrences, Book().losses.items()
        )
        if key[0] == event and key[2]
    )
    assert samples["ExpectedLoss"] == pytest.approx(expected / 20 / SAMPLES)


def test_insured_values_are_converted_with_the_losses_and_have_no_weight(desk: Desk) -> None:
    risks = b"Period,SampleId,SummaryId,Loss\n1,1,1,100\n2,1,2,100\n"
    info = desk.info("summary_id,TIV\n1,1000\n2,400\n")
    path = f"/v1/portfolios/loss-sets/usd?form=ylt&no_of_periods=2&currency=USD&summary_info={info}"
    assert desk.send("PUT", path, content=risks).status_code == 201
    layer = {"ReinsNumber": 1, "ReinsType": "SS", "RiskAttachment": 200, "RiskLimit": 600}
    asked = {"programme": {"layers": [layer]}, "report": "recoveries", "insured_value": "TIV"}
    asked |= {"group_by": ["SummaryId"], "currency": "EUR", "rates": {"USD": 0.5}}
    # Of 500 a layer of 200 to 800 has 300, of 200 nothing.
    for weight, recovered in ((1.0, 30.0), (2.0, 60.0)):
        answer = desk.ask(**asked, loss_sets=[{"id": "usd", "weight": weight}])
        assert [row["CededLoss"] for row in rows_of(answer, "recoveries")] == [recovered]


def test_what_was_prepared_is_given_up_when_memory_is_short(desk: Desk) -> None:
    ledger = desk.parts.ledger
    desk.ask(report="layers", programme=TOWER)
    held = ledger.purposes().get("portfolio", 0)
    assert held > 0
    while ledger._reclaim():
        pass
    assert ledger.purposes().get("portfolio", 0) == 0
    answer = desk.ask(report="layers", programme=TOWER)
    assert answer.status_code == 200


@pytest.mark.parametrize("of", ["gross", "net", "ceded"])
def test_contributions_of_groups_add_up_to_the_points_of_the_whole(desk: Desk, of: str) -> None:
    asked = {"return_periods": [20, 10], "float_width": 8, "of": of, "programme": TOWER}
    answer = desk.ask(report="contributions", group_by=["Region"], **asked)
    parts = rows_of(answer, "contributions")
    assert {row["Region"] for row in parts} == {"N", "S"}
    curve = rows_of(desk.ask(report="curves", curves="Ff", tvar="weight", **asked), "ept")
    points = {(r["EPType"], r["ReturnPeriod"]): r["Loss"] for r in curve if r["EPCalc"] == 2}
    for kind, years in itertools.product((1, 2, 3, 4), (20, 10)):
        own = [r for r in parts if (r["EPType"], r["ReturnPeriod"]) == (kind, years)]
        assert sum(r["Loss"] for r in own) == pytest.approx(points[kind, years])
        assert own[0]["Whole"] == pytest.approx(points[kind, years])
    assert {row["EPType"] for row in rows_of(answer, "keys")} == {1, 2, 3, 4}
    keys = desk.ask("csv", report="contributions", group_by=["Region"], table="keys", **asked)
    assert len(keys.text.splitlines()) == len(rows_of(answer, "keys")) + 1
    as_csv = desk.ask("csv", report="contributions", group_by=["Region"], **asked)
    assert as_csv.status_code == 200
    lines = list(csv.DictReader(as_csv.text.splitlines()))
    assert [line["Region"] for line in lines] == [row["Region"] for row in parts]
    assert [float(line["Loss"]) for line in lines] == pytest.approx([r["Loss"] for r in parts])


def test_bands_hold_the_estimates_and_have_a_seed(desk: Desk) -> None:
    def asked(seed: int) -> httpx.Response:
        return desk.ask(report="uncertainty", return_periods=[2], seed=seed, group_by=["Region"])

    bands = rows_of(asked(1), "bands")
    assert {row["Region"] for row in bands} == {"N", "S"}
    of_means = [row for row in bands if row["EPType"] == 0]
    assert all(row["Low"] < row["Loss"] < row["High"] for row in of_means)
    expected = expected_mean(Book().whole(REGIONS))
    assert of_means[0]["Loss"] == pytest.approx(expected)
    assert asked(1).content == asked(1).content
    assert bands != rows_of(asked(2), "bands")


@pytest.mark.parametrize("of", ["net", "ceded"])
def test_bands_of_what_a_programme_makes_are_of_its_losses(desk: Desk, of: str) -> None:
    asked = {"report": "uncertainty", "return_periods": [20, 2], "group_by": ["Region"]}
    half = {"layers": [{"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 0.5}]}
    gross = rows_of(desk.ask(**asked), "bands")
    shared = rows_of(desk.ask(**asked, programme=half, of=of), "bands")
    for name in ("Loss", "Low", "High", "SampleError"):
        halves = [row[name] / 2 for row in gross if row[name] is not None]
        found = [row[name] for row in shared if row[name] is not None]
        assert found == pytest.approx(halves, rel=1e-12)
    tower = rows_of(desk.ask(**asked, programme=TOWER, of=of), "bands")
    averages = {"report": "averages", "group_by": ["Region"], "float_width": 8}
    expected = means(rows_of(desk.ask(**averages, programme=TOWER, of=of), "aal"))
    of_means = {row["SummaryId"]: row["Loss"] for row in tower if row["EPType"] == 0}
    assert of_means == pytest.approx(expected)
    assert all(row["Low"] <= row["Loss"] <= row["High"] for row in tower if row["EPType"] == 0)


def notes_of(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    notes: list[str] = answer.json()["notes"]
    return notes


def test_points_beyond_what_periods_tell_are_noted(desk: Desk) -> None:
    for report in ("curves", "contributions"):
        found = notes_of(desk.ask(report=report, curves="Ff", return_periods=[60, 30, 20]))
        (note,) = [note for note in found if "beyond" in note]
        assert note.startswith("Return periods of more than 20 years (30, 60) are beyond")
        assert any("curves interpolate" in note for note in found) == (report == "contributions")
    assert notes_of(desk.ask(report="curves", curves="Ff", return_periods=[20])) == []


@pytest.mark.parametrize("report", ["contributions", "uncertainty"])
def test_points_of_all_samples_have_no_hint_at_curves(desk: Desk, report: str) -> None:
    refused = desk.ask(report=report, return_periods=[61]).json()
    assert "61 years, and there are 60 years of all samples" in refused["detail"]
    assert refused["hint"] == "Ask for 60 years at most"
    assert desk.ask(report=report, return_periods=[60]).status_code == 200


@pytest.mark.parametrize(("years", "is_further"), [(60, True), (61, False)])
def test_curves_that_do_not_reach_further_are_no_hint(
    desk: Desk, years: int, is_further: bool
) -> None:
    hint = desk.ask(report="curves", return_periods=[years]).json()["hint"]
    assert hint.startswith("Ask for 20 years at most")
    assert ("curves of F and f" in hint) == is_further


def test_means_over_all_periods_of_losses_of_some_are_noted(desk: Desk) -> None:
    answer = desk.ask(report="averages", filter={"periods": [3, 9]})
    assert notes_of(answer)[0].startswith("Losses of periods 3 to 9 count")


def test_labels_that_are_numbers_are_filtered_as_they_are_shown(desk: Desk) -> None:
    table = "Period,EventId,Loss,Zip\n1,1,1,10\n1,2,2,1e1\n1,3,4,9\n1,4,8,1.5\n"
    file = io.BytesIO()
    columns = {"Period": [1, 1], "EventId": [1, 2], "Loss": [16.0, 32.0], "Zip": [10.0, 9.0]}
    pq.write_table(pa.table(columns), file)
    for name, body in (("texts", table.encode()), ("floats", file.getvalue())):
        path = f"/v1/portfolios/loss-sets/{name}?form=ylt&no_of_periods=1"
        assert desk.send("PUT", path, content=body).status_code == 201
    asked: dict[str, Any] = {"report": "averages", "group_by": ["Zip"], "float_width": 8}

    def losses(sets: list[str], *zips: str | float) -> dict[Any, float]:
        which = {"filter": {"dimensions": {"Zip": zips}}} if zips else {}
        rows = rows_of(desk.ask(loss_sets=[{"id": i} for i in sets], **which, **asked), "aal")
        return {row["Zip"]: row["MeanLoss"] for row in rows if row["SampleType"] == 2}

    assert list(losses(["texts"]).items()) == [("1.5", 8), ("9", 4), ("10", 1), ("1e1", 2)]
    assert losses(["texts"], 10.0) == {"10": 1, "1e1": 2}
    assert losses(["texts"], "9", 1.5) == {9.0: 4, 1.5: 8}
    assert losses(["floats"]) == {10: 16, 9: 32}
    assert losses(["floats", "texts"], "10", 9.0) == {10: 17, 9: 36}
    answer = desk.ask(loss_sets=[{"id": "floats"}, {"id": "texts"}], **asked)
    assert "Zip has '10' and '1e1', which are groups apart" in notes_of(answer)


def test_all_reports_reach_the_return_periods_of_rare_periods(desk: Desk) -> None:
    weights = "period_no,weighting\n1,.9\n2,.05\n3,.04\n4,.009\n5,.001\n"
    digest = desk.parts.losses.inputs.put(SINGLE_USER, "periods", weights.encode(), 5).digest
    table = "Period,EventId,Loss\n" + "".join(f"{k},{k},{k}\n" for k in range(1, 6))
    path = f"/v1/portfolios/loss-sets/rare?form=ylt&no_of_periods=5&periods={digest}"
    assert desk.send("PUT", path, content=table.encode()).status_code == 201
    asked: dict[str, Any] = {"loss_sets": [{"id": "rare"}], "return_periods": [1000, 100]}

    def points(table: str, kind: str, loss: str, **more: Any) -> list[float]:  # noqa: ANN401 - JSON
        rows = rows_of(desk.ask(**asked, **more), table)
        return [row[loss] for row in rows if row[kind] == 1]

    of_curves = points("ept", "EPType", "Loss", report="curves", curves="f")
    of_bands = points("bands", "EPType", "Loss", report="uncertainty")
    of_parts = points("contributions", "EPType", "Loss", report="contributions", curves="f")
    assert of_curves == of_bands == of_parts == [5.0, 4.0]
    answer = desk.ask(**asked | {"report": "uncertainty", "return_periods": [1001]})
    assert answer.status_code == 422
    assert answer.json()["hint"] == "Ask for at most 1000 years"


def test_return_periods_that_weights_do_not_reach_are_noted(desk: Desk) -> None:
    weights = "period_no,weighting\n" + "".join(
        f"{p},{0.04 + 0.02 * (p % 2)}\n" for p in range(1, 21)
    )
    put = desk.parts.losses.inputs.put
    digest = put(SINGLE_USER, "periods", weights.encode(), 20).digest
    assert desk.make(desk.run(Book(), periods=digest), name="weighted").status_code == 201
    sets = [{"id": "weighted"}]
    answer = desk.ask(loss_sets=sets, report="curves", curves="S", return_periods=[500, 10])
    assert {row["ReturnPeriod"] for row in rows_of(answer, "ept")} == {10}
    assert [note.split(":")[0] for note in notes_of(answer)] == [
        "Return periods of more than 25 years (500) are beyond what the periods tell",
        "No curve has a point at the return periods 500",
    ]
    asked: dict[str, Any] = {"loss_sets": sets, "report": "curves", "curves": "F"}
    tables = [rows_of(desk.ask(**asked, **tvar), "ept") for tvar in ({}, {"tvar": "weight"})]
    assert tables[0] == tables[1] != rows_of(desk.ask(**asked, tvar="count"), "ept")


def test_defaults_and_odd_terms_of_a_programme_are_noted(desk: Desk) -> None:
    layer = {**TOWER["layers"][0], "OccAttachment": 2e-4}
    found = notes_of(desk.ask(report="layers", programme={"layers": [layer]}))
    assert len(found) == 2
    assert found[0].startswith("layers[0]: without Reinstatement")
    assert "below a millionth of the largest annual loss" in found[1]


def test_of_gross_asks_for_what_there_is_without_a_programme(desk: Desk) -> None:
    said = desk.ask(report="averages", of="gross")
    assert rows_of(said, "aal") == rows_of(desk.ask(report="averages"), "aal")


def test_parts_of_one_table_that_are_taken_for_other_catalogues_are_noted(desk: Desk) -> None:
    lines = [f"{k},{100 + k},2031-02-{10 + k % 18}," for k in range(1, 51)]
    tables = {
        "north": [f"{line}10" for line in lines],
        # One event has no loss here.
        "south": [f"{line}4" for line in lines[:-1]],
        "moved": [f"{51 - k},{100 + k},2031-02-{10 + k % 18},4" for k in range(1, 50)],
        "bare": [f"{k},{k},2031-03-01,4" for k in range(1, 51)],
        "bare-2": [f"{k},{k},2031-03-01,4" for k in range(1, 50)],
        "bare-3": [f"{k},{k},2031-03-01,4" for k in range(1, 48)],
    }
    for name, rows in tables.items():
        body = "\n".join(["Period,EventId,Date,Loss", *rows])
        path = f"/v1/portfolios/loss-sets/{name}?form=ylt&no_of_periods=50"
        assert desk.send("PUT", path, content=body.encode()).status_code == 201

    def is_noted(*names: str) -> bool:
        found = notes_of(desk.ask(loss_sets=[{"id": name} for name in names]))
        return any("parts of one catalogue" in note for note in found)

    assert is_noted("north", "south")
    assert not is_noted("north", "moved")
    # Events that are numbered by their periods are nearly all the same by no chance.
    assert is_noted("bare", "bare-2")
    assert not is_noted("bare", "bare-3")


def test_summaries_without_a_loss_may_be_named_and_are_noted(desk: Desk) -> None:
    info = desk.info("summary_id,Region\n1,N\n2,S\n3,W\n4,N\n")
    assert desk.make(desk.run_id, name="west", summary_info=info).status_code == 201
    layers = [{**SCOPED["layers"][0], "Scope": ["W"]}]
    asked: dict[str, Any] = {"loss_sets": [{"id": "west"}], "group_by": ["Region"]}
    answer = desk.ask(**asked, report="layers", programme={"layers": layers})
    assert {row["ExpectedLoss"] for row in rows_of(answer, "layers")} == {0.0}
    assert "Of W in Scope no loss counts: nothing is recovered of them" in notes_of(answer)
    layers[0]["Scope"] = ["W", "S"]
    asked |= {"report": "averages", "of": "net", "programme": {"layers": layers}}
    both = desk.ask(**asked)
    layers[0]["Scope"] = ["S"]
    assert rows_of(both, "aal") == rows_of(desk.ask(**asked), "aal")
    # What is filtered out is no mistake in a programme either.
    answer = desk.ask(**asked, filter={"exclude": {"Region": ["S", "W"]}})
    assert "Of S in Scope no loss counts: nothing is recovered of them" in notes_of(answer)
    answer = desk.ask(**asked, filter={"dimensions": {"Region": ["S", "W"]}})
    assert "Of filter.dimensions.Region no loss set has a loss of W" in notes_of(answer)
    assert {row["Region"] for row in rows_of(answer, "aal")} == {"S"}
    path = "/v1/portfolios/loss-sets/months?form=ylt&no_of_periods=2"
    table = "Period,EventId,Date,Loss,Region\n1,1,2031-03-01,5,N\n2,2,2031-04-01,7,S\n"
    assert desk.send("PUT", path, content=table.encode()).status_code == 201
    asked["loss_sets"] = [{"id": "months"}]
    for passing in ({"events": "1"}, {"months": [3]}, {"periods": [1, 1]}, {}):
        notes = notes_of(desk.ask(**asked, filter=passing))
        is_noted = "Of S in Scope no loss counts: nothing is recovered of them" in notes
        assert is_noted == bool(passing)
    asked["loss_sets"] = [{"id": "west"}]
    layers[0]["Scope"] = ["E"]
    refused = desk.ask(**asked).json()
    assert "Scope has 'E', which no part is" in refused["detail"]
    refused = desk.ask(**asked | {"filter": {"dimensions": {"Region": ["W"]}}}).json()
    assert refused["detail"] == "no summary with a loss passes the filter"


def test_events_of_a_filter_that_have_no_loss_are_noted(desk: Desk) -> None:
    answer = desk.ask(report="averages", filter={"events": "1-900, 2, 77"})
    assert "Of filter.events no loss set has a loss of 77" in notes_of(answer)
    assert not any("filter.events" in n for n in notes_of(desk.ask(filter={"events": "1-900"})))


def test_packed_records_of_groups_are_refused_before_they_are_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "answer", lambda *_: pytest.fail("it is computed"))
    refused = desk.ask("bin", report="averages", group_by=["Region"])
    assert refused.json()["detail"] == "packed records have no columns of text"


def test_an_event_may_have_the_number_0(desk: Desk) -> None:
    path = "/v1/portfolios/loss-sets/zero?form=ylt&no_of_periods=2"
    desk.send("PUT", path, content=b"Period,EventId,Loss\n1,0,5\n2,1,7\n")
    answer = desk.ask(
        loss_sets=[{"id": "zero"}], report="periods", filter={"events": "0"}, float_width=8
    )
    assert [row["Loss"] for row in rows_of(answer, "plt")] == [5.0]


def test_lists_of_keys_that_are_cut_are_noted(desk: Desk) -> None:
    table = "Period,EventId,Loss\n" + "".join(f"{k},{k},{k}\n" for k in range(1, 13))
    path = "/v1/portfolios/loss-sets/many?form=ylt&no_of_periods=12"
    desk.send("PUT", path, content=table.encode())

    def noted(years: int) -> list[str]:
        asked = {"report": "contributions", "return_periods": [years], "curves": "F"}
        notes = notes_of(desk.ask(loss_sets=[{"id": "many"}], **asked))
        return [note for note in notes if note.startswith("Table keys has the 10")]

    # A VaR is of one period, and all twelve, of an event each, are in the tail of the last one.
    assert noted(12) == []
    assert "2 of 4 such lists" in noted(1)[0]


def test_noise_of_samples_beyond_a_band_is_noted(desk: Desk) -> None:
    found = notes_of(desk.ask(report="uncertainty", return_periods=[2], confidence=0.01))
    assert any("narrower than the noise" in note for note in found)


def test_parts_of_scoped_layers_are_taken_from_the_groups_they_cover(desk: Desk) -> None:
    asked: dict[str, Any] = {"group_by": ["Region"], "programme": SCOPED, "return_periods": [1]}
    asked |= {"curves": "F", "report": "contributions", "leave_one_out": True}
    gross, net, ceded = [
        {
            row["Region"]: row
            for row in rows_of(desk.ask(**asked, of=of), "contributions")
            if row["EPType"] == 4
        }
        for of in ("gross", "net", "ceded")
    ]
    assert net["N"]["Loss"] == pytest.approx(gross["N"]["Loss"])
    assert ceded["N"]["Loss"] == 0
    assert net["S"]["Loss"] + ceded["S"]["Loss"] == pytest.approx(gross["S"]["Loss"])
    # In one year of one the parts are means, and so what is less without a group.
    for region in ("N", "S"):
        assert net[region]["LeaveOneOut"] == pytest.approx(net[region]["Loss"])


@pytest.mark.parametrize(
    ("declared", "report", "code"),
    [
        ("no_of_periods=1000000000", "uncertainty", "budget-exceeded"),
        ("no_of_periods=1000&samples=2147483647", "contributions", "budget-exceeded"),
        ("no_of_periods=1000000&samples=3000", "contributions", "option"),
    ],
)
def test_periods_and_samples_that_are_only_declared_fill_no_memory(
    desk: Desk, declared: str, report: str, code: str
) -> None:
    path = f"/v1/portfolios/loss-sets/vast?form=ylt&{declared}"
    table = b"Period,SampleId,Loss\n1,1,10\n2,1,5\n"
    assert desk.send("PUT", path, content=table).status_code in {200, 201}
    asked = {"loss_sets": [{"id": "vast"}], "report": report, "return_periods": [10]}
    refused = desk.ask(**asked)
    desk.send("DELETE", path.partition("?")[0])
    assert refused.json()["code"] == code, refused.text
    assert refused.status_code in {413, 422}


def test_key_periods_are_found_however_many_are_declared(desk: Desk) -> None:
    path = "/v1/portfolios/loss-sets/long?form=ylt&no_of_periods=1000000000"
    desk.send("PUT", path, content=b"Period,EventId,Loss\n7,1,10\n999999999,2,5\n")
    asked = {"loss_sets": [{"id": "long"}], "report": "contributions", "curves": "F"}
    answer = desk.ask(**asked, return_periods=[1000000000])
    keys = [(row["Catalogue"], row["Id"], row["Loss"]) for row in rows_of(answer, "keys")]
    assert (0, 7, 10.0) in keys


QUOTA = {"layers": [{"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 0.5}]}


@pytest.mark.parametrize(
    ("loss", "report", "of", "detail"),
    [
        *((9e307, report, None, "a sum of losses is") for report in ("layers", "recoveries")),
        *((9e307, "contributions", of, "a sum of losses is") for of in (None, "net", "ceded")),
        (9e307, "periods", "ceded", "a sum of losses is"),
        (1e200, "layers", None, "SDLoss of Layer 1"),
    ],
)
def test_amounts_beyond_float64_are_never_zero_nor_left_out(
    desk: Desk, loss: float, report: str, of: str | None, detail: str
) -> None:
    path = "/v1/portfolios/loss-sets/huge?form=ylt&no_of_periods=10"
    desk.send("PUT", path, content=f"Period,EventId,Loss\n1,1,{loss}\n1,2,{loss}\n".encode())
    asked: dict[str, Any] = {"loss_sets": [{"id": "huge"}], "report": report}
    if of is not None:
        asked["of"] = of
    if report == "contributions":
        asked["return_periods"] = [5]
    if report != "contributions" or of is not None:
        asked["programme"] = QUOTA
    refused = desk.ask(**asked).json()
    desk.send("DELETE", path.partition("?")[0])
    assert refused["detail"].startswith(detail)


def test_a_programme_that_does_not_fit_without_a_group_names_that(desk: Desk) -> None:
    path = "/v1/portfolios/loss-sets/two?form=ylt&no_of_periods=10"
    table = b"Period,EventId,Loss,G\n1,1,100,A\n1,1,60,B\n1,2,50,A\n"
    desk.send("PUT", path, content=table)
    layers = [
        {"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 0.25},
        {"ReinsNumber": 2, "ReinsType": "AXL", "AggAttachment": 100, "AggLimit": 50},
    ]
    asked: dict[str, Any] = {"loss_sets": [{"id": "two"}], "report": "contributions", "of": "net"}
    asked |= {"group_by": ["G"], "return_periods": [10], "programme": {"layers": layers}}
    assert desk.ask(**asked).status_code == 200
    refused = desk.ask(**asked, leave_one_out=True).json()
    desk.send("DELETE", path.partition("?")[0])
    assert "of all but the group B, the layers of priority" in refused["detail"]


@pytest.mark.parametrize(
    ("loss", "periods", "asked", "detail"),
    [
        # Of cells that are tied the sum is needed, too.
        (1e308, 10, {"report": "contributions", "return_periods": [5]}, "a sum of losses is"),
        (1e200, 2, {"report": "layers", "programme": QUOTA}, "SDLoss of Layer 1"),
    ],
)
def test_nor_are_sums_over_periods(
    desk: Desk, loss: float, periods: int, asked: dict[str, Any], detail: str
) -> None:
    path = f"/v1/portfolios/loss-sets/huge?form=ylt&no_of_periods={periods}"
    second = loss if periods > 2 else 3 * loss
    desk.send("PUT", path, content=f"Period,EventId,Loss\n1,1,{loss}\n2,2,{second}\n".encode())
    refused = desk.ask(loss_sets=[{"id": "huge"}], **asked).json()
    desk.send("DELETE", path.partition("?")[0])
    assert refused["detail"].startswith(detail)
