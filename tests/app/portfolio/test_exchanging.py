"""Tables that become loss sets, and loss sets that become tables, over HTTP."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.http.identity import SINGLE_USER
from tests.app.portfolio.book import SETS, Book, Desk, losses_of

YLT = b"Period,Loss,Region\n1,5.5,N\n1,2,S\n7,3,N\n"
TOWER = {"layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 1, "AggLimit": 500}]}
SELT = b"EventId,SummaryId,SampleId,Loss\n1,1,1,5\n"
ELT = b"EventId,rate,mean,sd_independent,sd_correlated,exposed_value\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def put(desk: Desk, query: str, body: bytes) -> httpx.Response:
    return desk.send("PUT", f"{SETS}/{query}", content=body)


def test_what_is_written_as_selt_is_read_back(desk: Desk) -> None:
    book = Book()
    assert (desk.make(desk.run(book), name="a")).status_code == 201
    selt = desk.send("GET", f"{SETS}/a/losses?form=selt")
    assert selt.headers["content-type"].startswith("text/csv")
    occurrence = (desk.send("GET", f"{SETS}/a/losses?form=occurrence&format=bin")).content
    digest = desk.parts.losses.inputs.put(SINGLE_USER, "occurrence", occurrence).digest
    answer = put(desk, f"b?form=selt&occurrence={digest}&samples=3", selt.content)
    assert answer.status_code == 201, answer.text
    # Of the eight events, the last never happens.
    happening = {key: loss for key, loss in book.losses.items() if key[0] < 8}
    assert losses_of(desk.open("b")) == happening
    assert desk.send("GET", f"{SETS}/a").json()["left_out"] == {"events that never happen": 1}
    averages = [
        (desk.ask("csv", loss_sets=[{"id": name}], report="averages", float_width=4)).text
        for name in ("a", "b")
    ]
    assert averages[0] == averages[1]


def test_the_stored_file_comes_by_range_and_with_its_tag(desk: Desk) -> None:
    desk.make(desk.run(Book()), name="a")
    path = f"{SETS}/a/losses?form=blocks&format=arrow"
    whole = desk.send("GET", path)
    assert pa.ipc.open_stream(io.BytesIO(whole.content)).read_all().num_rows > 0
    part = desk.send("GET", path, headers={"Range": "bytes=8-"})
    assert (part.status_code, part.content) == (206, whole.content[8:])
    for query in ("blocks&format=arrow", "selt&format=csv"):
        path_of = f"{SETS}/a/losses?form={query}"
        assert desk.send("HEAD", path_of, headers={"Range": "bytes=8-"}).status_code == 200
    tag = {"If-None-Match": whole.headers["etag"]}
    assert (desk.send("GET", path, headers=tag)).status_code == 304
    assert (desk.send("GET", path.replace("arrow", "csv"))).status_code == 406


@pytest.mark.parametrize("cut", ["wide", "printed", "whole"])
def test_the_same_losses_in_another_form_are_not_added(desk: Desk, cut: str) -> None:
    book = Book()
    book.losses = {key: float(np.float32(loss / 7)) for key, loss in book.losses.items()}
    desk.make(desk.run(book), name="a")
    coding = "csv" if cut == "printed" else "parquet"
    body = desk.send("GET", f"{SETS}/a/losses?form=splt&format={coding}").content
    if cut == "whole":
        rows = pq.read_table(io.BytesIO(body))
        keys = [name for name in rows.column_names if name not in {"SummaryId", "Loss"}]
        rows = rows.group_by(keys).aggregate([("Loss", "sum"), ("SummaryId", "min")])
        sink = io.BytesIO()
        pq.write_table(rows.rename_columns([*keys, "Loss", "SummaryId"]), sink)
        body = sink.getvalue()
    made = put(desk, "b?form=splt&no_of_periods=20&repeated=true&perspective=gul", body)
    assert made.json()["float_width"] == 8
    asked = {"loss_sets": [{"id": "a"}, {"id": "b"}], "report": "averages"}
    fault = (
        "loss set b has the same losses by event and sample as a, so that they would count twice"
    )
    for blend in ({}, {"a": 0.5, "b": 0.5}):
        assert fault in desk.ask(**asked, blend=blend).json()["detail"]
    # One loss of a thousandth part more.
    key = next(iter(book.losses))
    book.losses[key] += sum(book.losses.values()) / 1000
    desk.make(desk.run(book), name="c")
    assert desk.ask(loss_sets=[{"id": "a"}, {"id": "c"}], report="averages").status_code == 200


def test_other_losses_are_added_however_small_they_are(desk: Desk) -> None:
    book = Book()
    book.losses = {key: loss / 1e9 for key, loss in book.losses.items()}
    desk.make(desk.run(book), name="a")
    book.losses[next(iter(book.losses))] += sum(book.losses.values()) / 1000
    desk.make(desk.run(book), name="b")
    answer = desk.ask(loss_sets=[{"id": "a"}, {"id": "b"}], report="averages")
    assert answer.status_code == 200, answer.text


def test_other_weights_of_the_same_years_are_another_model(desk: Desk) -> None:
    for name, last in (("a", 0.5), ("b", 0.3)):
        weights = f"period_no,weighting\n1,{last}\n2,{1 - last}\n"
        digest = desk.parts.losses.inputs.put(SINGLE_USER, "periods", weights.encode(), 2).digest
        put(desk, f"{name}?form=ylt&no_of_periods=2&periods={digest}", b"Period,Loss\n1,5\n")
    sets = [{"id": "a"}, {"id": "b"}]
    shares = {"a": 0.5, "b": 0.5}
    assert desk.ask(loss_sets=sets, report="averages", blend=shares).status_code == 200


def test_losses_before_and_after_terms_are_not_added(desk: Desk) -> None:
    for name, perspective in (("one", "&perspective=gul"), ("two", "&perspective=il"), ("x", "")):
        body = f"Period,Loss\n1,{1 + len(perspective)}\n".encode()
        put(desk, f"{name}?form=ylt&no_of_periods=8{perspective}", body)
    asked = {"loss_sets": [{"id": "one"}, {"id": "two"}], "report": "averages"}
    for blend in ({}, {"one": 0.5, "two": 0.5}):
        problem = desk.ask(**asked, blend=blend).json()
        assert (problem["status"], problem["option"]) == (422, "loss_sets")
        assert "one has the perspective gul, and two il" in problem["detail"]
    answer = desk.ask(loss_sets=[{"id": "one"}, {"id": "x"}], report="averages").json()
    (note,) = [note for note in answer["notes"] if "perspective" in note]
    assert note.startswith("The perspective of x is not known, and others have gul")


def test_a_table_that_was_cut_goes_on_at_its_byte(desk: Desk) -> None:
    desk.make(desk.run(Book()), name="a")
    for form in ("splt&format=csv", "occurrence&format=bin"):
        path = f"{SETS}/a/losses?form={form}"
        whole = desk.send("GET", path)
        headers = {"Range": "bytes=99-", "If-Range": whole.headers["etag"]}
        rest = desk.send("GET", path, headers=headers)
        assert (rest.status_code, rest.content) == (206, whole.content[99:])
        head = desk.send("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_year_loss_table_has_its_columns_as_dimensions(desk: Desk, form: str) -> None:
    body = YLT
    if form == "parquet":
        sink = io.BytesIO()
        columns = {"Period": [1, 1, 7], "Loss": [5.5, 2.0, 3.0], "Region": ["N", "S", "N"]}
        pq.write_table(pa.table(columns), sink)
        body = sink.getvalue()
    answer = put(desk, "y?form=ylt&no_of_periods=10&currency=EUR", body)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["periods"], answer.json()["dimensions"]) == (10, ["Region"])
    asked = {"loss_sets": [{"id": "y"}], "report": "averages", "group_by": ["Region"]}
    rows = (desk.ask(**asked)).json()["tables"]["aal"]
    means = {row["Region"]: row["MeanLoss"] for row in rows if row["SampleType"] == 2}
    assert means == {"N": pytest.approx(0.85), "S": pytest.approx(0.2)}
    again = put(desk, "y?form=ylt&no_of_periods=10&currency=EUR", body)
    assert again.status_code == 200
    other = put(desk, "y?form=ylt&no_of_periods=11&currency=EUR", body)
    assert other.status_code == 409


def test_an_event_loss_table_is_simulated_by_its_seed(desk: Desk) -> None:
    body = ELT + b"1,0.5,100,20,10,1000\n2,0.1,500,50,50,2000\n"
    path = "form=elt&no_of_periods=50&samples=4"
    first = put(desk, f"one?{path}&seed=1", body)
    assert first.status_code == 201, first.text
    put(desk, f"two?{path}&seed=2", body)
    assert losses_of(desk.open("one")) != losses_of(desk.open("two"))


@pytest.mark.parametrize(
    ("query", "body", "word"),
    [
        ("x?form=ylt", YLT, "how many periods"),
        ("x?form=selt", SELT, "when they happen"),
        ("x?form=ylt&no_of_periods=9&seed=1", YLT, "form ylt does not use seed"),
        ("x?form=ylt&no_of_periods=9&seed=0", YLT, "form ylt does not use seed"),
        ("x?form=elt&no_of_periods=9&apart=false", ELT, "form elt does not use apart"),
        ("x?form=ylt&no_of_periods=9&frequency=negative-binomial", YLT, "does not use frequency"),
        ("x?form=ylt&no_of_periods=9&dispersion=2", YLT, "does not use dispersion"),
        ("x?form=ylt&no_of_periods=9&occurrence=1", YLT, "does not use occurrence"),
        ("x?form=elt&no_of_periods=9&repeated=true", ELT, "does not use repeated"),
        ("x?form=elt&no_of_periods=9&dispersion=2", ELT, "negative-binomial go together"),
        ("x?form=elt&no_of_periods=9&frequency=negative-binomial", ELT, "go together"),
        ("x?form=ylt&no_of_periods=9&samples=100", YLT, "1 sample, not 100"),
        ("x?form=ylt&no_of_periods=5", YLT, "7"),
        ("x?form=xlt&no_of_periods=9", YLT, "form"),
        ("x?form=ylt&no_of_periods=9", b"Period,Los\n1,2\n", "Los"),
        ("x?form=ylt&no_of_periods=9", b"Period,Loss\n1,nan\n", "not finite"),
        ("x?form=ylt&no_of_periods=9", b"", ""),
        ("x?form=elt&no_of_periods=9", ELT + b"1,0.5,100,400,10,200\n", "beta"),
        ("x?form=ylt&no_of_periods=9&periodes=1", YLT, "periodes"),
        (".x?form=ylt&no_of_periods=9", YLT, "name of a loss set"),
    ],
)
def test_a_table_that_is_none_says_why(desk: Desk, query: str, body: bytes, word: str) -> None:
    answer = put(desk, query, body)
    assert answer.status_code == 422, answer.text
    assert word in answer.json()["detail"]
    assert (desk.send("GET", f"{SETS}/x")).status_code == 404


def test_a_summary_info_beside_dimensions_is_refused(desk: Desk) -> None:
    query = f"x?form=ylt&no_of_periods=9&summary_info={desk.info()}"
    answer = put(desk, query, YLT)
    assert (answer.status_code, answer.json()["option"]) == (422, "summary_info")
    assert put(desk, query, b"Period,Loss\n1,5\n").status_code == 201


def test_sets_of_other_numbers_of_samples_are_not_added(desk: Desk) -> None:
    put(desk, "y?form=ylt&no_of_periods=50", YLT)
    put(desk, "e?form=elt&no_of_periods=50&samples=4", ELT + b"1,0.5,100,20,10,1000\n")
    problem = desk.ask(loss_sets=[{"id": "y"}, {"id": "e"}], report="averages").json()
    assert "loss set y is 1, and that of e is 4" in problem["detail"]
    assert "samples=4" in problem["hint"]
    assert '{"id": "y", "samples": "repeat"}' in problem["hint"]


@pytest.mark.parametrize("own", [1, 4])
def test_losses_of_one_sample_count_in_every_sample_if_that_is_asked_for(
    desk: Desk, own: int
) -> None:
    put(desk, "y?form=ylt&no_of_periods=50", YLT)
    elt = ELT + b"1,0.5,100,20,10,1000\n"
    put(desk, f"e?form=elt&no_of_periods=50&samples={own}", elt)
    parts: list[dict[str, object]] = [{"id": "e"}, {"id": "y", "samples": "repeat", "weight": 2}]
    answer = desk.ask(loss_sets=parts, report="averages")
    if own == 1:
        # There is nothing to repeat.
        assert "none is to be repeated" in answer.json()["detail"]
        return
    paired, weights, *_ = answer.json()["notes"]
    assert "years of e and y" in paired
    assert "blend makes a mixture" in weights
    alone = desk.ask(loss_sets=parts[:1], report="averages").json()
    rows = zip(rows_of(answer.json()), rows_of(alone), strict=True)
    means = {row["SampleType"]: row["MeanLoss"] - other["MeanLoss"] for row, other in rows}
    assert means == {kind: pytest.approx(2 * 10.5 / 50) for kind in (1, 2)}
    wrong = desk.ask(loss_sets=[{**parts[0], "samples": "repeat"}], report="averages")
    assert "has 4 samples" in wrong.json()["detail"]


def test_forms_of_one_sample_are_read_back(desk: Desk) -> None:
    desk.make(desk.run(Book()), name="a")
    whole = {key: x for key, x in Book().losses.items() if key[0] < 8 and key[2] == 2}
    for form in ("openquake", "climada"):
        table = desk.send("GET", f"{SETS}/a/losses?form={form}&sample=2&format=csv")
        assert table.status_code == 200, table.text
        twice = "&repeated=true" if form == "openquake" else ""
        answer = put(desk, f"{form}?form={form}&no_of_periods=20{twice}", table.content)
        assert answer.status_code == 201, answer.text
    assert losses_of(desk.open("openquake")) == {(*key[:2], 1): x for key, x in whole.items()}
    averages = [
        rows_of(desk.ask(loss_sets=[{"id": name}], report="averages").json())[-1]["MeanLoss"]
        for name in ("openquake", "climada")
    ]
    assert averages[0] == pytest.approx(averages[1], rel=1e-6)


def test_weights_tell_how_many_periods_there_are_and_are_not_left_out(desk: Desk) -> None:
    octets = b"period_no,weighting\n1,0.5\n2,0.3\n3,0.2\n"
    digest = desk.send("PUT", "/v1/inputs/periods", content=octets).json()["digest"]
    answer = put(
        desk, f"a?form=ylt&periods={digest}", b"Period,EventId,Loss\n1,1,5\n2,2,6\n2,3,7\n"
    )
    assert answer.json()["periods"] == 3, answer.text
    rows = rows_of(desk.ask(loss_sets=[{"id": "a"}], report="averages").json())
    assert rows[-1]["MeanLoss"] == pytest.approx(0.5 * 5 + 0.3 * 13)
    for form in ("openquake", "climada"):
        problem = desk.send("GET", f"{SETS}/a/losses?form={form}")
        assert problem.status_code == 422
        assert "periods of the loss set have weights" in problem.json()["detail"]
    assert "PeriodWeight" in desk.send("GET", f"{SETS}/a/losses?form=ylt").text


def test_an_event_loss_table_of_a_set_is_simulated_with_its_moments(desk: Desk) -> None:
    put(desk, "e?form=elt&no_of_periods=300000&samples=100", ELT + b"1,1e-4,100,20,10,1000\n")
    table = desk.send("GET", f"{SETS}/e/losses?form=elt")
    header, line = table.text.splitlines()
    assert header == "EventId,SummaryId,rate,mean,sd_independent,sd_correlated,exposed_value"
    row = dict(zip(header.split(","), map(float, line.split(",")), strict=True))
    happens = len(desk.open("e").calendar.occurrences.periods)
    assert row["rate"] == pytest.approx(happens / 300_000, rel=1e-12)
    assert row["mean"] == pytest.approx(100, rel=0.1)
    assert row["sd_independent"] == pytest.approx(30, rel=0.3)
    assert row["sd_correlated"] == 0
    again = put(desk, "f?form=elt&no_of_periods=300000&samples=100", table.content)
    assert again.status_code == 201, again.text


@pytest.mark.parametrize(
    ("query", "word", "hint"),
    [
        ("form=openquake", "one loss of an event, and the loss set 3", "sample=. Give one of 1 to"),
        ("form=climada&sample=4", "no sample 4", "1 to 3, or 0 for the numerical mean"),
        (f"form=climada&sample={2**64}", "must be below 2147483648", ""),
        ("form=splt&sample=1", "splt is of all samples", "openquake and climada"),
        ("form=blocks&format=arrow&sample=1", "blocks is of all samples", "Leave it out"),
    ],
)
def test_a_sample_that_a_table_cannot_have_is_refused(
    desk: Desk, query: str, word: str, hint: str
) -> None:
    desk.make(desk.run(Book()), name="a")
    answer = desk.send("GET", f"{SETS}/a/losses?{query}")
    problem = answer.json()
    assert (answer.status_code, problem["option"]) == (422, "sample")
    assert word in problem["detail"]
    assert hint in (problem.get("hint") or "")


@pytest.mark.parametrize(
    ("report", "more"),
    [
        ("summary", {}),
        ("periods", {}),
        *((name, {"programme": TOWER}) for name in ("layers", "recoveries")),
    ],
)
def test_means_that_a_set_lacks_are_left_out_of_a_sum(
    desk: Desk, report: str, more: dict[str, object]
) -> None:
    put(desk, "y?form=ylt&no_of_periods=50", YLT)
    put(desk, "e?form=elt&no_of_periods=50&samples=1", ELT + b"1,0.5,100,20,10,1000\n")
    whole = desk.ask(loss_sets=[{"id": "e"}], report=report, **more).json()
    assert any(map(of_means, rows_of(whole)))
    assert not any("no numerical means" in note for note in whole["notes"])
    for sets in (["e", "y"], ["y"]):
        # One set is paired with none.
        seed = {"pairing_seed": 1} if len(sets) > 1 else {}
        parts = [{"id": name, **seed} for name in sets]
        answer = desk.ask(loss_sets=parts, report=report, **more).json()
        assert rows_of(answer)
        assert not any(map(of_means, rows_of(answer)))
        note, *others = answer["notes"]
        assert sum("years of e and y" in each for each in others) == len(sets) - 1
        assert note.startswith("The loss set y has no numerical means")
    assert desk.send("GET", f"{SETS}/y").json()["means"] is False
    assert desk.send("GET", f"{SETS}/e").json()["means"] is True


@pytest.mark.parametrize("report", ["summary", "curves", "averages", "periods", "layers"])
def test_a_set_of_means_alone_is_answered_by_them(desk: Desk, report: str) -> None:
    put(desk, "m?form=ylt&no_of_periods=4", b"Period,SampleId,Loss\n1,-1,5\n2,-1,7\n")
    more = {"programme": TOWER} if report == "layers" else {}
    answer = desk.ask(loss_sets=[{"id": "m"}], report=report, **more).json()
    assert "numerical means only" in answer["notes"][0]
    assert all(map(of_means, rows_of(answer)))
    tables = answer["tables"]
    assert [row["MeanLoss"] for row in tables.get("aal", [])] in ([], [3.0])
    curve = {r["ReturnPeriod"]: r["Loss"] for r in tables.get("ept", []) if r["EPType"] == 3}
    assert curve in ({}, {4.0: 7.0, 2.0: 5.0}, {2.0: 5.0, 1.0: 0.0})


def test_what_a_set_of_means_alone_cannot_tell_is_refused(desk: Desk) -> None:
    put(desk, "m?form=ylt&no_of_periods=4", b"Period,SampleId,Loss\n1,-1,5\n2,-1,7\n")
    put(desk, "y?form=elt&no_of_periods=40&samples=3", ELT + b"1,0.5,100,20,10,1000\n")
    for report in ("contributions", "uncertainty"):
        problem = desk.ask(loss_sets=[{"id": "m"}], report=report).json()
        assert "is of samples, and there are numerical means only" in problem["detail"]
    parts = [{"id": "m", "samples": "repeat"}, {"id": "y"}]
    assert "m has 0 samples" in desk.ask(loss_sets=parts, report="averages").json()["detail"]


@pytest.mark.parametrize("form", ["json", "csv", "ndjson", "arrow", "parquet"])
def test_a_dimension_with_the_name_of_a_column_is_refused_in_every_format(
    desk: Desk, form: str
) -> None:
    put(desk, "y?form=ylt&no_of_periods=4", b"Period,Loss,MeanLoss\n1,5,a\n2,7,b\n")
    asked = {"loss_sets": [{"id": "y"}], "report": "averages", "group_by": ["MeanLoss"]}
    answer = desk.ask(form, **asked)
    assert answer.status_code == 400
    assert "AAL has a column 'MeanLoss' already" in answer.json()["detail"]


def rows_of(answer: dict[str, Any]) -> list[dict[str, float]]:
    return [row for rows in answer["tables"].values() for row in rows]


def of_means(row: dict[str, float]) -> bool:
    found = (row.get("SampleType") == 1, row.get("EPCalc") == 1, row.get("SampleId") == 0)
    return any(found)


def test_a_repeated_row_is_named_by_the_columns_of_its_table(desk: Desk) -> None:
    problem = put(desk, "x?form=ylt&no_of_periods=9", YLT + b"7,3,N\n").json()
    assert "line 5: the loss of Period 7, Region N is already in line 4" in problem["detail"]
    assert "repeated=true" in problem["hint"]
    twice = put(desk, "x?form=ylt&no_of_periods=9&repeated=true", YLT + b"7,3,N\n")
    assert twice.status_code == 201


def test_a_currency_other_than_that_of_the_table_is_refused(desk: Desk) -> None:
    body = b"Period,Loss,Currency\n1,5,EUR\n"
    problem = put(desk, "x?form=ylt&no_of_periods=9&currency=USD", body).json()
    assert (problem["option"], "are in EUR" in problem["detail"]) == ("currency", True)
    made = put(desk, "x?form=ylt&no_of_periods=9", body).json()
    assert (made["currency"], made["dimensions"], made["notes"]) == ("EUR", [], [])


def test_what_is_to_be_known_of_an_answer_is_a_header_of_a_table(desk: Desk) -> None:
    put(desk, "one?form=ylt&no_of_periods=10", b"Period,Loss,Region\n1,5,N\n2,5,n\n")
    put(desk, "two?form=ylt&no_of_periods=10", b"Period,Loss\n7,3\n")
    answers = [
        desk.ask("csv", loss_sets=[{"id": a}, {"id": b}], report="periods")
        for a, b in (("one", "two"), ("two", "one"))
    ]
    assert answers[0].content == answers[1].content
    notes = json.loads(answers[0].headers["thalweg-notes"])
    assert "paired at random by pairing_seed=0" in notes[2]
    assert notes[3] == "The loss set one: Region has 'N' and 'n', which are groups apart"


TWO = {
    "one": b"Period,EventId,Loss,LOB\n1,1,500,a\n1,1,100,b\n3,2,50,a\n",
    "two": b"Period,EventId,Loss,LOB\n2,1,900,a\n4,1,900,a\n5,2,30,b\n",
}


def _blended(desk: Desk, shares: Mapping[str, float], report: str, **more: object) -> Any:  # noqa: ANN401 - JSON
    sets = [{"id": name} for name in TWO]
    answer = desk.ask(loss_sets=sets, blend=shares, report=report, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["tables"]


def test_a_blend_is_a_mixture_of_years(desk: Desk) -> None:
    for name, periods in (("one", 4), ("two", 8)):
        assert put(desk, f"{name}?form=ylt&no_of_periods={periods}", TWO[name]).status_code == 201
    shares = {"one": 0.25, "two": 0.75}
    rows = _blended(desk, shares, "periods")["plt"]
    found = {row["Period"]: (row["PeriodWeight"], row["Loss"]) for row in rows}
    first, second = 0.25 / 4, 0.75 / 8
    expected = [
        (1, first, 600),
        (3, first, 50),
        (6, second, 900),
        (8, second, 900),
        (9, second, 30),
    ]
    for period, weight, loss in expected:
        assert found.pop(period) == (pytest.approx(weight, abs=1e-6), loss)
    assert not found
    # Chance of 900: 2 x 0.09375, so that 16/3 years are its return period; of 600 or more 0.25.
    points = _blended(desk, shares, "curves", curves="F")["ept"]
    losses = {
        round(1 / row["ReturnPeriod"], 4): row["Loss"] for row in points if row["EPType"] == 3
    }
    assert (losses[0.1875], losses[0.25]) == (900, 600)
    tail = [row for row in points if row["EPType"] == 4 and row["ReturnPeriod"] == 4]
    assert tail[0]["Loss"] == pytest.approx((900 * 0.1875 + 600 * 0.0625) / 0.25)
    tower = {"layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 400}]}
    tower["layers"][0]["OccLimit"] = 400
    (layer,) = _blended(desk, shares, "layers", programme=tower)["layers"]
    assert layer["ExpectedLoss"] == pytest.approx(first * 200 + 2 * second * 400)
    (mean,) = _blended(desk, shares, "averages")["aal"]
    assert mean["MeanLoss"] == pytest.approx(first * 650 + second * 1830)


def test_models_that_weigh_as_their_years_are_one_table(desk: Desk) -> None:
    lines = TWO["two"].decode().splitlines()[1:]
    moved = [(int(line[0]) + 4, int(line[2]) + 2, line[3:]) for line in lines]
    both = TWO["one"] + "".join(f"{p},{e}{rest}\n" for p, e, rest in moved).encode()
    for name, periods, body in (("one", 4, TWO["one"]), ("two", 8, TWO["two"]), ("all", 12, both)):
        put(desk, f"{name}?form=ylt&no_of_periods={periods}", body)
    for report in ("summary", "contributions", "curves"):
        asked: dict[str, object] = {"report": report, "group_by": ["LOB"]}
        # The mean of a tail by weight takes the part of a point that the return period does.
        asked |= {"tvar": "count"} if report != "contributions" else {"return_periods": [12, 6]}
        tables = _blended(desk, {"one": 1 / 3, "two": 2 / 3}, **asked)  # type: ignore[arg-type]
        alone = desk.ask(loss_sets=[{"id": "all"}], **asked).json()["tables"]
        tables.pop("keys", None), alone.pop("keys", None)
        assert tables == alone


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"blend": {"one": 0.5}}, "two has no share"),
        ({"blend": {"one": 0.5, "two": 0.3, "three": 0.2}}, "three has no loss set"),
        ({"blend": {"one": 0.5, "two": 0.4}}, "add up to 0.9, not to 1"),
        ({"blend": {"one": 0.5, "two": 0.5}, "report": "uncertainty"}, "other shares"),
        ({"loss_sets": [{"id": "one", "model": "A"}]}, "model A is of no blend"),
        (
            {"loss_sets": [{"id": n, "model": "A"} for n in TWO], "blend": {"A": 1}},
            "model A of the blend has loss sets of several catalogues",
        ),
    ],
)
def test_a_blend_that_is_none_says_why(desk: Desk, asked: dict[str, Any], word: str) -> None:
    for name, body in TWO.items():
        put(desk, f"{name}?form=ylt&no_of_periods=8", body)
    sets = [{"id": name} for name in TWO]
    answer = desk.ask(**{"loss_sets": sets, "report": "averages", **asked})
    assert answer.status_code == 422
    assert word in answer.json()["detail"]


def test_an_unknown_currency_is_not_a_riddle(desk: Desk) -> None:
    put(desk, "one?form=ylt&no_of_periods=8&currency=EUR", TWO["one"])
    put(desk, "two?form=ylt&no_of_periods=8", TWO["two"])
    problem = desk.ask(loss_sets=[{"id": n} for n in TWO], report="averages").json()
    assert "currency of the loss set two is not known" in problem["detail"]
    assert problem["hint"].startswith("Make it again with its currency")


def test_filters_that_other_losses_pass_each_are_noted(desk: Desk) -> None:
    put(desk, "one?form=ylt&no_of_periods=8", TWO["one"])
    kept = {"dimensions": {"LOB": ["b"]}, "events": "2"}
    answer = desk.ask(loss_sets=[{"id": "one"}], report="averages", filter=kept).json()
    assert answer["notes"][-1].startswith("All averages are 0")
