"""Rows of runs: the same whenever they are read, from any token, live and afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from app.errors import DataChangedError
from app.run_errors import RunFailedError
from app.runs.records import RunRecord, StreamRecord
from app.runs.rows import reader
from app.runs.rows.opening import WantedRows, open_rows
from app.runs.rows.reader import RowReader
from app.runs.rows.tokens import RowMark
from tests.app.runs.uploaded import Uploads, partitions
from tests.frames import Frame, read_frames
from tests.runs import RunCase, compute, octets, random_run

SEED = 9


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    made = Uploads(tmp_path_factory.mktemp("service"))
    yield made
    made.sealer.close()


@pytest.fixture(scope="module")
def case() -> RunCase:
    return random_run(np.random.default_rng(SEED))


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "READ", 300)
    monkeypatch.setattr(reader, "CHUNK", 500)


def rows_path(run: RunRecord, report: str = "selt", **query: str) -> str:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return f"/v1/runs/{run.id}/rows/{report}?{text}"


def get(service: Uploads, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
    return asyncio.run(service.get(path, **options))


def payload(frames: list[Frame]) -> bytes:
    return b"".join(frame.payload for frame in frames if frame.kind == "DATA")


def expected_rows(case: RunCase, seed: int, count: int, report: str = "selt") -> bytes:
    """Rows of the partitions of a case, one after another."""
    parts = case.partitions(np.random.default_rng(seed), count)

    return b"".join(rows_of(case, part, report) for part in parts)


def rows_of(case: RunCase, part: Any, report: str) -> bytes:  # noqa: ANN401 - a stream
    bare = RunCase(case.stream, case.periods, case.occurrences)
    found = compute(bare, [part], [report, "mplt"])
    return octets(found)[report]


def test_rows_are_those_of_the_partitions_in_order(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    first, second = service.upload(run, *partitions(case, 1, 2))
    assert service.seal(run).state == "done"
    frames = read_frames(get(service, rows_path(run)).content)
    assert payload(frames) == expected_rows(case, 1, 2)
    named = [frame.header["stream"] for frame in frames if frame.kind == "DATA"]
    assert set(named) == {first.id, second.id}
    assert named == sorted(named)
    assert frames[-1].kind == "END"
    assert frames[-1].header["reason"] == "sealed"
    assert frames[-1].header["completeness"] == "declared"


def test_every_token_goes_on_where_it_was_given(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    service.upload(run, *partitions(case, 1, 3))
    assert service.seal(run).state == "done"
    frames = read_frames(get(service, rows_path(run)).content)
    before = b""
    seen = 0
    for frame in frames:
        before += frame.payload
        if frame.kind != "DATA" or frame.more:
            continue
        seen += 1
        again = get(service, rows_path(run, after=frame.header["token"])).content
        assert before + payload(read_frames(again)) == payload(frames)
    assert seen > 3
    last = frames[-1].header["token"]
    assert payload(read_frames(get(service, rows_path(run, after=last)).content)) == b""


@pytest.mark.parametrize("form", ["csv", "ndjson", "arrow", "parquet", "bin"])
def test_tables_of_rows_equal_reports(service: Uploads, case: RunCase, form: str) -> None:
    run = service.run(["melt"])
    service.upload(run, *partitions(case, 1, 2))
    early = get(service, rows_path(run, "melt", format=form))
    assert early.status_code == (200 if form == "ndjson" else 409)
    assert service.seal(run).state == "done"
    found = get(service, rows_path(run, "melt", format=form)).content
    report = get(service, f"/v1/runs/{run.id}/reports/melt?format={form}").content
    if form == "ndjson":
        lines = [line for line in found.splitlines() if b"EventId" in line]
        assert lines == report.splitlines()
        assert json.loads(found.splitlines()[-1])["end"]["reason"] == "sealed"
    elif form != "arrow":
        assert found == report


def parse_events(text: str) -> list[dict[str, str]]:
    events = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        if fields:
            events.append(fields)
    return events


def test_server_sent_events_go_on_after_the_last_id(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    service.upload(run, *partitions(case, 1, 2))
    assert service.seal(run).state == "done"
    path = f"/v1/runs/{run.id}/rows/melt"
    accept = {"Accept": "text/event-stream"}
    answer = get(service, path, headers=accept)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parse_events(answer.text)
    lines = [line for e in events if e.get("event") == "rows" for line in e["data"].split("\n")]
    report = get(service, f"/v1/runs/{run.id}/reports/melt?format=ndjson").text
    assert lines == report.splitlines()
    assert events[-1]["event"] == "end"
    middle = events[len(events) // 2]
    further = get(service, path, headers={**accept, "Last-Event-ID": middle["id"]})
    rest = parse_events(further.text)
    after = [e for e in events[len(events) // 2 + 1 :] if e.get("event") == "rows"]
    again = [e for e in rest if e.get("event") == "rows"]
    joined = "\n".join(e["data"] for e in after)
    assert "\n".join(e["data"] for e in again) == joined


def test_followers_get_all_rows_of_live_uploads_once(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"], partitions=2)
    first, second = partitions(case, 1, 2)

    async def follow(path: str) -> bytes:
        return (await service.get(path)).content

    async def main() -> list[bytes]:
        paths = [rows_path(run, follow="true"), rows_path(run, follow="true", format="bin")]
        followers = [asyncio.create_task(follow(path)) for path in paths]
        # The second partition comes first, and is waited with.
        await grow(service, service.add(run, 2), second)
        await grow(service, service.add(run, 1), first)
        assert not any(follower.done() for follower in followers)
        service.sealer.seal(service.now(run))
        service.sealer.look()
        return [await follower for follower in followers]

    frames, packed = asyncio.run(main())
    assert payload(read_frames(frames)) == packed == expected_rows(case, 1, 2)
    assert read_frames(frames)[-1].header["reason"] == "sealed"


async def grow(service: Uploads, stream: StreamRecord, data: bytes) -> StreamRecord:
    """Upload in small pieces, and let others do something in between."""
    for start in range(0, len(data), 200):
        piece = data[start : start + 200]
        stream = service.extend(stream, piece, complete=start + 200 >= len(data))
        await asyncio.sleep(0)
    return stream


def test_rows_so_far_end_as_partial_with_a_token(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    data = case.stream.encode()
    stream = service.extend(service.add(run), data[: len(data) // 2], complete=False)
    frames = read_frames(get(service, rows_path(run)).content)
    assert frames[-1].header["reason"] == "partial"
    service.extend(stream, data[len(data) // 2 :])
    rest = get(service, rows_path(run, after=frames[-1].header["token"])).content
    whole = payload(frames) + payload(read_frames(rest))
    assert whole == rows_of(case, case.stream, "selt")
    # Complete, but others may follow.
    assert read_frames(rest)[-1].header["reason"] == "partial"
    alone = get(service, rows_path(run, stream=stream.id)).content
    assert read_frames(alone)[-1].header["reason"] == "complete"
    assert payload(read_frames(alone)) == whole


def test_a_faulty_stream_gives_its_good_rows_and_is_named(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    starts = case.stream.boundaries()
    blocks = case.stream.blocks
    cut = next(
        offset
        for offset, before, block in zip(starts[2:], blocks[1:], blocks[2:], strict=False)
        if before.event != block.event
    )
    data = case.stream.encode()
    stream = service.extend(service.add(run), data[:cut], complete=False)
    fault = {"detail": "a sample is out of range", "code": "sample-range"}
    service.streams.swap(stream, replace(stream, fault=fault))
    for follow in ("false", "true"):
        frames = read_frames(get(service, rows_path(run, follow=follow)).content)
        assert frames[-1].kind == "ERROR"
        problem = frames[-1].header["problem"]
        assert (problem["code"], problem["stream"]) == ("stream-failed", stream.id)
        assert problem["fault"] == fault
        whole = rows_of(case, case.stream, "selt")
        good = payload(frames)
        assert good
        assert whole.startswith(good)


def test_followers_learn_that_the_run_failed(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    service.upload(run, case.stream.encode())
    problem = {"detail": "no memory"}
    service.runs.change(run, lambda now: replace(now, state="failed", problem=problem))
    frames = read_frames(get(service, rows_path(run, follow="true")).content)
    assert payload(frames) == rows_of(case, case.stream, "selt")
    assert frames[-1].kind == "ERROR"
    told = frames[-1].header["problem"]
    assert (told["code"], told["problem"]) == ("run-failed", problem)


def test_tokens_of_others_and_of_deleted_streams_are_refused(
    service: Uploads, case: RunCase
) -> None:
    run, other = service.run(["selt", "melt"]), service.run(["selt"])
    (stream,) = service.upload(run, case.stream.encode())
    service.upload(other, case.stream.encode())
    token = read_frames(get(service, rows_path(run)).content)[0].header["token"]
    for path in (rows_path(other, after=token), rows_path(run, "melt", after=token)):
        answer = get(service, path)
        assert (answer.status_code, answer.json()["code"]) == (409, "token-foreign")
    for malformed in ("x", ""):
        refusal = get(service, rows_path(run, after=malformed))
        assert (refusal.status_code, refusal.json()["code"]) == (400, "token-malformed")
    service.streams.delete(service.now(run), stream.id)
    gone = get(service, rows_path(run, after=token))
    assert (gone.status_code, gone.json()["code"]) == (412, "data-changed")
    service.upload(run, case.stream.encode())
    assert get(service, rows_path(run, after=token)).status_code == 412


def test_reports_of_whole_runs_have_no_rows(service: Uploads, case: RunCase) -> None:
    run = service.run(["aal"], {"occurrence": service.occurrence(case)}, no_of_periods=case.periods)
    answer = get(service, rows_path(run, "aal"))
    assert (answer.status_code, answer.json()["code"]) == (422, "report-needs-whole-stream")
    assert answer.json()["hint"] == f"GET /v1/runs/{run.id}/reports/aal once the run is sealed"
    assert get(service, rows_path(run, "nothing")).status_code == 422
    assert get(service, rows_path(run, "melt", stream="000001-x")).status_code == 404


# -- progress ------------------------------------------------------------------------


def test_progress_tells_each_change_until_the_run_is_done(service: Uploads, case: RunCase) -> None:
    run = service.run(["melt"])
    path = f"/v1/runs/{run.id}/progress"

    async def main() -> list[dict[str, str]]:
        watching = asyncio.create_task(service.get(path))
        await asyncio.sleep(0)
        await grow(service, service.add(run), case.stream.encode())
        service.sealer.seal(service.now(run))
        service.sealer.look()
        return parse_events((await watching).text)

    events = asyncio.run(main())
    first, last = json.loads(events[0]["data"]), json.loads(events[-2]["data"])
    assert events[0]["event"] == "state"
    assert first["run"] == run.id
    assert last["state"] == "done"
    assert last["bytes"] == len(case.stream.encode())
    assert events[-1]["event"] == "end"
    # Who knows the last event is told nothing again.
    again = get(service, path, headers={"Last-Event-ID": events[-2]["id"]})
    assert [event["event"] for event in parse_events(again.text)] == ["end"]


def test_a_stream_that_is_created_anew_before_its_first_byte_costs_no_follower_its_place(
    service: Uploads, case: RunCase
) -> None:
    run = service.run(["selt"])
    lost = service.add(run)
    wanted = WantedRows(service.now(run), "selt", "bin", follow=True)
    follower = open_rows(service.state.losses, service.streams, wanted, None)
    while follower.step() is not None:
        pass
    token = read_frames(get(service, rows_path(run)).content)[-1].header["token"]
    service.streams.delete(service.now(run), lost.id)
    stream = service.add(run, 1)
    assert stream.id != lost.id
    assert read_frames(get(service, rows_path(run, after=token)).content)[-1].header["token"]
    service.extend(stream, case.stream.encode())
    rows = []
    while (chunk := follower.step()) is not None:
        rows += chunk.buffers
    expected = rows_of(case, case.stream, "selt")
    assert b"".join(map(bytes, rows)) == expected
    assert payload(read_frames(get(service, rows_path(run, after=token)).content)) == expected


# -- rows of streams that are not those of the run any more ---------------------------


def follow(service: Uploads, run: RunRecord) -> RowReader:
    wanted = WantedRows(service.now(run), "selt", "bin", follow=True)
    return open_rows(service.state.losses, service.streams, wanted, None)


def rest(follower: RowReader) -> bytes:
    rows: list[Any] = []
    while (chunk := follower.step()) is not None:
        rows += chunk.buffers
    return b"".join(map(bytes, rows))


def other_bytes(case: RunCase) -> bytes:
    """A stream of the same length with other losses."""
    blocks = tuple(
        replace(b, pairs=tuple((sample, 2 * loss) for sample, loss in b.pairs))
        for b in case.stream.blocks
    )
    return replace(case.stream, blocks=blocks).encode()


def is_changed(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (412, "data-changed")


def test_followers_do_not_end_well_with_rows_of_a_stream_that_was_replaced(
    service: Uploads, case: RunCase
) -> None:
    first, second = partitions(case, 1, 2)
    for more in ([], [second]):
        run = service.run(["selt"])
        (stream,) = service.upload(run, first)
        follower = follow(service, run)
        assert rest(follower) == rows_of_bytes(service, first)
        service.streams.delete(service.now(run), stream.id)
        service.extend(service.add(run, 1), other_bytes(case))
        if more:
            service.upload(run, *more)
        else:
            assert rest(follower) == b""
            assert service.seal(run).state == "done"
        with pytest.raises(DataChangedError):
            rest(follower)
        assert follower.reason is None


@pytest.mark.parametrize("more", [0, 1, 2])
def test_late_partitions_look_at_those_before_at_times_and_at_the_end(
    service: Uploads, case: RunCase, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(reader, "_LOOKS", 2)
    parts = partitions(case, 1, 5)
    run = service.run(["selt"])
    first, *_ = service.upload(run, *parts[:3])
    follower = follow(service, run)
    rest(follower)
    service.streams.delete(service.now(run), first.id)
    service.extend(service.add(run, 1), parts[0])
    # No look before the fourth, whose rows are not held back for that.
    if more:
        service.upload(run, parts[3])
        assert rest(follower) == rows_of_bytes(service, parts[3])
    assert isinstance(follower.mark, RowMark)
    wanted = WantedRows(service.now(run), "selt", "frames", follow=True)
    with pytest.raises(DataChangedError):
        open_rows(service.state.losses, service.streams, wanted, follower.mark.place)
    if more > 1:
        service.upload(run, parts[4])
    else:
        assert service.seal(run).state == "done"
    with pytest.raises(DataChangedError):
        rest(follower)
    assert follower.reason is None


def test_a_stream_that_is_deleted_while_it_is_read_is_not_called_damaged(
    service: Uploads, case: RunCase
) -> None:
    run = service.run(["selt"])
    (stream,) = service.upload(run, case.stream.encode())
    follower = follow(service, run)
    assert follower.step() is not None
    service.streams.delete(service.now(run), stream.id)
    with pytest.raises(DataChangedError):
        rest(follower)


def rows_of_bytes(service: Uploads, data: bytes) -> bytes:
    run = service.run(["selt"])
    service.upload(run, data)
    return payload(read_frames(get(service, rows_path(run)).content))


def test_a_token_holds_while_the_streams_before_it_are_the_same(
    service: Uploads, case: RunCase
) -> None:
    run = service.run(["selt"])
    first, _ = service.upload(run, *partitions(case, 1, 2))
    frames = read_frames(get(service, rows_path(run)).content)
    second = next(f.header["token"] for f in frames if f.header.get("partition") == 2)
    last = frames[-1].header["token"]
    for token in (second, last):
        assert len(token) < 100
        assert get(service, rows_path(run, after=token)).status_code == 200
    service.streams.delete(service.now(run), first.id)
    assert is_changed(get(service, rows_path(run, after=last)))
    service.extend(service.add(run, 1), other_bytes(case))
    for token in (second, last):
        assert is_changed(get(service, rows_path(run, after=token)))
    # Alone, the second partition is what it was.
    ident = next(f.header["stream"] for f in frames if f.header.get("partition") == 2)
    assert get(service, rows_path(run, after=last, stream=ident)).status_code == 200


def test_tokens_of_earlier_versions_go_on(service: Uploads, case: RunCase) -> None:
    run = service.run(["selt"])
    stream = service.upload(run, *partitions(case, 1, 2))[1]
    frames = read_frames(get(service, rows_path(run)).content)
    keys = service.state.losses.keys
    token = keys.verify(frames[-1].header["token"]).token
    digest = hashlib.blake2b(stream.id.encode(), digest_size=8).digest()
    earlier = keys.sign(replace(token, fingerprint=digest, state=token.state[:5]))
    again = read_frames(get(service, rows_path(run, after=earlier)).content)
    assert payload(again) == b""
    assert again[-1].header["reason"] == "partial"
    service.streams.delete(service.now(run), stream.id)
    service.upload(run, case.stream.encode())
    assert is_changed(get(service, rows_path(run, after=earlier)))


def test_a_token_does_not_go_on_in_bytes_that_came_after_a_restored_backup(
    service: Uploads, case: RunCase
) -> None:
    run = service.run(["selt"])
    data, others = case.stream.encode(), other_bytes(case)
    half = len(data) // 2
    old = service.extend(service.add(run), data[:half], complete=False)

    def upload(content: bytes) -> None:
        path = f"/v1/runs/{run.id}/streams/{old.id}"
        headers = {"Upload-Offset": str(half), "Upload-Complete": "?1"}
        headers["Content-Type"] = "application/partial-upload"
        assert asyncio.run(service.patch(path, content=content, headers=headers)).is_success

    upload(data[half:])
    token = read_frames(get(service, rows_path(run)).content)[-1].header["token"]
    assert get(service, rows_path(run, after=token)).status_code == 200
    follower = follow(service, run)
    assert rest(follower) == rows_of(case, case.stream, "selt")
    now = service.streams.get(service.now(run), old.id)
    service.streams.swap(now, replace(old, owned=None))
    assert is_changed(get(service, rows_path(run, after=token)))
    upload(others[half:])
    assert is_changed(get(service, rows_path(run, after=token)))
    assert service.seal(run).state == "done"
    with pytest.raises(DataChangedError):
        rest(follower)


def test_followers_do_not_end_well_before_the_run_is_done(service: Uploads, case: RunCase) -> None:
    for seed, fails in ((1, False), (2, True)):
        run = service.run(["selt"])
        parts = partitions(case, seed, 2)
        # An event in two streams is found when the run is computed.
        service.upload(run, parts[0], case.stream.encode() if fails else parts[1])
        follower = follow(service, run)
        assert rest(follower)
        service.sealer.seal(service.now(run))
        assert rest(follower) == b""
        assert follower.reason is None
        service.sealer.look()
        if fails:
            with pytest.raises(RunFailedError):
                rest(follower)
        else:
            assert rest(follower) == b""
            assert follower.reason == "sealed"


def test_the_end_of_rows_counts_the_events_of_a_stream_that_goes_on(
    service: Uploads, case: RunCase
) -> None:
    run = service.run(["selt"])
    data = case.stream.encode()
    half = len(data) // 2
    stream = service.extend(service.add(run), data[:half], complete=False)

    def read(**query: str) -> tuple[int, str]:
        lines = get(service, rows_path(run, format="ndjson", **query)).content.splitlines()
        end = json.loads(lines[-1])["end"]
        given = {json.loads(line)["EventId"] for line in lines if b"EventId" in line}
        assert end["events"] >= len(given) > 0
        return end["events"], end["token"]

    events = len({block.event for block in case.stream.blocks})
    first, token = read()
    service.extend(stream, data[half:])
    assert first + read(after=token)[0] == read()[0] == events
