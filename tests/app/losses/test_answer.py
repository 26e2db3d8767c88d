"""Reports of periods and of whole runs over HTTP: as offline, and refused where they cannot be."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.datastructures import Headers

from app.errors import NotAcceptableError
from app.losses.options import _format
from app.losses.pictures.drawing import PICTURES
from app.losses.pictures.options import PictureOptions
from app.losses.schemas import LossQuery
from app.losses.selection import parse_ids
from app.losses.tables import table_encoder
from core.arrays import Rows
from core.losses.analysis import aggregate
from core.losses.inputs import (
    Occurrence,
    Periods,
    ReturnPeriods,
    encode_occurrence,
    encode_periods,
    encode_return_periods,
    parse_occurrence,
)
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.reports.report import RunOptions
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests import run_oracle
from tests.app.harness import (
    Answer,
    Contract,
    Post,
    Service,
    ask,
    ask_in_duplex,
    is_problem,
    with_query,
)
from tests.app.losses.pictures.tables import draw
from tests.app.losses.posts import INPUTS, PARTIAL, good, put_input
from tests.frames import read_frames

QUANTILES = np.array([0.25, 0.9], np.float32)
PERIODS = 20
PERIOD_REPORTS = ("splt", "mplt", "qplt")
RUN_REPORTS = tuple(name for name, report in REPORTS.items() if report.scope == "run")
NEEDED = {
    **dict.fromkeys(PERIOD_REPORTS, ("occurrence", "periods")),
    **dict.fromkeys(RUN_REPORTS, ("occurrence", "periods")),
    "qplt": ("occurrence", "periods", "quantiles"),
    "ept": ("occurrence", "periods", "return_periods"),
    "psept": ("occurrence", "periods", "return_periods"),
}
EVENTS = 12


def _occurrence() -> Occurrence:
    rng = np.random.default_rng(5)
    ids = np.repeat(np.arange(3, EVENTS + 3, dtype=np.int32), 2)
    numbers = rng.integers(1, PERIODS + 1, len(ids)).astype(np.int32)
    return Occurrence(PERIODS, ids, numbers, 730_000 + np.arange(len(ids), dtype=np.int64))


def _weights() -> Periods:
    weights = np.random.default_rng(6).random(PERIODS)
    return Periods(weights / weights.sum())


GIVEN: dict[str, Any] = {
    "occurrence": _occurrence(),
    "periods": _weights(),
    "return_periods": ReturnPeriods(np.array([50, 20, 5, 2], np.int32)),
    "quantiles": QUANTILES,
}


@pytest.fixture(scope="module")
def digests(service: Service) -> dict[str, str]:
    files = {
        "occurrence": encode_occurrence(GIVEN["occurrence"], "bin"),
        "periods": encode_periods(GIVEN["periods"], "bin"),
        "return_periods": encode_return_periods(GIVEN["return_periods"], "csv"),
    }
    stored = {name: put_input(service, name, data).json()["digest"] for name, data in files.items()}
    return stored | {"quantiles": "0.25,0.9"}


def stream(width: int) -> bytes:
    spec = SampleSpec(events=EVENTS, summaries=3, samples=7, float_width=width)
    return b"".join(generate_stream(spec))


def offline(report: str, width: int, **more: Any) -> Rows:  # noqa: ANN401 - inputs
    inputs = {name: GIVEN[name] for name in NEEDED[report]}
    return aggregate(stream(width), [report], policy=Policy(float_width=width), **inputs | more)[
        report
    ]


def query_of(report: str, digests: Mapping[str, str], **more: object) -> str:
    return with_query(
        f"/v1/losses/{report}", {name: digests[name] for name in NEEDED[report]} | more
    )


def encoded(form: str, report: str, width: int, rows: Rows) -> bytes:
    encoder = table_encoder(form, REPORTS[report], width)
    return b"".join((encoder.begin(), bytes(encoder.encode(rows)), encoder.end()))


def tables_of(body: bytes) -> Iterator[tuple[str, Rows]]:
    for frame in read_frames(body):
        if frame.kind == "DATA":
            yield frame.header["report"], frame.rows


# -- answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("report", [*PERIOD_REPORTS, *RUN_REPORTS])
def test_a_posted_report_equals_the_one_offline(
    service: Service, contract: Contract, digests: dict[str, str], report: str, width: int
) -> None:
    expected = offline(report, width)
    assert len(expected)
    for form in ("csv", "bin"):
        path = query_of(report, digests, format=form, float_width=width)
        answer = contract.check("POST", path, ask(service, Post(path, [stream(width)])))
        assert answer.status == 200, answer.body
        assert answer.body == encoded(form, report, width, expected)
        assert int(answer.getheader("Thalweg-Events-Without-Occurrence") or "") == 2


@pytest.mark.parametrize("report", [*PERIOD_REPORTS, *RUN_REPORTS])
def test_columnar_formats_have_the_same_rows(
    service: Service, digests: dict[str, str], report: str
) -> None:
    expected = offline(report, 4)
    body = ask(service, Post(query_of(report, digests, format="arrow"), [stream(4)])).body
    arrow = pa.ipc.open_stream(body).read_all()
    body = ask(service, Post(query_of(report, digests, format="parquet"), [stream(4)])).body
    for table in (arrow, pq.read_table(io.BytesIO(body))):
        assert table.column_names == list(expected.dtype.names or ())
        for name in table.column_names:
            np.testing.assert_array_equal(table[name].to_numpy(), expected[name])
    lines = ask(service, Post(query_of(report, digests, format="ndjson"), [stream(4)])).body
    rows = [line for line in lines.splitlines() if line.startswith(b'{"' + names_first(expected))]
    assert len(rows) == len(expected)


def names_first(rows: Rows) -> bytes:
    return (rows.dtype.names or ("",))[0].encode()


def test_all_reports_of_one_post_are_those_of_a_post_each(
    service: Service, digests: dict[str, str]
) -> None:
    names = [*PERIOD_REPORTS, "melt", *RUN_REPORTS]
    query = {"reports": ",".join(names), **digests}
    answer = ask(service, Post(with_query("/v1/losses", query), [stream(4)]))
    assert answer.status == 200, answer.body
    parts: dict[str, list[Rows]] = {name: [] for name in names}
    order = []
    for report, rows in tables_of(answer.body):
        parts[report].append(rows)
        order.append(report)
    for name in (*PERIOD_REPORTS, *RUN_REPORTS):
        assert np.concatenate(parts[name]).tobytes() == offline(name, 4).tobytes()
    # Reports of the whole run come after all others, without a token to continue from.
    of_runs = [report in RUN_REPORTS for report in order]
    assert of_runs == sorted(of_runs)
    frames = list(read_frames(answer.body))
    assert all(frame.header["token"] is None for frame in frames)
    end = frames[-1].header
    assert (end["reason"], end["events_without_occurrence"]) == ("complete", 2)
    assert set(end["dtypes"]) == set(names)


def test_losses_without_exposure_are_told_where_tables_lack_them(service: Service) -> None:
    first, second = (replace(block, event=9, exposure=0.0) for block in good().blocks[:2])
    data = (
        good().with_blocks([*good().blocks, first, replace(second, ident=first.ident + 1)]).encode()
    )
    for path, told in (("melt", "2"), ("qelt?quantiles=0.5", "2"), ("selt", None)):
        answer = ask(service, Post(f"/v1/losses/{path}", [data]))
        assert answer.getheader("Thalweg-Blocks-Without-Exposure") == told
    frames = list(read_frames(ask(service, Post("/v1/losses?reports=melt,selt", [data])).body))
    assert frames[-1].header["blocks_without_exposure"] == 2


def test_whole_runs_equal_the_oracle(service: Service, digests: dict[str, str]) -> None:
    occurrence, weights = GIVEN["occurrence"], GIVEN["periods"].weights
    returns = tuple(GIVEN["return_periods"].years.tolist())
    run = run_oracle.Run(7, PERIODS, weights, returns)
    pairs = zip(occurrence.event_ids.tolist(), occurrence.period_numbers.tolist(), strict=True)
    run.add(stream(4), 4, list(pairs))
    ept, psept = run_oracle.exceedance(run)
    for report, expected in (("ept", ept), ("psept", psept), ("aal", run_oracle.aal(run))):
        path = query_of(report, digests, format="bin")
        body = ask(service, Post(path, [stream(4)])).body
        rows = np.frombuffer(body, REPORTS[report].dtype(4))
        assert len(rows) == len(expected)
        for i, name in enumerate(rows.dtype.names or ()):
            np.testing.assert_allclose(rows[name], [row[i] for row in expected], rtol=1e-5)


def test_options_change_the_tables_as_they_do_offline(
    service: Service, digests: dict[str, str]
) -> None:
    for report, options in (
        ("alct", {"confidence": 0.5}),
        ("ept", {"curves": "Fm"}),
        ("ept", {"tvar": "weight"}),
        ("psept", {"tvar": "weight", "curves": "W"}),
    ):
        expected = offline(report, 4, options=RunOptions(**options))
        body = ask(service, Post(query_of(report, digests, **options), [stream(4)])).body
        assert body == encoded("csv", report, 4, expected)
        assert body != encoded("csv", report, 4, offline(report, 4))
    expected = offline("aal", 4)
    some = ask(service, Post(query_of("aal", digests, summary_ids="2"), [stream(4)])).body
    assert some == encoded("csv", "aal", 4, expected[expected["SummaryId"] == 2].copy())
    for ids, count in (("2", str(some.count(b"\n") - 1)), ("99", "0")):
        answer = ask(service, Post(query_of("aal", digests, summary_ids=ids), [stream(4)]))
        assert answer.getheader("Thalweg-Selected-Rows") == count


def test_return_periods_that_no_period_tells_are_told(
    service: Service, digests: dict[str, str]
) -> None:
    given = {"occurrence": digests["occurrence"]}
    for years, told in (("20,5", None), (f"{PERIODS + 1},5", str(PERIODS))):
        path = with_query("/v1/losses/ept", {**given, "return_periods": years})
        answer = ask(service, Post(path, [stream(4)]))
        assert answer.getheader("Thalweg-Longest-Return-Period") == told
    path = with_query("/v1/losses/ept", {**given, "return_periods": "21", "format": "ndjson"})
    *_, last = ask(service, Post(path, [stream(4)])).body.splitlines()
    assert json.loads(last)["end"]["longest_return_period"] == PERIODS


def test_options_are_checked_without_a_stream(service: Service, digests: dict[str, str]) -> None:
    several = with_query("/v1/losses", {"reports": "selt,events", "check": "true"})
    for path in (query_of("ept", digests, check="true"), several):
        for body in ([], [stream(4)], [b"no stream"]):
            answer = ask(service, Post(path, body))
            assert (answer.status, answer.body) == (204, b"")
    path = query_of("ept", digests, check="true", theme="blue")
    is_problem(ask(service, Post(path, [])), "option", option="theme")
    is_problem(ask(service, Post("/v1/losses/ept?check=true", [])), "report")


def test_a_list_of_return_periods_is_as_good_as_a_file(
    service: Service, digests: dict[str, str]
) -> None:
    path = query_of("ept", {**digests, "return_periods": "2,5,20,50"})
    assert ask(service, Post(path, [stream(4)])).body == encoded("csv", "ept", 4, offline("ept", 4))
    for text in ("0,5", "5,5", "5.5", "many"):
        path = query_of("ept", {**digests, "return_periods": text})
        is_problem(ask(service, Post(path, [stream(4)])), "option", option="return_periods")


def test_rows_of_periods_come_in_duplex_and_runs_at_the_end(
    service: Service, digests: dict[str, str]
) -> None:
    query = {name: digests[name] for name in ("occurrence", "periods")}
    path = with_query("/v1/losses", {"reports": "splt,aal", "duplex": "true", **query})
    data = stream(4)
    answer = ask_in_duplex(
        service, Post(path, [data[: len(data) // 2], data[len(data) // 2 :]], sized=False)
    )
    tables = list(tables_of(answer.body))
    assert tables[-1][0] == "aal"
    splt = np.concatenate([rows for report, rows in tables if report == "splt"])
    assert splt.tobytes() == offline("splt", 4).tobytes()


# -- parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("report", PERIOD_REPORTS)
def test_rows_of_periods_come_in_parts(
    service: Service, digests: dict[str, str], report: str
) -> None:
    data, body, absent, begin = stream(4), b"", 0, 0
    more: dict[str, object] = {}
    for stop in (len(data) // 3, 2 * len(data) // 3, len(data)):
        headers = [PARTIAL] if stop < len(data) else []
        path = query_of(report, digests, **more)
        answer = ask(service, Post(path, [data[begin:stop]], headers))
        assert answer.status == 200, answer.body
        body += answer.body
        absent += int(answer.getheader("Thalweg-Events-Without-Occurrence") or "")
        more = {"after": answer.getheader("Thalweg-Token")}
        begin = int(answer.getheader("Thalweg-Offset") or 0)
    assert body == encoded("csv", report, 4, offline(report, 4))
    assert absent == 2


@pytest.mark.parametrize("report", RUN_REPORTS)
def test_a_part_of_a_stream_has_no_report_of_a_run(
    service: Service, contract: Contract, digests: dict[str, str], report: str
) -> None:
    path = query_of(report, digests)
    answer = contract.check("POST", path, ask(service, Post(path, [stream(4)], [PARTIAL])))
    found = is_problem(answer, "report-needs-whole-stream", 422)
    assert report in found["detail"]
    assert "token" not in found
    token = ask(service, Post("/v1/losses/melt", [good().encode()], [PARTIAL])).getheader(
        "Thalweg-Token"
    )
    path = query_of(report, digests, after=token)
    is_problem(ask(service, Post(path, [b""])), "report-needs-whole-stream", 422)


def test_a_cut_stream_gives_no_number(service: Service, digests: dict[str, str]) -> None:
    for report in RUN_REPORTS:
        path = query_of(report, digests)
        is_problem(ask(service, Post(path, [stream(4)[:-3]])), "stream-truncated")
        for length in (len(stream(4)) + 1, 2**63):
            short = [("Upload-Length", str(length))]
            found = is_problem(ask(service, Post(path, [stream(4)], short)), "stream-incomplete")
            assert f" {length} were declared" in found["detail"]


# -- inputs --------------------------------------------------------------------------------


def test_a_missing_input_is_named_with_the_way_to_give_it(
    service: Service, digests: dict[str, str]
) -> None:
    for report in (*PERIOD_REPORTS, *RUN_REPORTS):
        found = is_problem(ask(service, Post(f"/v1/losses/{report}", [stream(4)])), "report")
        assert "needs occurrences" in found["detail"]
        assert "/v1/inputs/occurrence" in found["hint"]
    path = with_query("/v1/losses/qplt", {"occurrence": digests["occurrence"]})
    found = is_problem(ask(service, Post(path, [stream(4)])), "report")
    assert "/v1/inputs/quantiles" in found["hint"]
    path = with_query("/v1/losses/melt", {"return_periods": "5"})
    is_problem(ask(service, Post(path, [stream(4)])), "report")


def test_weights_of_another_model_are_refused(service: Service, digests: dict[str, str]) -> None:
    weights = encode_periods(Periods(np.full(PERIODS + 1, 1 / (PERIODS + 1))), "csv")
    digest = put_input(service, "periods", weights).json()["digest"]
    path = query_of("aal", {**digests, "periods": digest})
    assert "21 periods" in is_problem(ask(service, Post(path, [stream(4)])), "input")["detail"]


def test_event_rates_win_over_occurrences_and_the_answer_says_so(service: Service) -> None:
    names = ("event_rates.csv", "occurrence.bin")
    rates, occurrence = (
        put_input(service, name.split(".")[0], INPUTS[name]).json()["digest"] for name in names
    )
    data = good().encode()
    alone = ask(service, Post(f"/v1/losses/melt?event_rates={rates}", [data]))
    both = f"/v1/losses/melt?event_rates={rates}&occurrence={occurrence}"
    answer = ask(service, Post(both, [data]))
    assert answer.body == alone.body
    assert answer.getheader("Thalweg-Rates") == "event_rates"
    assert alone.getheader("Thalweg-Rates") is None
    end = list(read_frames(ask(service, Post(f"{both}&format=frames", [data])).body))[-1]
    assert end.header["rates"] == "event_rates"


def test_tokens_of_rates_from_occurrences_are_those_of_the_rates(service: Service) -> None:
    """As before there were reports of periods, so that streams go on over an upgrade."""
    occurrence = put_input(service, "occurrence", INPUTS["occurrence.bin"]).json()["digest"]
    path = f"/v1/losses/melt?occurrence={occurrence}"
    data = good().encode()
    first = ask(service, Post(path, [data[:200]], [PARTIAL]))
    token, offset = first.getheader("Thalweg-Token"), int(first.getheader("Thalweg-Offset") or "")
    rest = ask(service, Post(f"{path}&after={token}", [data[offset:]]))
    assert rest.status == 200
    assert first.body + rest.body == ask(service, Post(path, [data])).body


def test_a_gul_stream_has_no_report_of_a_run(service: Service, digests: dict[str, str]) -> None:
    answer = ask(service, Post(query_of("aal", digests), [good("gul").encode()]))
    assert "summary_xref" in is_problem(answer, "report")["hint"]


def test_a_stream_without_events_has_empty_tables(
    service: Service, digests: dict[str, str]
) -> None:
    header = stream(4)[:12]
    for report in RUN_REPORTS:
        answer = ask(service, Post(query_of(report, digests), [header]))
        assert answer.body == encoded("csv", report, 4, offline(report, 4)[:0])


SPEC = SampleSpec(events=20, summaries=13, samples=4)
STREAM = b"".join(generate_stream(SPEC))
OCCURRENCE = generate_inputs(SPEC)["occurrence.bin"]
FEW = {"summary_ids": "2,5"}


@pytest.fixture(scope="module")
def digest(service: Service) -> str:
    stored: str = put_input(service, "occurrence", OCCURRENCE).json()["digest"]
    return stored


def post(
    service: Service,
    report: str,
    options: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> Answer:
    path = with_query(f"/v1/losses/{report}", options)
    return ask(service, Post(path, [STREAM], tuple((headers or {}).items())))


@pytest.mark.parametrize("report", PICTURES)
def test_a_posted_picture_equals_that_of_the_tables(
    service: Service, contract: Contract, digest: str, report: str
) -> None:
    options = {"occurrence": digest, "theme": "dark", "perspective": "il", "currency": "EUR"}
    options |= {"plot_tvar": "true", **FEW, "format": "svg"}
    answer = contract.check("POST", f"/v1/losses/{report}", post(service, report, options))
    assert answer.media_type == "image/svg+xml"
    assert int(answer.getheader("Content-Length") or 0) == len(answer.body)
    assert answer.getheader("Thalweg-Events") == str(SPEC.events)
    tables = aggregate(STREAM, PICTURES[report], occurrence=parse_occurrence(OCCURRENCE))
    assert answer.body == draw(
        report,
        tables,
        PictureOptions(
            theme="dark",
            perspective="il",
            currency="EUR",
            tail_means=True,
            summary_ids=parse_ids(FEW["summary_ids"]),
            summary_set=1,
        ),
    )


def test_accept_asks_for_a_picture_and_svg_is_compressed(service: Service, digest: str) -> None:
    options = {"occurrence": digest, **FEW}
    png = post(service, "ept", options, {"Accept": "image/png"})
    assert png.media_type == "image/png"
    assert png.body.startswith(b"\x89PNG")
    accepted = {"Accept": "image/svg+xml, text/csv;q=0.1", "Accept-Encoding": "gzip"}
    svg = post(service, "ept", options, accepted)
    assert svg.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(svg.body) == post(service, "ept", options | {"format": "svg"}).body


@pytest.mark.parametrize("report", ["ept", "aal"])
def test_caches_treat_a_picture_as_the_table(service: Service, digest: str, report: str) -> None:
    """Answers to a post are not stored, so there is no tag to compare them by."""
    options = {"occurrence": digest, **FEW}
    table, svg, png = (
        post(service, report, options | {"format": form}) for form in ("csv", "svg", "png")
    )
    for name in ("Cache-Control", "Vary", "ETag", "Thalweg-Completeness", "Thalweg-Events"):
        assert svg.getheader(name) == png.getheader(name) == table.getheader(name)
    assert svg.getheader("Cache-Control") == "no-store"
    assert svg.getheader("ETag") is None
    assert int(svg.getheader("Content-Length") or 0) == len(svg.body)
    assert int(png.getheader("Content-Length") or 0) == len(png.body)


def test_pictures_that_cannot_be_drawn_are_problems(service: Service, digest: str) -> None:
    options = {"occurrence": digest, "format": "svg"}
    many = is_problem(post(service, "ept", options), "report")
    assert "up to 12 summaries" in many["detail"]
    assert "summary_ids" in many["hint"]
    none = is_problem(post(service, "aal", options | {"summary_ids": "99"}), "report")
    assert "no row of AAL" in none["detail"]
    is_problem(post(service, "ept", options | {"duplex": "true"}), "option", option="duplex")
    is_problem(post(service, "ept", options | {"theme": "blue"}), "option", option="theme")
    table = post(service, "ept", options | {"format": "csv", "theme": "dark"})
    assert "theme is of pictures" in is_problem(table, "option", 422, option="theme")["detail"]
    is_problem(post(service, "ept", options | {"currency": "$"}), "option", option="currency")
    part = post(service, "ept", options, {"Upload-Complete": "?0"})
    is_problem(part, "report-needs-whole-stream", 422)


def test_other_reports_have_no_picture(service: Service, digest: str) -> None:
    options = {"occurrence": digest}
    found = is_problem(post(service, "alct", options | {"format": "png"}), "not-acceptable", 406)
    assert found["detail"] == "there is no picture of ALCT"
    is_problem(post(service, "melt", options, {"Accept": "image/*"}), "not-acceptable", 406)
    path = with_query("/v1/losses", options | {"reports": "ept,aal", "format": "svg"})
    is_problem(ask(service, Post(path, [STREAM])), "not-acceptable", 406)


def test_a_server_without_the_library_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotAcceptableError, match="draws no pictures") as refused:
        _format(LossQuery.model_validate({"format": "svg"}), Headers(), ("ept",))
    assert "extra plot" in str(refused.value.hint)
    with pytest.raises(NotAcceptableError, match="none of the media types"):
        _format(LossQuery.model_validate({}), Headers({"Accept": "image/svg+xml"}), ("ept",))
    assert (
        _format(LossQuery.model_validate({}), Headers({"Accept": "image/png, */*"}), ("ept",))
        == "csv"
    )
