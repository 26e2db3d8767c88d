"""Reports of runs as clients ask for them: pictures, and what is said of rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from app.http.identity import SINGLE_USER
from app.losses.pictures.options import PictureOptions
from app.runs.describing import describe_run
from app.runs.records import RunRecord, StreamRecord
from app.runs.results.files import ReportFiles
from core.losses.events import StreamHeader
from core.losses.format import SOURCE_SUMMARY, Kind
from core.losses.reports import REPORTS
from tests.app.losses.pictures.tables import draw
from tests.app.runs.uploaded import Uploads
from tests.runs import random_run


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    running = Uploads(tmp_path_factory.mktemp("service"))
    yield running
    running.sealer.close()


def test_pictures_have_the_options_of_posts(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["ept"], inputs, no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"

    def get(query: str, **headers: str) -> httpx.Response:
        path = f"/v1/runs/{run.id}/reports/ept?{query}"
        return asyncio.run(service.get(path, headers=headers))

    answer = get("format=bin")
    dtype = np.dtype([tuple(field) for field in json.loads(answer.headers["Thalweg-Dtype"])])
    assert dtype == REPORTS["ept"].dtype(4)
    rows = np.frombuffer(answer.content, dtype)
    few = np.unique(rows["SummaryId"])[:1]
    options = PictureOptions(
        theme="dark", tail_means=True, currency="EUR", perspective="gul", summary_ids=few
    )
    query = f"format=svg&theme=dark&plot_tvar=true&currency=EUR&summary_ids={few[0]}"
    answer = get(query)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.content == draw("ept", {"ept": rows}, options)
    tag = answer.headers["etag"]
    assert get(query, **{"If-None-Match": tag}).status_code == 304
    plain = get("format=svg")
    assert plain.headers["etag"] != tag
    assert plain.content == draw("ept", {"ept": rows}, PictureOptions(perspective="gul"))
    # Pictures for one request are not stored.
    blobs = service.streams.blobs.list("report", run.id).blobs
    assert len([blob for blob in blobs if ".told." not in blob.id]) == 2
    assert get("format=svg&currency=euro").status_code == 422


def test_rows_that_a_report_has_not_are_told(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    given: dict[str, Any] = {
        "no_of_periods": case.periods,
        "return_periods": [case.periods + 1, 2],
    }
    all_rows = service.run(["ept", "melt"], inputs, **given)
    no_rows = service.run(["ept", "melt"], inputs, **given, summary_ids="2147483647")
    for run in (all_rows, no_rows):
        service.upload(run, case.stream.encode())
        assert service.seal(run).state == "done"

    def told(run: RunRecord, query: str) -> tuple[str | None, str | None, int]:
        path = f"/v1/runs/{run.id}/reports/{query}"
        answer = asyncio.run(service.get(path, headers={"Accept": "text/csv"}))
        assert answer.status_code == 200
        headers = answer.headers
        return (
            headers.get("Thalweg-Selected-Rows"),
            headers.get("Thalweg-Longest-Return-Period"),
            len(answer.text.splitlines()) - 1,
        )

    count, years = told(all_rows, "melt")[-1], str(case.periods)
    assert told(all_rows, "melt") == (None, None, count)
    assert told(all_rows, "melt?summary_ids=1-1000") == (str(count), None, count)
    assert told(all_rows, "melt?summary_ids=2147483647") == ("0", None, 0)
    assert told(all_rows, "melt?event_ids=2147483647") == ("0", None, 0)
    assert told(all_rows, "ept")[:2] == (None, years)
    assert told(no_rows, "melt") == ("0", None, 0)
    assert told(no_rows, "ept") == ("0", years, 0)
    # An input that is gone has nothing told of it.
    service.state.losses.inputs.delete(SINGLE_USER, "occurrence", inputs["occurrence"])
    assert told(no_rows, "ept") == ("0", None, 0)


def test_what_streams_and_occurrences_do_not_share_is_told_wherever_a_run_is_asked(
    service: Uploads,
) -> None:
    """Those of another model, or a partition that is missing: no table shows either."""
    case = random_run(np.random.default_rng(4))
    events = {event for event, _ in case.occurrences}
    present = {block.event for block in case.stream.blocks}
    absent, unused = len(present - events), len(events - present)
    assert absent
    assert unused
    told = {"events_without_occurrence": absent, "events_only_in_occurrence": unused}
    for reports in (["aal"], ["splt"], ["melt"]):
        inputs = {"occurrence": service.occurrence(case)}
        run = service.run(reports, inputs, no_of_periods=case.periods, summary_ids="1,90-99")
        service.upload(run, case.stream.encode())
        run = service.seal(run)
        assert run.state == "done"
        expected = {"missing_summary_ids": "90-99"} | (told if reports != ["melt"] else {})
        assert {n: run.results["own"]["told"].get(n) for n in expected} == expected
        notes = service.state.runs.describe(run)["notes"]
        assert len(notes) == len(run.results["own"]["told"])
        answer = asyncio.run(service.get(f"/v1/runs/{run.id}/reports/{reports[0]}"))
        assert answer.headers["Thalweg-Missing-Summary-Ids"] == "90-99"
        for name, number in run.results["own"]["told"].items():
            assert answer.headers[f"Thalweg-{name.replace('_', '-')}"] == str(number)
        path = f"/v1/runs/{run.id}/reports/{reports[0]}?summary_ids=1,7000-7001"
        answer = asyncio.run(service.get(path))
        assert answer.headers["Thalweg-Missing-Summary-Ids"] == "7000-7001"


def test_losses_that_tables_lack_for_want_of_exposure_are_told(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    blocks = [replace(block, exposure=0.0) for block in case.stream.blocks]
    count = sum(any(loss > 0 for sidx, loss in b.pairs if sidx >= -1) for b in blocks)
    run = service.run(["melt", "selt"])
    service.upload(run, case.stream.with_blocks(blocks).encode())
    (note,) = service.state.runs.describe(service.seal(run))["notes"]
    assert note.startswith(f"{count} blocks with losses have exposure 0")


def test_a_run_that_failed_for_its_options_is_sealed_again_with_others(
    service: Uploads,
) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["aal", "ept"], inputs, no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    hint = "Seal the run again with return_periods"
    problem = {"code": "too-large", "detail": "it needs 3.33 GiB", "hint": hint}
    service.runs.change(run, lambda run: replace(run, state="failed", problem=problem))

    def post(path: str, body: object) -> httpx.Response:
        return asyncio.run(service.post(f"/v1/runs/{run.id}/{path}", json=body))

    refused = post("reports", {"reports": ["ept"], "options": {"return_periods": [5]}})
    assert (refused.status_code, refused.json()["hint"]) == (409, hint)
    for options, at_fault in (
        ({"nan": "drop"}, "nan"),
        ({"curves": "W"}, "curves"),
        ({"bogus": 1}, "bogus"),
        ({"return_periods": [0]}, "return_periods"),
    ):
        answer = post("seal", {"options": options})
        assert answer.status_code == 422
        assert at_fault in answer.json()["detail"]
    wanted = {"options": {"return_periods": [5, 2]}}
    for _ in range(2):
        assert post("seal", wanted).status_code == 202
    service.sealer.look()
    described = service.state.runs.describe(service.now(run))
    assert (described["state"], described["options"]["return_periods"]) == ("done", [5, 2])
    assert post("seal", wanted).status_code == 200
    other = post("seal", {"options": {"return_periods": [9]}})
    assert other.json()["code"] == "run-sealed"
    rows = asyncio.run(service.get(f"/v1/runs/{run.id}/reports/ept")).text.splitlines()
    assert {line.split(",")[3] for line in rows[1:]} <= {"5.000000", "2.000000", "0.000000"}


def test_a_seal_that_is_refused_leaves_the_run_as_it_was(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    run = service.run(["melt"], partitions=2)
    service.upload(run, case.stream.encode())

    def seal(**options: object) -> httpx.Response:
        body = {"options": options} if options else None
        return asyncio.run(service.post(f"/v1/runs/{run.id}/seal", json=body))

    before = service.now(run)
    assert seal(summary_ids="2").json()["code"] == "seal-refused"
    assert service.now(run).spec == before.spec
    service.upload(run, case.stream.with_blocks([]).encode())
    # Of two that come at once one wins, and the other one is told so.
    late: list[httpx.Response | None] = []
    sealer = service.sealer
    listed = sealer.sealing.streams.of

    def of(record: RunRecord) -> list[StreamRecord]:
        if not late:
            late.append(None)
            late.append(seal(summary_ids="1"))
        return listed(record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealer.sealing.streams, "of", of)
        assert seal(summary_ids="2").json()["code"] == "run-sealed"
    assert late[1] is not None
    assert late[1].status_code == 202
    assert service.now(run).spec["options"]["summary_ids"] == "1"


def test_a_report_of_a_run_that_is_deleted_meanwhile_is_not_found(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))
    service.sealer.look()
    derive = ReportFiles.derive

    def late(self: ReportFiles, *of: Any) -> object:  # noqa: ANN401 - as it has them
        service.state.runs.removal.delete(SINGLE_USER, run.id)
        return derive(self, *of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReportFiles, "derive", late)
        answer = asyncio.run(service.get(f"/v1/runs/{run.id}/reports/melt?format=arrow"))
    assert answer.json()["code"] == "not-found"


def test_a_variant_that_there_is_not_is_told_from_one_that_is_being_computed(
    service: Uploads,
) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["ept"], inputs, no_of_periods=case.periods, return_periods=[5])
    service.upload(run, case.stream.encode())
    run = service.seal(run)
    variant = {"reports": ["ept"], "options": {"return_periods": [9]}}
    asked = asyncio.run(service.post(f"/v1/runs/{run.id}/reports", json=variant)).json()
    described = service.state.runs.describe(run)
    assert described["computing"] == [{"variant": asked["variant"], "reports": ["ept"]}]
    path = f"/v1/runs/{run.id}/reports/ept?variant="
    assert asyncio.run(service.get(path + asked["variant"])).status_code == 202
    missing = asyncio.run(service.get(path + "deadbeef"))
    assert missing.json()["detail"] == "the run has no variant deadbeef"
    for option, detail in (
        ({"return_periods": [9]}, "return periods are given, but EPT or PSEPT is not wanted"),
        ({"quantiles": [0.5]}, "quantiles are given, but QELT or QPLT is not wanted"),
    ):
        unused = {"reports": ["melt"], "options": option}
        refused = asyncio.run(service.post(f"/v1/runs/{run.id}/reports", json=unused))
        assert (refused.status_code, refused.json()["detail"]) == (422, detail)
        assert refused.json()["option"] == next(iter(option))
    assert "own" in missing.json()["hint"]


def test_curves_that_may_not_fit_are_noted_before_the_run_is_sealed(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    run = service.run(["ept"])
    (stream,) = service.upload(run, case.stream.encode())
    header = StreamHeader(Kind.SUMMARY, 1, SOURCE_SUMMARY, 1000, 1, 4)
    cursor = replace(stream.cursor, header=header, offset=stream.offset)
    large = replace(stream, cursor=cursor, events=10**6, offset=10**10)
    (note,) = describe_run(run, [large], lambda *_: True, 1 << 30)["notes"]
    assert note.startswith("every point of a curve may take 559 GiB of memory")
    assert not describe_run(run, [stream], lambda *_: True, 1 << 30)["notes"]
    at_points = replace(run, spec={**run.spec, "options": {"return_periods": [5]}})
    assert not describe_run(at_points, [large], lambda *_: True, 1 << 30)["notes"]
