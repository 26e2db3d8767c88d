"""Sealing: what it refuses, what it computes, and what survives a worker."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.command.main import main
from app.errors import StorageFullError
from app.http.identity import SINGLE_USER
from app.run_errors import SealRefusedError
from app.runs.records import RunRecord, StreamRecord
from app.runs.sealing import work
from app.runs.sealing.jobs import ATTEMPTS, Job, Jobs, Variant
from app.runs.sealing.sealer import Sealer
from app.runs.sweeping import files_without_runs, runs_without_jobs
from app.state.base import StoreDamagedError
from core.errors import EmptyStreamError
from core.losses.events import Position
from core.losses.header import parse_header
from core.losses.policy import Policy
from tests.app.runs.uploaded import Uploads, occurrence_csv, partitions
from tests.runs import RUN_REPORTS, RunCase, random_run

OF_ROWS = ("melt", "splt")
REPORTS = (*OF_ROWS, *RUN_REPORTS)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    made = Uploads(tmp_path_factory.mktemp("service"))
    made.sealer.sealing.segment = 400
    yield made
    made.sealer.close()


@pytest.fixture(scope="module")
def case() -> RunCase:
    return random_run(np.random.default_rng(4))


def inputs_of(service: Uploads, case: RunCase) -> dict[str, str]:
    return {"occurrence": service.occurrence(case)}


def run_of(service: Uploads, case: RunCase, reports: list[str]) -> RunRecord:
    """A run with occurrences if a report needs them."""
    if not {"aal"} & set(reports):
        return service.run(reports)
    return service.run(reports, inputs_of(service, case), no_of_periods=case.periods)


def get(service: Uploads, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
    return asyncio.run(service.get(path, **options))


def post(service: Uploads, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
    return asyncio.run(service.post(path, **options))


def aggregated(case: RunCase, parts: list[bytes], directory: Path, form: str) -> dict[str, bytes]:
    """The files of the command, from the same streams in files."""
    names = []
    for number, data in enumerate(parts):
        path = directory / f"part{number}.bin"
        path.write_bytes(data)
        names.append(str(path))
    occurrence = directory / "occurrence.csv"
    occurrence.write_bytes(occurrence_csv(case))
    out = directory / form
    out.mkdir()
    options = [
        *("--reports", ",".join(REPORTS), "--out", str(out), "--format", form),
        *("--occurrence", str(occurrence), "--no-of-periods", str(case.periods)),
    ]
    assert main(["aggregate", *names, *options]) == 0
    return {name: (out / f"{name}.{form}").read_bytes() for name in REPORTS}


def test_reports_are_the_files_that_one_process_writes(
    service: Uploads, case: RunCase, tmp_path: Path
) -> None:
    parts = partitions(case, 1, 3)
    run = service.run(REPORTS, inputs_of(service, case), no_of_periods=case.periods)
    service.upload(run, *parts)
    assert post(service, f"/v1/runs/{run.id}/seal").status_code == 202
    waiting = get(service, f"/v1/runs/{run.id}/reports/aal")
    assert waiting.status_code == 202
    assert waiting.json()["state"] == "sealed"
    assert "retry-after" in waiting.headers
    service.sealer.jobs.claimable()
    assert (service.sealer.jobs.waiting, service.sealer.jobs.computing) == (1, 0)
    service.sealer.look()
    assert service.now(run).state == "done"
    for form in ("csv", "bin", "parquet"):
        expected = aggregated(case, parts, tmp_path, form)
        for name in REPORTS:
            answer = get(service, f"/v1/runs/{run.id}/reports/{name}?format={form}")
            assert answer.status_code == 200
            assert answer.content == expected[name], (name, form)
    # Sealing again changes nothing.
    assert post(service, f"/v1/runs/{run.id}/seal").json()["state"] == "done"


def test_sums_that_need_more_memory_than_is_usual_get_it(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = partitions(case, 3, 2)
    ends: list[bytes] = []
    for nbytes in (work.SUMS_OF_SEGMENT, 1 << 10):
        monkeypatch.setattr(work, "SUMS_OF_SEGMENT", nbytes)
        run = service.run(["ept", "aal"], inputs_of(service, case), no_of_periods=case.periods)
        service.upload(run, *parts)
        assert service.seal(run).state == "done"
        ends.append(get(service, f"/v1/runs/{run.id}/reports/ept").content)
    assert ends[0] == ends[1]
    ledger = service.sealer.sealing.losses.ledger
    assert ledger.held == ledger.purposes().get("cached", 0)


def test_reports_have_entity_tags_and_ranges(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports/melt"
    whole = get(service, path)
    etag = whole.headers["etag"]
    assert not etag.startswith("W/")
    assert get(service, path, headers={"If-None-Match": etag}).status_code == 304
    part = get(service, path, headers={"Range": "bytes=5-20", "If-Range": etag})
    assert (part.status_code, part.content) == (206, whole.content[5:21])
    assert part.headers["content-range"] == f"bytes 5-20/{len(whole.content)}"
    assert get(service, path, headers={"Range": "bytes=5-", "If-Range": '"x"'}).status_code == 200
    beyond = get(service, path, headers={"Range": f"bytes={len(whole.content)}-"})
    assert beyond.status_code == 416
    assert beyond.headers["Content-Range"].startswith("bytes */")
    head = asyncio.run(service.ask("HEAD", path, headers={"Range": "bytes=5-20"}))
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))


def test_rows_are_chosen_by_summary_and_event(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports/melt"
    rows = list(csv.DictReader(io.StringIO(get(service, path).text)))
    event, summary = rows[0]["EventId"], rows[0]["SummaryId"]
    answer = get(service, f"{path}?summary_ids={summary}&event_ids={event}")
    found = list(csv.DictReader(io.StringIO(answer.text)))
    assert found == [r for r in rows if (r["EventId"], r["SummaryId"]) == (event, summary)]
    assert answer.headers["etag"] != get(service, path).headers["etag"]
    refused = get(service, f"{path}?event_ids=x")
    assert refused.json()["detail"].startswith("event_ids is 'x'")
    assert refused.json()["option"] == "event_ids"
    refused = get(service, f"{path}?format=svg&event_ids=1")
    assert (refused.status_code, refused.json()["code"]) == (422, "option")


def test_rows_by_event_are_sorted(service: Uploads) -> None:
    case = random_run(np.random.default_rng(9))
    parts = partitions(case, 3, 2)
    run = service.run(["melt"], order="event")
    service.upload(run, *parts)
    plain = service.run(["melt"])
    service.upload(plain, *parts)
    assert service.seal(run).state == service.seal(plain).state == "done"
    lines = get(service, f"/v1/runs/{plain.id}/reports/melt").text.splitlines()
    expected = [lines[0], *sorted(lines[1:], key=lambda line: int(line.split(",")[0]))]
    assert get(service, f"/v1/runs/{run.id}/reports/melt").text.splitlines() == expected


def test_another_report_needs_no_upload(service: Uploads, case: RunCase) -> None:
    run = service.run(["aal"], inputs_of(service, case), no_of_periods=case.periods)
    service.upload(run, *partitions(case, 1, 2))
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/reports"
    missing = get(service, f"{path}/ept")
    assert (missing.status_code, missing.json()["code"]) == (404, "report-missing")
    options: dict[str, Any] = {"quantiles": [0.5], "return_periods": [2, 1]}
    body = {"reports": ["ept", "qelt"], "options": options}
    answer = post(service, path, json=body)
    assert answer.status_code == 202
    links = answer.json()["reports"]
    assert get(service, links["ept"]).status_code == 202
    service.sealer.look()
    other = service.run(
        ["ept", "qelt"], inputs_of(service, case), no_of_periods=case.periods, **options
    )
    service.upload(other, *partitions(case, 1, 2))
    assert service.seal(other).state == "done"
    for name, link in links.items():
        expected = get(service, f"/v1/runs/{other.id}/reports/{name}")
        assert expected.status_code == 200
        assert get(service, link).content == expected.content
    # Of the run's own options, too.
    post(service, path, json={"reports": ["psept"]})
    service.sealer.look()
    assert get(service, f"{path}/psept").status_code == 200
    for reports in (["qelt"], ["x"], []):
        wrong = {"reports": reports}
        assert post(service, path, json=wrong).status_code == 422
    fixed = {"reports": ["ept"], "options": {"float_width": 8}}
    assert post(service, path, json=fixed).json()["option"] == "float_width"


# -- what is refused -----------------------------------------------------------------


def refused(service: Uploads, run: Any) -> dict[str, Any]:  # noqa: ANN401 - a run
    answer = post(service, f"/v1/runs/{run.id}/seal")
    assert (answer.status_code, answer.json()["code"]) == (409, "seal-refused")
    assert service.now(run).state != "sealed"
    found: dict[str, Any] = answer.json()
    return found


def test_streams_that_are_missing_unfinished_or_twice_there_are_named(
    service: Uploads, case: RunCase
) -> None:
    first, second = partitions(case, 2, 2)
    run = service.run(["melt"], partitions=3)
    absent = refused(service, run)["streams"]
    assert [(f["partition"], f["reason"]) for f in absent] == [
        (number, "was never created") for number in (1, 2, 3)
    ]
    service.upload(run, first)
    cut = service.extend(service.add(run), second[:-4], complete=False)
    service.upload(run, first)
    found = refused(service, run)["streams"]
    third = service.streams.find(service.now(run), 3)
    assert third is not None
    assert [(f["partition"], f["stream"]) for f in found] == [(2, cut.id), (3, third.id)]
    assert "is not complete" in found[0]["reason"]
    assert "same bytes as partition 1" in found[1]["reason"]
    assert refused(service, service.run(["melt"]))["detail"] == "the run has no stream"


def test_a_stream_that_does_not_go_with_the_first_is_named_as_it_comes(
    service: Uploads, case: RunCase
) -> None:
    other = replace(case.stream, samples=case.stream.samples + 1).encode()
    run = service.run(["melt"])

    def begin(data: bytes) -> StreamRecord:
        cursor = Position(parse_header(data[:12], Policy(), None), 12)
        begun = service.extend(service.add(run), data[:20], complete=False)
        return service.streams.swap(begun, replace(begun, cursor=cursor))

    service.extend(begin(case.stream.encode()), case.stream.encode()[20:])
    assert get(service, f"/v1/runs/{run.id}").json()["notes"] == []
    stream = begin(other)
    (note,) = get(service, f"/v1/runs/{run.id}").json()["notes"]
    assert note.startswith("partition 2 is a summary stream")
    assert "but partition 1 is a summary stream" in note
    service.extend(stream, other[20:])
    (fault,) = refused(service, run)["streams"]
    assert (fault["partition"], fault["stream"]) == (2, stream.id)
    assert f"partition 2 {fault['reason']}" == note
    service.streams.delete(service.now(run), stream.id)
    assert service.seal(run).state == "done"


def test_streams_without_events_may_be_equal(service: Uploads, case: RunCase) -> None:
    empty = case.stream.with_blocks(()).encode()
    run = service.run(["melt"])
    service.upload(run, empty, empty, case.stream.encode())
    assert service.seal(run).state == "done"


def test_inputs_that_are_missing_are_named(service: Uploads, case: RunCase) -> None:
    run = service.run(["aal"])
    service.upload(run, case.stream.encode())
    assert refused(service, run)["inputs"] == ["occurrence"]


def test_reports_are_not_ready_before_the_run_is_sealed(service: Uploads) -> None:
    run = service.run(["melt"])
    answer = get(service, f"/v1/runs/{run.id}/reports/melt")
    assert (answer.status_code, answer.json()["code"]) == (409, "report-not-ready")
    assert int(answer.headers["retry-after"]) > 0
    assert get(service, "/v1/runs/0123456789abcdef/reports/melt").status_code == 404
    assert post(service, "/v1/runs/0123456789abcdef/seal").status_code == 404


def test_an_event_in_two_streams_fails_the_run_until_it_is_repaired(
    service: Uploads, case: RunCase
) -> None:
    event = case.stream.blocks[0].event
    again = case.stream.with_blocks(b for b in case.stream.blocks if b.event == event)
    for reports in (["melt"], ["aal"]):
        run = run_of(service, case, reports)
        _, other = service.upload(run, case.stream.encode(), again.encode())
        failed = service.seal(run)
        assert failed.state == "failed"
        assert failed.problem is not None
        assert f"event {event} is in partition 1 and partition 2" in failed.problem["detail"]
        assert "upload the right one, then seal again" in failed.problem["hint"]
        answer = get(service, f"/v1/runs/{run.id}/reports/{reports[0]}")
        assert (answer.status_code, answer.json()["problem"]) == (409, failed.problem)
        service.streams.delete(service.now(run), other.id)
        assert service.seal(run).state == "done"
        assert service.now(run).problem is None
    assert b'thalweg_seal_seconds_count{outcome="failed"}' in service.state.metrics.text()
    assert b'thalweg_runs_total{state="failed"}' in service.state.metrics.text()


def test_reports_of_streams_that_were_replaced_are_not_kept(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = partitions(case, 1, 2)
    run = run_of(service, case, ["melt", "aal"])
    (stream,) = service.upload(run, first)

    def fail(_self: object, _memory: object) -> None:
        raise EmptyStreamError("the sums cannot be computed", offset=0)

    with monkeypatch.context() as patch:
        patch.setattr(work.SealingWork, "_compute_sums", fail)
        assert service.seal(run).state == "failed"
    service.streams.delete(service.now(run), stream.id)
    service.upload(run, second)
    assert service.seal(run).state == "done"
    other = run_of(service, case, ["melt", "aal"])
    service.upload(other, second)
    assert service.seal(other).state == "done"
    melt, expected = (get(service, f"/v1/runs/{r.id}/reports/melt") for r in (run, other))
    assert melt.status_code == 200
    assert melt.content == expected.content
    # What was computed before is removed after a while.
    records = service.sealer.sealing.records
    before = {head.id for head in records.list("report").records}
    files_without_runs(records, "report", lambda: 9e9)()
    removed = before - {head.id for head in records.list("report").records}
    assert all(f".{run.id}." in name for name in removed)
    assert {name.rpartition(".")[2] for name in removed} == {"bin", "told"}
    assert get(service, f"/v1/runs/{run.id}/reports/melt").content == expected.content


@pytest.mark.parametrize("reports", [["melt"], ["aal"]])
def test_a_stored_file_that_is_missing_is_named(
    tmp_path: Path, case: RunCase, reports: list[str]
) -> None:
    service = Uploads(tmp_path)
    run = run_of(service, case, reports)
    first, second = partitions(case, 1, 2)
    service.upload(run, first)
    kept = set(tmp_path.rglob("blobs/stream/*/*"))
    (stream,) = service.upload(run, second)
    for path in set(tmp_path.rglob("blobs/stream/*/*")) - kept:
        path.unlink()
    failed = service.seal(run)
    assert failed.problem is not None
    assert "partition 2 are missing" in failed.problem["detail"]
    assert "upload it again" in failed.problem["hint"]
    service.streams.delete(service.now(run), stream.id)
    service.upload(run, second)
    assert service.seal(run).state == "done"


def damage(directory: Path, kind: str) -> None:
    """Change a byte of the content of every blob of a kind."""
    paths = list(directory.rglob(f"blobs/{kind}/*/*"))
    assert paths
    for path in paths:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)


def test_a_damaged_chunk_is_named_and_never_used(tmp_path: Path, case: RunCase) -> None:
    service = Uploads(tmp_path)
    for reports in (["melt"], ["aal"]):
        run = run_of(service, case, reports)
        (stream,) = service.upload(run, case.stream.encode())
        damage(tmp_path, "stream")
        failed = service.seal(run)
        assert failed.state == "failed"
        assert failed.problem is not None
        assert "partition 1 are damaged" in failed.problem["detail"]
        service.streams.delete(service.now(run), stream.id)
        service.upload(run, case.stream.encode())
        assert service.seal(run).state == "done"
        damage(tmp_path, "report")
        answer = get(service, f"/v1/runs/{run.id}/reports/{reports[0]}?format=bin")
        assert answer.status_code == 202
        service.sealer.look()
        answer = get(service, f"/v1/runs/{run.id}/reports/{reports[0]}?format=bin")
        assert answer.status_code == 200


# -- workers -------------------------------------------------------------------------


def test_a_job_of_a_worker_that_died_is_taken_over(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    run = service.run(["aal"], inputs_of(service, case), no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))
    (job,) = service.sealer.jobs.claimable()
    # It claims the job, and is killed.
    assert service.sealer.jobs.change(job, worker="another", beat=7) is not None
    watching = Jobs(
        service.sealer.sealing.records, 15.0, lambda: now[0], service.sealer.jobs.presence
    )
    monkeypatch.setattr(service.sealer, "jobs", watching)
    monkeypatch.setattr(service.sealer, "_alone", None)
    for now[0] in (0.0, 14.9):
        service.sealer.look()
        assert service.now(run).state == "sealed"
    now[0] = 15.1
    service.sealer.look()
    assert service.now(run).state == "done"
    assert watching.of_run(run.owner, run.id) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_is_taken_over_does_not_say_how_the_run_ended(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))
    jobs = service.sealer.jobs

    class Slow(work.SealingWork):
        def run(self) -> None:
            taken = None
            while taken is None:
                # Until no beat comes between.
                (job,) = jobs.of_run(run.owner, run.id)
                taken = jobs.change(job, worker="another", beat=job.beat + 1)
            if fails:
                raise EmptyStreamError("nothing is there", offset=0)
            # Until the next beat shows it.
            while True:
                self._reports._proceed(0, 1)

    monkeypatch.setattr(jobs, "lease", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr("app.runs.sealing.sealer.SealingWork", Slow)
        service.sealer.look()
    assert service.now(run).state == "computing"
    (job,) = jobs.of_run(run.owner, run.id)
    assert job.worker == "another"
    jobs.delete(job)
    service.sealer.seal(service.now(run))
    service.sealer.look()
    assert service.now(run).state == "done"


def test_a_sealed_run_whose_job_was_lost_is_computed(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))
    jobs = service.sealer.jobs
    jobs.delete_all(run.owner, run.id)
    service.sealer.look()
    assert service.now(run).state == "sealed"
    sweep = runs_without_jobs(service.state.runs.removal, service.sealer.sealing.records)
    assert sweep() is False
    service.sealer.look()
    assert service.now(run).state == "done"
    sweep()
    assert jobs.of_run(run.owner, run.id) == []


def test_a_full_disk_delays_the_run(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.seal(service.now(run))

    def full(_self: object) -> None:
        raise StorageFullError("full")

    monkeypatch.setattr(service.sealer, "_interval", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(work.SealingWork, "run", full)
        service.sealer.look()
        assert service.now(run).state == "computing"
        (note,) = service.state.runs.describe(service.now(run))["notes"]
        assert note.endswith("tried 1 times, and will be again: full")
        (job,) = service.sealer.jobs.of_run(run.owner, run.id)
        claimed = service.sealer.jobs.change(job, worker="somebody")
        assert claimed is not None
        (note,) = service.state.runs.describe(service.now(run))["notes"]
        assert note.endswith("tried 1 times, and is tried once more: full")
        service.sealer.jobs.change(claimed, worker="")
        for _ in range(ATTEMPTS):
            service.sealer.look()
    (job,) = service.sealer.jobs.of_run(run.owner, run.id)
    assert (job.attempts, service.now(run).state) == (ATTEMPTS, "computing")
    service.sealer.look()
    assert service.now(run).state == "computing"
    monkeypatch.setattr(service.sealer.jobs, "lease", 0.0)
    service.sealer.look()
    assert service.now(run).state == "done"


def test_a_job_that_cannot_be_ended_delays_no_other(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [service.run(["melt"]) for _ in range(2)]
    for run in runs:
        service.upload(run, case.stream.encode())
        service.sealer.seal(service.now(run))
    first = service.sealer.jobs.claimable()[0].run
    change = service.runs.change

    def refuse(run: RunRecord, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as there
        if run.id == first:
            raise StoreDamagedError("the run is damaged")
        return change(run, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(service.runs, "change", refuse)
        service.sealer.look()
    assert sorted(service.now(run).state for run in runs) == ["done", "sealed"]
    service.sealer.jobs.delete_all(runs[0].owner, first)


def test_the_thread_seals_and_stops(tmp_path: Path, case: RunCase) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    service.sealer.start()

    async def sealed() -> None:
        follower = service.runs.watch.follow(run.id)
        service.sealer.seal(service.now(run))
        while service.now(run).state != "done":
            await follower.changed()
        follower.close()

    asyncio.run(sealed())
    service.sealer.close()


def test_segments_are_added_up_while_streams_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_run(np.random.default_rng(9))
    monkeypatch.setattr("app.losses.sections._WINDOW", 256)
    service = Uploads(tmp_path)
    service.sealer.sealing.segment = 400
    run = service.run(["aal"], inputs_of(service, case), no_of_periods=case.periods)
    data = case.stream.encode()
    stream = service.extend(service.add(run), data[:900], complete=False)
    while service.sealer.ahead.work():
        pass
    early = len(service.streams.blobs.list("segment").blobs)
    service.extend(stream, data[900:])
    while service.sealer.ahead.work():
        pass
    assert 0 < early < len(service.streams.blobs.list("segment").blobs)

    def never(*_arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr("app.runs.results.segments.SegmentSums._ledgers", never)
    assert service.seal(run).state == "done"


def test_a_deleted_run_leaves_nothing(tmp_path: Path, case: RunCase) -> None:
    service = Uploads(tmp_path)
    run = service.run(["melt", "aal"], inputs_of(service, case), no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"
    blobs = service.streams.blobs
    assert blobs.list("segment").blobs
    assert blobs.list("report").blobs
    service.state.runs.removal.delete(SINGLE_USER, run.id)
    for kind in ("segment", "report", "stream"):
        assert blobs.list(kind).blobs == ()


def test_a_run_may_be_sealed_by_several_at_once(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    service.upload(run, case.stream.encode())
    others = [Sealer(service.sealer.sealing, Jobs(service.sealer.sealing.records)) for _ in "ab"]
    for sealer in others:
        sealer.seal(service.now(run))
    for sealer in others:
        sealer.look()
    assert service.now(run).state == "done"
    with pytest.raises(SealRefusedError):
        others[0].seal(service.run(["melt"]))


def test_owners_take_turns_at_seals(service: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    sealer, order = service.sealer, list[str]()
    left = [
        Job(owner, str(number), ("melt",), Variant(), seals=True)
        for owner in ("abuser", "alice")
        for number in range(3)
    ]

    def do(job: Job) -> None:
        left.remove(job)
        order.append(job.owner)

    monkeypatch.setattr(sealer.jobs, "claimable", lambda: list(left))
    monkeypatch.setattr(sealer, "_do", do)
    sealer.look()
    assert order == ["abuser", "alice"] * 3
