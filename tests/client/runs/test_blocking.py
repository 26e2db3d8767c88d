"""Runs from creation to their reports, with either client."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, ProblemError, ProtocolError, Run, StateError

from ..conftest import Connect
from ..fakes.clock import FakeClock
from ..fakes.exchange import Fault
from ..fakes.faces import leftovers
from ..fakes.runs import RUN
from ..fakes.service import FakeService


def test_a_run_is_created_with_its_inputs(
    service: FakeService, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "occurrence.bin").write_bytes(b"when")
    inputs: dict[str, Any] = {"occurrence": tmp_path / "occurrence.bin", "periods": "abc"}
    run = client.runs.create(
        "gul", ["aal"], inputs=inputs, days=3, label="flood", partitions=2, return_periods=[5]
    )
    (digest,) = service.inputs
    assert run == Run(RUN, "uploading", None, service.run.json())
    assert service.run.spec == {
        "perspective": "gul",
        "reports": ["aal"],
        "inputs": {"occurrence": digest, "periods": "abc"},
        "options": {"partitions": 2, "return_periods": [5]},
        "days": 3,
        "label": "flood",
    }
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"partition": 2}, r"no option partition\. Did you mean partitions\?"),
        ({"occurrence": "abc"}, 'occurrence is an input of runs: give inputs={"occurrence": …}'),
        ({"inputs": {"occurence": "abc"}}, r"no input occurence\. Did you mean occurrence\?"),
        ({"return_periods": [250.7]}, "return_periods must be a whole number, .* not 250.7"),
        ({"summary_ids": [True]}, "summary_ids must be a whole number, .* not True"),
        ({"inputs": [tmp_path]}, 'inputs must be as {"occurrence": Path'),
        ({"inputs": {"occurrence": 5}}, "occurrence must be a Path or bytes, not 5"),
        ({"days": "3"}, "days must be a number, not '3'"),
        ({"curves": tmp_path}, "curves must be a text or a number, not "),
    ]
    for options, text in wrong:
        with pytest.raises(TypeError, match=text):
            client.runs.create("gul", ["aal"], **options)
    for reports in ("", [], ["aal", "aal"], ["", "aal"]):
        with pytest.raises(ValueError, match=r"report|asked for twice"):
            client.runs.create("gul", reports)
    unnamed: Any = [5]
    with pytest.raises(TypeError, match="a report is named by a text such as melt, not"):
        client.runs.create("gul", unnamed)
    nothing: Any = 5
    with pytest.raises(TypeError, match="occurrence must be a Path or bytes, not 5"):
        client.runs.put_input(run, "occurrence", nothing)
    with pytest.raises(TypeError, match="a run is given by its id, or as create returned it"):
        client.runs.status(nothing)
    with pytest.raises(TypeError, match=r"each part must be as Part\(1, source\), not 5"):
        client.runs.upload_all(run, [nothing])


@pytest.mark.filterwarnings("always::UserWarning")
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, []),
        ({"Thalweg-Selected-Rows": "2"}, []),
        ({"Thalweg-Selected-Rows": "0"}, ["no row is of the chosen summaries and events"]),
        ({"Thalweg-Longest-Return-Period": "5000"}, ["return periods up to 5,000 years"]),
        ({"Thalweg-Missing-Event-Ids": "7-9"}, ["no row has these of event_ids: 7-9"]),
        ({"Thalweg-Events-Only-In-Occurrence": "8000"}, ["8,000 events of the occurrences"]),
    ],
)
def test_rows_that_a_report_has_not_are_told(
    service: FakeService,
    client: Client,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
    told: dict[str, str],
    said: list[str],
) -> None:
    service.run.report, service.run.dtype, service.run.told = b"", [["EventId", "<i4"]], told
    warnings.simplefilter("always")  # asyncio calls both from one line
    client.runs.report(RUN, "melt", tmp_path / "melt.csv")
    client.runs.read(RUN, "melt")
    texts = [str(warning.message) for warning in recwarn]
    assert len(texts) == 2 * len(said)
    assert all(text in found for text, found in zip(said * 2, texts, strict=True))


def test_creations_have_keys_of_their_own(service: FakeService, client: Client) -> None:
    for _ in range(2):
        client.runs.create("gul", ["melt"])
    assert len(set(service.run.keys)) == 2


def test_pages_are_joined(service: FakeService, client: Client) -> None:
    for partition in (1, 2, 3):
        client.runs.upload(RUN, b"bytes", partition=partition)
    assert [s.partition for s in client.runs.streams(RUN)] == [1, 2, 3]
    assert all(s.complete and s.offset == 5 for s in client.runs.streams(RUN))
    assert [run.id for run in client.runs.list()] == [RUN, RUN]
    client.runs.delete_stream(RUN, "s2")
    assert sorted(service.run.streams) == ["s1", "s3"]


@pytest.mark.parametrize("after", ["b", "a", 3])
def test_lists_that_would_never_end(service: FakeService, client: Client, after: object) -> None:
    for name, ask in (
        ("runs", lambda: list(client.runs.list())),
        ("streams", lambda: list(client.runs.streams(RUN))),
    ):
        service.pages = [{name: [], "after": "b"}, {name: [], "after": after}]
        with pytest.raises(ProtocolError, match=f"list of {name} does not go on after 'b'"):
            ask()


def test_sealing_waits_until_the_run_is_done(
    service: FakeService, client: Client, clock: FakeClock
) -> None:
    service.run.computing = 3
    assert client.runs.seal(RUN, wait=False).state == "computing"
    run = client.runs.create("gul", ["melt"])
    assert client.runs.seal(run).state == "done"
    assert clock.pauses == [0.2, 0.4, 0.8]
    assert client.runs.status(run).state == "done"


def test_a_failed_run_says_why(service: FakeService, client: Client) -> None:
    service.run.problem = {"code": "chunk-damaged", "detail": "stream 2", "status": 500}
    with pytest.raises(ProblemError, match="chunk-damaged") as caught:
        client.runs.seal(RUN)
    assert caught.value.status == 500


def test_further_reports_of_a_sealed_run(service: FakeService, client: Client) -> None:
    assert client.runs.add_reports(RUN, ["ept"], return_periods=[10]) == "v1"
    several: list[Any] = [(["ept"], [10]), ("ept", 10), (("ept",), "10"), ("ept", np.array([10]))]
    for reports, periods in several:
        client.runs.add_reports(RUN, reports, return_periods=periods, summary_ids=range(1, 3))
        options = {"return_periods": [10], "summary_ids": "1,2"}
        assert service.run.spec["more"] == {"reports": ["ept"], "inputs": {}, "options": options}
    with pytest.raises(
        TypeError, match="return_periods must be a whole number, or several, not 'x'"
    ):
        client.runs.add_reports(RUN, "ept", return_periods="x")


def test_a_cut_report_repeats_no_byte(service: FakeService, client: Client, tmp_path: Path) -> None:
    out = tmp_path / "aal.csv"
    service.script[:] = [Fault(cut=n) for n in (0, 50, 2000, 3000)]
    assert client.runs.report(RUN, "aal", out, set=2) == len(service.run.report)
    assert out.read_bytes() == service.run.report
    asked = [seen for seen in service.seen if "/reports/" in seen.path]
    assert asked[0].query == {"format": "csv", "set": "2"}
    starts = [seen.headers.get("range") for seen in asked]
    assert starts[:3] == [None] * 3
    assert all(text is not None for text in starts[3:])
    assert leftovers(tmp_path) == ["aal.csv"]


def test_an_answer_without_ranges_is_read_again(
    service: FakeService, client: Client, tmp_path: Path
) -> None:
    out = tmp_path / "aal.csv"
    service.script[:] = [Fault(cut=n) for n in (3000, 5000)]
    size = client.runs.report(RUN, "aal", out, summary_ids="1-3", variant="v1")
    assert (size, out.read_bytes()) == (len(service.run.report), service.run.report)
    assert service.seen[-1].query == {"format": "csv", "summary_ids": "1-3", "variant": "v1"}


def test_a_report_is_read_as_a_table(service: FakeService, client: Client) -> None:
    rows = np.zeros(500, [("SummaryId", "<i4"), ("MeanLoss", "<f4")])
    rows["SummaryId"] = np.arange(500)
    service.run.report, service.run.dtype = rows.tobytes(), rows.dtype.descr
    service.script[:] = [Fault(cut=3000)]
    table = client.runs.read(RUN, "aal", set=2, event_ids=7)
    assert (table.report, table.summary_set) == ("aal", 2)
    assert table.rows.dtype == rows.dtype
    assert table.rows.tolist() == rows.tolist()
    assert service.seen[-1].query == {"format": "bin", "set": "2", "event_ids": "7"}
    service.run.dtype = None
    with pytest.raises(ProtocolError, match="no dtype"):
        client.runs.read(RUN, "aal")


def test_another_process_completes_a_report(
    service: FakeService, connect: Connect, tmp_path: Path
) -> None:
    hasty, out, state = connect(service, retries=0), tmp_path / "aal.csv", tmp_path / "state"
    service.script[:] = [Fault(cut=3000)]
    with pytest.raises(Exception, match=r"cut|missing|closed"):
        hasty.runs.report(RUN, "aal", out, state=state)
    with pytest.raises(StateError, match="another report"):
        hasty.runs.report(RUN, "aal", out, state=state, set=2)
    hasty.runs.report(RUN, "aal", out, state=state)
    assert out.read_bytes() == service.run.report
    assert service.seen[-1].headers["range"].startswith("bytes=2")
    assert leftovers(tmp_path) == ["aal.csv"]


def test_a_report_that_is_computed_is_waited_for(
    service: FakeService, client: Client, tmp_path: Path, clock: FakeClock
) -> None:
    service.run.computing = 2
    client.runs.report(RUN, "aal", tmp_path / "aal.parquet")
    assert clock.pauses == [3.0, 3.0]
    assert service.seen[-1].query == {"format": "parquet"}


def test_a_report_that_is_not_ready_is_refused(
    service: FakeService, client: Client, tmp_path: Path
) -> None:
    service.script[:] = [Fault(status=409, problem={"code": "report-not-ready"})]
    with pytest.raises(ProblemError, match="report-not-ready"):
        client.runs.report(RUN, "aal", tmp_path / "aal.csv")
    assert leftovers(tmp_path) == []


def test_an_empty_id_is_refused_before_anything_is_asked(
    service: FakeService, client: Client
) -> None:
    with pytest.raises(ValueError, match="an id or name is empty"):
        client.runs.status("")
    assert not service.seen
