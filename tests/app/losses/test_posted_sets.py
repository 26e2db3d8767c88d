"""Reports of summary sets over HTTP: as offline, in one pass, in parts; and bad pairs."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.losses.tables import table_encoder
from core.arrays import Rows
from core.losses.analysis import Analysis
from core.losses.inputs import (
    Occurrence,
    ReturnPeriods,
    encode_occurrence,
    encode_return_periods,
    encode_summary_map,
    encode_summary_xref,
    parse_summary_info,
)
from core.losses.outputs import Sink
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.seen import SeenEvents
from core.losses.summaries import Reading, SetReports, SummarySets
from tests.app.harness import (
    Contract,
    Headers,
    Post,
    Service,
    ask,
    ask_in_duplex,
    is_problem,
    with_query,
)
from tests.app.losses.posts import PARTIAL, good, put_input
from tests.frames import read_frames
from tests.streams import Block, Stream, random_losses
from tests.summary_oracle import Sets

SAMPLES, PERIODS, EVENTS, ITEMS = 5, 8, 14, 6
QUANTILES = np.array([0.25, 0.9], np.float32)
ROWS = (
    *((item, item % 2 + 1, 1) for item in range(1, ITEMS + 1)),
    *((item, 7, 4) for item in range(1, ITEMS + 1)),
)
SETS = Sets(ROWS, {item: item % 3 for item in range(1, ITEMS + 1)})
INFO = b'summary_id,name,tiv\n1,odd,5.5\n2,"even, all",6\n'
NUMBERS = np.arange(3, EVENTS + 4, dtype=np.int32)
OCCURRENCE = Occurrence(PERIODS, NUMBERS, NUMBERS % PERIODS + 1, NUMBERS.astype(np.int64))
RETURNS = ReturnPeriods(np.array([8, 4, 2], np.int32))
GIVEN: dict[str, Any] = {
    "occurrence": OCCURRENCE,
    "return_periods": RETURNS,
    "quantiles": QUANTILES,
}
NEEDED: dict[str, tuple[str, ...]] = {
    "events": (),
    "selt": (),
    "melt": (),
    "qelt": ("quantiles",),
    "qplt": ("occurrence", "quantiles"),
    "ept": ("occurrence", "return_periods"),
    "psept": ("occurrence", "return_periods"),
}
Tables = dict[tuple[int, str], Rows]


def needs(report: str) -> tuple[str, ...]:
    return NEEDED.get(report, ("occurrence",))


def stream(kind: str = "loss", width: int = 4) -> bytes:
    rng = np.random.default_rng(11)
    sidx = (-5, -3, -1, *range(1, SAMPLES + 1))
    blocks = [
        Block(event, item, tuple(zip(sidx, random_losses(rng, len(sidx), "any"), strict=True)))
        for event in range(1, EVENTS + 1)
        for item in rng.permutation(np.arange(1, ITEMS + 1))[: rng.integers(1, 7)].tolist()
    ]
    return Stream(kind, SAMPLES, width, tuple(blocks)).encode()


def offline(
    reports: list[str], sets: SummarySets, data: bytes, width: int = 4, **inputs: object
) -> Tables:
    """What the engine computes from the items of one file, by set and report."""
    given: dict[str, Any] = {n: GIVEN[n] for name in reports for n in needs(name)} | inputs
    pieces: dict[tuple[int, str], list[Rows]] = {}

    def sink(set_id: int, report: str, rows: Rows) -> None:
        pieces.setdefault((set_id, report), []).append(rows.copy())

    def make(_set: int, name: str, sink: Sink, seen: SeenEvents, policy: Policy) -> Analysis:
        return Analysis(reports, sink, policy=policy, name=name, seen=seen, **given)

    reading = Reading(Policy(float_width=width))
    run = SetReports(["items"], sets, make, sink, reading)
    run.receive(0, data)
    run.close(0)
    return {
        (set_id, name): np.concatenate(
            pieces.get((set_id, name), [np.zeros(0, REPORTS[name].dtype(width))])
        )
        for set_id in sets.set_ids
        for name in reports
    }


def encoded(form: str, report: str, rows: Rows, width: int = 4, info: bytes | None = None) -> bytes:
    parsed = None if info is None else parse_summary_info(info)
    encoder = table_encoder(form, REPORTS[report], width, parsed)
    return b"".join((encoder.begin(), bytes(encoder.encode(rows)), encoder.end()))


@pytest.fixture(scope="module")
def digests(service: Service) -> dict[str, str]:
    assert SETS.map is not None
    files = {
        "occurrence": encode_occurrence(OCCURRENCE, "bin"),
        "return_periods": encode_return_periods(RETURNS, "csv"),
        "summary_xref": encode_summary_xref(SETS.xref, "bin"),
        "summary_map": encode_summary_map(SETS.map),
        "summary_info": INFO,
    }
    stored = {name: put_input(service, name, data).json()["digest"] for name, data in files.items()}
    return stored | {"quantiles": "0.25,0.9"}


def query_of(report: str, digests: Mapping[str, str], **more: object) -> str:
    names = ("summary_xref", *needs(report))
    return with_query(f"/v1/losses/{report}", {n: digests[n] for n in names} | more)


def post(service: Service, path: str, data: bytes, headers: Headers = ()) -> Any:  # noqa: ANN401 - an answer
    return ask(service, Post(path, [data], headers))


def tables_of(body: bytes) -> tuple[Tables, dict[str, Any]]:
    pieces: dict[tuple[int, str], list[Rows]] = {}
    end: dict[str, Any] = {}
    for frame in read_frames(body):
        if frame.kind == "DATA":
            key = frame.header["set"], frame.header["report"]
            pieces.setdefault(key, []).append(frame.rows)
        elif frame.kind == "END":
            end = frame.header
    return {key: np.concatenate(rows) for key, rows in pieces.items()}, end


# -- answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("report", REPORTS)
def test_a_posted_report_of_a_set_equals_the_one_offline(
    service: Service, contract: Contract, digests: dict[str, str], report: str
) -> None:
    chosen = SummarySets(SETS.xref, [1], SETS.map)
    for width in (4, 8):
        data = stream("gul", width)
        expected = offline([report], chosen, data, width)[1, report]
        assert len(expected)
        for form in ("csv", "bin"):
            more = {"summary_map": digests["summary_map"], "sets": 1}
            path = query_of(report, digests, format=form, float_width=width, **more)
            answer = contract.check("POST", path, post(service, path, data))
            assert answer.status == 200, answer.body
            assert answer.body == encoded(form, report, expected, width)


def test_all_reports_of_all_sets_come_from_one_pass(
    service: Service, contract: Contract, digests: dict[str, str]
) -> None:
    names = list(REPORTS)
    given = {n: digests[n] for n in ("summary_xref", "summary_map", *GIVEN)}
    path = with_query("/v1/losses", {"reports": ",".join(names), **given})
    answer = contract.check("POST", path, post(service, path, stream()))
    assert answer.status == 200, answer.body
    tables, end = tables_of(answer.body)
    expected = offline(names, SummarySets(SETS.xref, None, SETS.map), stream())
    assert set(tables) == {key for key, rows in expected.items() if len(rows)}
    for key, rows in tables.items():
        assert rows.tobytes() == expected[key].tobytes(), key
    assert end["sets"] == [1, 4]
    assert (end["reason"], end["events"]) == ("complete", EVENTS)


def test_sets_come_in_the_order_asked_for(service: Service, digests: dict[str, str]) -> None:
    path = query_of("melt", digests, sets="4,1", format="frames")
    tables, end = tables_of(post(service, path, stream()).body)
    assert end["sets"] == [4, 1]
    expected = offline(["melt"], SummarySets(SETS.xref, [4, 1]), stream())
    assert {k: t.tobytes() for k, t in tables.items()} == {
        k: t.tobytes() for k, t in expected.items()
    }


def test_one_table_is_of_one_set(
    service: Service, contract: Contract, digests: dict[str, str]
) -> None:
    for more in ({}, {"format": "parquet"}, {"sets": "1,4"}):
        path = query_of("melt", digests, **more)
        answer = contract.check("POST", path, post(service, path, stream()))
        found = is_problem(answer, "option", 422, option="sets")
        assert "1, 4" in found["detail"]
        assert "sets=1" in found["hint"]


def test_summary_ids_choose_in_each_set(service: Service, digests: dict[str, str]) -> None:
    path = query_of("melt", digests, format="frames", summary_ids="2,7")
    tables, _ = tables_of(post(service, path, stream()).body)
    assert {key: set(rows["SummaryId"].tolist()) for key, rows in tables.items()} == {
        (1, "melt"): {2},
        (4, "melt"): {7},
    }
    event = int(tables[1, "melt"]["EventId"][-1])
    few, _ = tables_of(post(service, f"{path}&event_ids={event}", stream()).body)
    for key, rows in tables.items():
        expected = rows[rows["EventId"] == event]
        assert few.get(key, expected[:0]).tobytes() == expected.tobytes()
    none = post(service, query_of("melt", digests, format="frames", summary_ids="99"), stream())
    assert "none of summary_ids" in is_problem(none, "option", 422, option="summary_ids")["detail"]


@pytest.mark.parametrize("form", ["csv", "ndjson", "arrow", "parquet"])
def test_descriptions_are_joined_as_offline(
    service: Service, digests: dict[str, str], form: str
) -> None:
    rows = offline(["aal"], SummarySets(SETS.xref, [1]), stream())[1, "aal"]
    info = digests["summary_info"]
    path = query_of("aal", digests, sets=1, format=form, summary_info=info)
    body = post(service, path, stream()).body
    expected = encoded(form, "aal", rows, 4, INFO)
    if form == "ndjson":
        body = b"\n".join(line for line in body.splitlines() if b"SummaryId" in line) + b"\n"
    if form == "arrow":
        joined, whole = (pa.ipc.open_stream(data).read_all() for data in (body, expected))
        assert joined.equals(whole)
    elif form == "parquet":
        assert pq.read_table(io.BytesIO(body)).equals(pq.read_table(io.BytesIO(expected)))
    else:
        assert body == expected
        assert b"even" in expected


def test_a_stream_of_summaries_has_descriptions_too(
    service: Service, digests: dict[str, str]
) -> None:
    path = with_query("/v1/losses/selt", {"summary_info": digests["summary_info"]})
    body = post(service, path, good().encode()).body
    assert body.splitlines()[0].endswith(b",name,tiv")
    assert b'"even, all",6' in body


def test_a_picture_is_of_one_set(service: Service, digests: dict[str, str]) -> None:
    pytest.importorskip("matplotlib")
    answer = post(service, query_of("ept", digests, format="svg", sets=4), stream())
    assert answer.status == 200, answer.body
    assert b"<svg" in answer.body
    answer = post(service, query_of("ept", digests, format="svg"), stream())
    is_problem(answer, "option", option="sets")


# -- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("report", ["events", "selt", "melt", "qelt", "splt", "qplt"])
@pytest.mark.parametrize("cuts", [(9, 400, 401), (150, 700, 1500), (1000,), (4, 8, 12)])
def test_parts_join_to_the_table_of_the_whole(
    service: Service, digests: dict[str, str], report: str, cuts: tuple[int, ...]
) -> None:
    data, body, begin = stream(), b"", 0
    more: dict[str, object] = {}
    for stop in (*cuts, len(data)):
        headers = [PARTIAL] if stop < len(data) else []
        path = query_of(report, digests, sets=1, **more)
        answer = post(service, path, data[begin:stop], headers)
        assert answer.status == 200, answer.body
        body += answer.body
        token = answer.getheader("Thalweg-Token")
        if token is not None:
            assert len(token) <= 100
            more = {"after": token}
            begin = int(answer.getheader("Thalweg-Offset") or 0)
    expected = offline([report], SummarySets(SETS.xref, [1]), data)[1, report]
    assert body == encoded("csv", report, expected)


def test_parts_in_frames_have_the_rows_of_all_sets(
    service: Service, digests: dict[str, str]
) -> None:
    data, begin = stream(), 0
    found: dict[tuple[int, str], bytes] = {}
    names = ["events", "melt"]
    query = {"reports": ",".join(names), "summary_xref": digests["summary_xref"]}
    for stop in (600, len(data)):
        headers = [PARTIAL] if stop < len(data) else []
        answer = post(service, with_query("/v1/losses", query), data[begin:stop], headers)
        tables, end = tables_of(answer.body)
        for key, rows in tables.items():
            found[key] = found.get(key, b"") + rows.tobytes()
        query |= {"after": end["token"]}
        begin = end["offset"] or 0
    expected = offline(names, SummarySets(SETS.xref), data)
    assert found == {key: rows.tobytes() for key, rows in expected.items()}


def test_a_token_is_of_its_sets(service: Service, digests: dict[str, str]) -> None:
    data = stream()
    path = query_of("melt", digests, sets=1)
    token = post(service, path, data[:700], [PARTIAL]).getheader("Thalweg-Token")
    for more in ({"sets": 4}, {"sets": 1, "summary_map": digests["summary_map"]}):
        other = query_of("melt", digests, after=token, **more)
        is_problem(post(service, other, data), "token-foreign", 409)
    plain = with_query("/v1/losses/melt", {"after": token})
    is_problem(post(service, plain, data), "token-foreign", 409)


def test_a_part_that_repeats_other_bytes_is_noticed(
    service: Service, digests: dict[str, str]
) -> None:
    data = stream()
    path = query_of("melt", digests, sets=1)
    first = post(service, path, data[:700], [PARTIAL])
    begin = int(first.getheader("Thalweg-Offset") or 0)
    path = query_of("melt", digests, sets=1, after=first.getheader("Thalweg-Token"))
    is_problem(post(service, path, data[begin + 4 :]), "data-changed", 412)


def test_rows_of_sets_come_in_duplex_and_runs_at_the_end(
    service: Service, digests: dict[str, str]
) -> None:
    names = ("summary_xref", "occurrence")
    query = {n: digests[n] for n in names} | {"reports": "splt,aal", "duplex": "true"}
    data = stream()
    pieces = [data[at : at + 500] for at in range(0, len(data), 500)]
    body = ask_in_duplex(service, Post(with_query("/v1/losses", query), pieces, sized=False)).body
    expected = offline(["splt", "aal"], SummarySets(SETS.xref), data)
    tables, _ = tables_of(body)
    assert {k: t.tobytes() for k, t in tables.items()} == {
        k: t.tobytes() for k, t in expected.items()
    }


def test_a_token_within_a_duplex_answer_goes_on(service: Service, digests: dict[str, str]) -> None:
    data = stream()
    path = query_of("melt", digests, sets=4, duplex="true", format="frames")
    pieces = [data[at : at + 500] for at in range(0, len(data), 500)]
    frames = list(read_frames(ask_in_duplex(service, Post(path, pieces, sized=False)).body))
    marks = [i for i, f in enumerate(frames[:-1]) if f.header["token"] and not f.more]
    assert len(marks) > 1
    at = marks[len(marks) // 2]
    before = b"".join(f.rows.tobytes() for f in frames[: at + 1] if f.kind == "DATA")
    header = frames[at].header
    path = query_of("melt", digests, sets=4, format="bin", after=header["token"])
    rest = post(service, path, data[header["offset"] :]).body
    expected = offline(["melt"], SummarySets(SETS.xref, [4]), data)[4, "melt"]
    assert before + rest == expected.tobytes()


# -- bad pairs -----------------------------------------------------------------------------


def test_bad_pairs_of_options_are_named(
    service: Service, contract: Contract, digests: dict[str, str]
) -> None:
    xref, risks = digests["summary_xref"], digests["summary_map"]
    other = Sets(((1, 1, 1),), {1: 1, 2: 1})
    assert other.map is not None
    of_others = put_input(service, "summary_map", encode_summary_map(other.map)).json()["digest"]
    info = digests["summary_info"]
    cases: list[tuple[Mapping[str, object], str]] = [
        ({"sets": 1}, "sets"),
        ({"summary_map": risks}, "summary_map"),
        ({"summary_xref": "1"}, "summary_xref"),
        ({"summary_xref": xref, "summary_map": of_others}, "summary_map"),
        *(
            ({"summary_xref": xref, "sets": text}, "sets")
            for text in ("2", "1,2", "1,1", "0", "", "a", "1-4", "1,,4", "9" * 11)
        ),
        ({"summary_xref": xref, "sets": 1, "expect_summaries": 5}, "expect_summaries"),
        *(({"summary_info": info, "format": form}, "summary_info") for form in ("bin", "frames")),
    ]
    for query, option in cases:
        path = with_query("/v1/losses/melt", query)
        answer = contract.check("POST", path, post(service, path, stream()))
        is_problem(answer, "option", 422, option=option)
    path = with_query("/v1/losses/events", {"summary_info": info})
    is_problem(post(service, path, stream()), "option", option="summary_info")
    path = with_query("/v1/losses", {"reports": "melt", "summary_info": info})
    is_problem(post(service, path, stream()), "option", option="summary_info")


def test_an_xref_does_not_go_with_summaries_or_other_items(
    service: Service, digests: dict[str, str]
) -> None:
    path = query_of("melt", digests, sets=1)
    for kind in ("summary", "coverage"):
        body = stream(kind) if kind != "summary" else good().encode()
        found = is_problem(post(service, path, body), "option", 422, option="summary_xref")
        assert found["hint"]
    of_outputs = b"output,summary_id,summaryset_id\n" + b"".join(
        b"%d,1,1\n" % item for item in range(1, ITEMS + 1)
    )
    digest = put_input(service, "summary_xref", of_outputs).json()["digest"]
    path = with_query("/v1/losses/melt", {"summary_xref": digest})
    is_problem(post(service, path, stream("gul")), "option", 422, option="summary_xref")
    assert post(service, path, stream("loss")).status == 200
    one = put_input(service, "summary_xref", b"item_id,summary_id,summaryset_id\n1,1,1\n")
    path = with_query("/v1/losses/melt", {"summary_xref": one.json()["digest"]})
    found = is_problem(post(service, path, stream()), "item-unknown", 422)
    assert found["offset"] > 0


def test_a_column_that_a_report_has_too_is_refused(service: Service) -> None:
    info = b"summary_id,Loss\n1,5\n"
    digest = put_input(service, "summary_info", info).json()["digest"]
    path = with_query("/v1/losses/selt", {"summary_info": digest})
    assert "Loss" in is_problem(post(service, path, good().encode()), "input")["detail"]


def test_inputs_of_sets_that_are_not_there(service: Service, digests: dict[str, str]) -> None:
    for name in ("summary_xref", "summary_map", "summary_info"):
        query = {"summary_xref": digests["summary_xref"], "sets": 1} | {name: "0" * 32}
        answer = post(service, with_query("/v1/losses/melt", query), stream())
        assert f"/v1/inputs/{name}" in is_problem(answer, "input-gone", 410)["hint"]


def test_a_post_has_so_many_sets(service: Service) -> None:
    rows = b"item_id,summary_id,summaryset_id\n" + b"".join(b"1,1,%d\n" % i for i in range(1, 102))
    digest = put_input(service, "summary_xref", rows).json()["digest"]
    path = with_query("/v1/losses/melt", {"summary_xref": digest})
    found = is_problem(post(service, path, stream()), "option", option="sets")
    assert "101" in found["detail"]
    data = Stream("loss", 1, 4, (Block(1, 1, ((-3, 1.0), (-1, 1.0), (1, 2.0))),)).encode()
    some = ",".join(map(str, range(1, 101)))
    path = with_query("/v1/losses/melt", {"summary_xref": digest, "sets": some, "format": "frames"})
    tables, _ = tables_of(post(service, path, data).body)
    assert len(tables) == 100
