"""Uploads, whatever their protocol: offsets, takeovers, faults, limits, and what a crash leaves."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.app.harness import Answer, Service, head, is_problem, wait_until
from tests.app.losses.posts import put_input
from tests.app.runs.requests import BYTES, EVENT, TUS, Uploader, stream
from tests.scale import PURE_PYTHON, SOAK

KILLS = 100 if SOAK else 4
OPEN = 600 if SOAK else 100
"""Requests that wait for bytes at once; an owner may have 716."""
HEADER = len(stream(0))
GOOD = stream()
QUOTA = 12 * (KILLS + 10) * EVENT


@pytest.fixture
def up(service: Service) -> Uploader:
    return Uploader(service)


def fault(data: bytes, event: int) -> bytes:
    """The stream with an invalid sample in the first block of an event."""
    changed = bytearray(data)
    at = HEADER + EVENT * (event - 1) + 12
    changed[at : at + 4] = (99).to_bytes(4, "little")
    return bytes(changed)


# -- bytes and offsets ------------------------------------------------------------------


def test_a_stream_comes_in_parts_of_any_size(up: Uploader) -> None:
    address, at = up.create(len(GOOD)), 0
    sizes = itertools.cycle([1, 7, 500, EVENT, 3 * EVENT + 2, 900])
    while at < len(GOOD):
        part = GOOD[at : at + next(sizes)]
        answer = up.patch(address, at, part)
        assert answer.status == 204, answer.body
        at += len(part)
        assert answer.getheader("Upload-Offset") == str(at)
    (found,) = up.streams()
    assert (found["state"], found["events"], found["offset"]) == ("complete", 50, len(GOOD))
    assert up.describe()["streams"] == {"created": 0, "uploading": 0, "complete": 1, "failed": 0}
    answer = up.patch(address, at, b"more")
    assert is_problem(answer, "upload-complete", 409)["expected_offset"] == at
    assert up.patch(address, at, b"").status == 204


def test_another_offset_is_refused_and_changes_nothing(up: Uploader) -> None:
    address = up.create(len(GOOD))
    assert up.patch(address, 0, GOOD[:100]).status == 204
    for offset in (0, 99, 101, 10**17):
        found = is_problem(
            up.patch(address, offset, GOOD[offset : offset + 10]), "offset-mismatch", 409
        )
        assert (found["expected_offset"], found["provided_offset"]) == (100, offset)
    found = is_problem(up.patch(address, 2**64, b""), "offset-mismatch", 409)
    assert (found["expected_offset"], found["provided_offset"]) == (100, str(2**64))
    assert up.patch(address, 100, GOOD[100:]).status == 204


def test_lengths(up: Uploader) -> None:
    address = up.create()
    assert up.ask("HEAD", address, **TUS).getheader("Upload-Defer-Length") == "1"
    assert up.patch(address, 0, GOOD[:50]).status == 204
    problem = is_problem(up.patch(address, 50, b"", Upload_Length=20), "upload-length", 400)
    assert problem["detail"] == "the request declares 20 bytes, and the upload has 50 already"
    is_problem(up.patch(address, 2**63, b"more"), "offset-mismatch", 409)
    assert up.patch(address, 50, GOOD[50:100], Upload_Length=len(GOOD)).status == 204
    is_problem(up.patch(address, 100, b"", Upload_Length=5000), "upload-length", 400)
    is_problem(up.patch(address, 100, GOOD[100:] + b"more"), "upload-excess", 413)
    assert up.offset(address) == 100
    assert up.patch(address, 100, GOOD[100:]).status == 204
    is_problem(up.ask("POST", f"{up.path}/streams", **TUS, Upload_Length=0), "stream-empty")
    for fields in (TUS, {"Upload_Complete": "?0", "Upload_Draft_Interop_Version": 8}):
        for length in (2**59, 2**63, 10**40):
            answer = up.ask("POST", f"{up.path}/streams", **fields, Upload_Length=length)
            problem = is_problem(answer, "too-large", 413)
            assert problem["detail"] == f"an upload may have {1 << 40} bytes, not {length}"
            assert (problem["limit"], problem["allowed"]) == ("upload", 1 << 40)


def test_metrics_count_runs_parts_bytes_and_seals(up: Uploader) -> None:
    def counts() -> dict[str, float]:
        text = up.service.get("/metrics").body.decode()
        found = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("thalweg_")]
        return {name: float(value) for name, value in found}

    before = counts()
    other = Uploader(up.service)
    address = other.create()
    assert other.patch(address, 0, GOOD[:60]).status == 204
    is_problem(other.patch(address, 20, GOOD[20:]), "offset-mismatch", 409)
    with other.sending(address, 60, GOOD[60:80], 500):
        wait_until(lambda: up.service.metric("thalweg_uploads_running") == 1)
        time.sleep(0.3)  # for its bytes, which are lost with a connection that is cut before
    # The next one would end it otherwise, which counts as a refusal.
    wait_until(lambda: up.service.metric("thalweg_uploads_running") == 0)
    assert other.offset(address) == 80
    assert other.patch(address, 80, GOOD[80:], Upload_Length=len(GOOD)).status == 204
    assert other.ask("POST", f"{other.path}/seal", b"{}").status == 202
    wait_until(lambda: other.describe()["state"] == "done")
    assert other.ask("DELETE", other.path).status == 204
    wait_until(lambda: up.service.metric("thalweg_uploads_running") == 0)
    # It is timed after its state has been stored.
    sealed = 'thalweg_seal_seconds_count{outcome="done"}'
    wait_until(lambda: counts().get(sealed, 0) > before.get(sealed, 0))
    after = counts()

    def more(name: str) -> float:
        return after[f"thalweg_{name}"] - before.get(f"thalweg_{name}", 0)

    for state in ("created", "uploading", "sealed", "computing", "done", "deleted"):
        assert more(f'runs_total{{state="{state}"}}') == 1
    for outcome, count in (("accepted", 2), ("refused", 1), ("cut", 1)):
        assert more(f'upload_parts_total{{outcome="{outcome}"}}') == count
    assert more("upload_bytes_total") == len(GOOD)
    assert more('seal_seconds_count{outcome="done"}') == 1
    assert more('seal_seconds_sum{outcome="done"}') > 0


def test_a_partition_is_chosen_once(up: Uploader) -> None:
    third = up.create(None, "?partition=3")
    encoded = base64.b64encode(b"2").decode()
    up.create(Upload_Metadata=f"filename eA==,partition {encoded}")
    up.create()
    assert [s["partition"] for s in up.streams()] == [1, 2, 3]
    assert up.patch(third, 0, GOOD[:50]).status == 204
    answer = up.ask("POST", f"{up.path}/streams?partition=3", **TUS, Upload_Length=5)
    assert is_problem(answer, "partition-taken", 409)["address"] == third
    declared = Uploader(up.service, options={"partitions": 1})
    declared.create()
    answer = declared.ask("POST", f"{declared.path}/streams", **TUS, Upload_Length=5)
    is_problem(answer, "stream-limit", 422)


# -- faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, HEADER + 20 * EVENT, HEADER + 28 * EVENT + 40])
def test_a_fault_stops_the_offset_at_the_last_good_event(up: Uploader, cut: int | None) -> None:
    data = fault(GOOD, 30)
    address, at = up.create(len(data)), 0
    if cut is not None:
        assert up.patch(address, 0, data[:cut]).status == 204
        at = cut
    answer = up.patch(address, at, data[at:])
    found = is_problem(answer, "sample-range")
    assert (found["event"], found["offset"]) == (30, HEADER + 29 * EVENT + 12)
    end = HEADER + 29 * EVENT
    assert answer.getheader("Upload-Offset") == str(end)
    assert up.offset(address) == end
    (listed,) = up.streams()
    assert (listed["state"], listed["events"]) == ("failed", 29)
    assert listed["fault"]["code"] == "sample-range"
    assert is_problem(up.patch(address, end, b"more"), "stream-failed", 409)["fault"]["event"] == 30
    # To delete it and upload it again repairs the run.
    assert up.ask("DELETE", address, **TUS).status == 204
    assert up.ask("HEAD", address, **TUS).status == 404
    up.upload(GOOD)
    assert up.streams()[0]["partition"] == 1


def test_what_was_acknowledged_stays_even_if_its_event_is_faulty(up: Uploader) -> None:
    data = fault(GOOD, 3)
    cut = HEADER + 2 * EVENT + 12
    address = up.create(len(data))
    assert up.patch(address, 0, data[:cut]).status == 204
    is_problem(up.patch(address, cut, data[cut:]), "sample-range")
    assert up.offset(address) == cut


def test_a_truncated_stream_fails_when_it_is_said_to_be_complete(up: Uploader) -> None:
    address = up.create(len(GOOD) - 8)
    is_problem(up.patch(address, 0, GOOD[:-8]), "stream-truncated")
    assert up.offset(address) == HEADER + 49 * EVENT
    (listed,) = up.streams()
    assert (listed["state"], listed["fault"]["code"]) == ("failed", "stream-truncated")


def test_items_are_refused_at_their_header_where_nothing_says_what_to_add_up(
    service: Service,
) -> None:
    run = Uploader(service, reports=["ept"])
    data = stream(3, "gul")
    answer = run.patch(run.create(len(data)), 0, data[:40])
    assert "summary_xref" in is_problem(answer, "stream-unsupported")["hint"]
    events = Uploader(service, reports=["events"])
    events.upload(data)


def test_items_are_required_where_the_run_has_a_summary_xref(service: Service) -> None:
    xref = put_input(service, "summary_xref", b"output,summary_id,summaryset_id\n1,1,1\n2,1,1\n")
    inputs = {"summary_xref": xref.json()["digest"]}
    up = Uploader(service, perspective="il", inputs=inputs)
    is_problem(up.patch(up.create(), 0, GOOD), "stream-unsupported")
    up.upload(stream(kind="loss"))


def test_chunks_and_bodies_that_end_early(up: Uploader) -> None:
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:1000], len(GOOD)):
        wait_until(lambda: up.streams()[0]["offset"] == 1000)
    with up.sending(address, 1000, b"zz\r\n", 0, **{"Transfer-Encoding": "chunked"}) as client:
        assert Answer(client, "PATCH").status == 400
    assert up.patch(address, up.offset(address), GOOD[1000:]).status == 204


def test_a_checksum_is_verified_before_a_byte_is_taken(up: Uploader) -> None:
    address = up.create(len(GOOD))
    for name, algorithm in (("sha1", hashlib.sha1), ("sha256", hashlib.sha256)):
        offset = up.offset(address)
        part = GOOD[offset : offset + 500]
        right = base64.b64encode(algorithm(part).digest()).decode()
        wrong = base64.b64encode(algorithm(b"").digest()).decode()
        is_problem(
            up.patch(address, offset, part, Upload_Checksum=f"{name} {wrong}"),
            "checksum-mismatch",
            460,
        )
        assert up.offset(address) == offset
        assert up.patch(address, offset, part, Upload_Checksum=f"{name} {right}").status == 204
    for text in ("md5 abc", "sha1", "sha1 AAAA", ""):
        is_problem(up.patch(address, 1000, b"x", Upload_Checksum=text), "bad-request")
    with up.sending(
        address,
        1000,
        b"",
        65 << 20,
        **{"Upload-Checksum": f"sha1 {wrong_sha1()}", "Expect": "100-continue"},
    ) as client:
        assert Answer(client, "PATCH").status == 413


@pytest.mark.parametrize("how", ["wrong", "cut"])
def test_a_creation_whose_bytes_were_not_taken_may_be_repeated(up: Uploader, how: str) -> None:
    path = f"{up.path}/streams?partition=1"
    right = base64.b64encode(hashlib.sha1(GOOD, usedforsecurity=False).digest()).decode()
    fields = {**BYTES, "Upload-Length": len(GOOD)}
    if how == "wrong":
        checked = {**fields, "Upload-Checksum": f"sha1 {wrong_sha1()}"}
        is_problem(up.ask("POST", path, GOOD, **checked), "checksum-mismatch", 460)
    else:
        checked = {**fields, "Upload-Checksum": f"sha1 {right}", "Content-Length": len(GOOD)}
        with up.service.connect() as client:
            client.sendall(head("POST", path, [(k, str(v)) for k, v in checked.items()]))
            client.sendall(GOOD[:500])
            wait_until(lambda: len(up.streams()) == 1)
            # Until the bytes are there, or are known not to come, nobody else has the partition.
            is_problem(up.ask("POST", path, GOOD, **fields), "partition-taken", 409)
    repeated = {**fields, "Upload-Checksum": f"sha1 {right}"}
    wait_until(lambda: up.ask("POST", path, GOOD, **repeated).status == 201)
    (found,) = up.streams()
    assert (found["state"], found["offset"]) == ("complete", len(GOOD))


def test_a_client_that_leaves_at_once_may_repeat_its_creation(up: Uploader) -> None:
    fields = {**BYTES, "Upload-Length": len(GOOD)}
    cut = [(k, str(v)) for k, v in {**fields, "Content-Length": len(GOOD)}.items()]
    paths = [f"{up.path}/streams?partition={number}" for number in range(1, 21)]
    for number, path in enumerate(paths):
        with up.service.connect() as client:
            client.sendall(head("POST", path, cut))
            time.sleep(number * 0.0005)
    while paths:
        # The server may not know yet that the client has left.
        wait_until(lambda: up.ask("POST", paths[-1], GOOD, **fields).status == 201)
        paths.pop()


def wrong_sha1() -> str:
    return base64.b64encode(bytes(20)).decode()


# -- takeover ---------------------------------------------------------------------------


def test_a_second_request_takes_over_at_once(up: Uploader) -> None:
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:300], len(GOOD)) as first:
        # To ask for the offset ends the first, and what it sent counts.
        wait_until(lambda: up.streams()[0]["offset"] == 300)
        assert up.offset(address) == 300
        is_problem(Answer(first, "PATCH"), "upload-taken", 409)
        assert up.patch(address, 300, GOOD[300:]).status == 204
    assert up.streams()[0]["state"] == "complete"


def test_deleting_ends_what_is_being_sent(up: Uploader) -> None:
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:300], len(GOOD)) as first:
        wait_until(lambda: up.streams()[0]["offset"] == 300)
        assert up.ask("DELETE", address, **TUS).status == 204
        found = is_problem(Answer(first, "PATCH"), "upload-taken", 409)
        assert "deleted this upload" in found["detail"]
    assert up.streams() == []


def test_clients_that_race_store_one_stream(up: Uploader) -> None:
    address = up.create(len(GOOD))

    def race(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - the sizes of parts
        while True:
            at = up.offset(address)
            if at == len(GOOD):
                return
            up.patch(address, at, GOOD[at : at + chance.randrange(1, 1500)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(race, range(3)))
    (found,) = up.streams()
    assert (found["state"], found["events"]) == ("complete", 50)


# -- two servers ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """Two servers on one store, as workers or machines that share it."""
    if PURE_PYTHON:
        pytest.skip("the server is a process of its own, whatever kernels are here")
    where = tmp_path_factory.mktemp("both")
    one = Service(where / "one", quota_stream_bytes=QUOTA, drain_seconds=2)
    other_place = where / "other"
    other_place.mkdir()
    (other_place / "data").symlink_to(one.data_dir)
    other = Service(other_place)
    try:
        yield one, other
        assert (one.stop(), other.stop()) == (0, 0)
        assert not [*one.failures(), *other.failures()]
    finally:
        one.kill()
        other.kill()


def test_the_other_takes_over_and_late_bytes_never_count(both: tuple[Service, Service]) -> None:
    one, other = both
    up = Uploader(one)
    there = Uploader(other, up.path.rpartition("/")[2])
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:300], len(GOOD)) as first:
        wait_until(lambda: up.streams()[0]["offset"] == 300)
        assert there.offset(address) == 300
        assert there.patch(address, 300, GOOD[300:800]).status == 204
        # These come too late: another request has the stream.
        first.sendall(GOOD[300:700] + bytes(len(GOOD) - 700))
        assert Answer(first, "PATCH").status >= 400
    assert up.offset(address) == 800
    assert up.patch(address, 800, GOOD[800:]).status == 204
    assert there.streams()[0]["state"] == "complete"


def test_an_upload_whose_run_is_deleted_elsewhere_is_told_so(both: tuple[Service, Service]) -> None:
    one, other = both
    up = Uploader(one)
    there = Uploader(other, up.path.rpartition("/")[2])
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:300], len(GOOD)) as first:
        wait_until(lambda: up.streams()[0]["offset"] == 300)
        assert there.ask("DELETE", up.path).status == 204
        first.sendall(GOOD[300:])
        found = is_problem(Answer(first, "PATCH"), "upload-taken", 409)
    assert found["detail"] == "another request has deleted this upload, or its run"
    assert up.ask("HEAD", address, **TUS).status == 404


def _has_read(service: Service, count: float) -> bool:
    return service.metric("thalweg_upload_bytes_total") == count


def test_what_came_elsewhere_is_committed_before_the_offset_is_told(
    both: tuple[Service, Service],
) -> None:
    one, other = both
    up = Uploader(one)
    there = Uploader(other, up.path.rpartition("/")[2])
    for is_cut in (False, True):
        address = up.create(len(GOOD))
        whole = one.metric("thalweg_upload_bytes_total") + 500
        with up.sending(address, 0, GOOD[:300], len(GOOD)) as first:
            first.sendall(GOOD[300:500])
            wait_until(partial(_has_read, one, whole))
            if is_cut:
                first.close()
            assert there.offset(address) == 500
        assert up.ask("DELETE", address).status == 204


def test_a_quota_of_bytes_ends_an_append_before_it(both: tuple[Service, Service]) -> None:
    up = Uploader(both[0])
    before = sum(
        run["bytes"]
        for run in (
            up.ask("GET", f"/v1/runs/{r['id']}").json()
            for r in up.ask("GET", "/v1/runs").json()["runs"]
        )
    )
    half = stream(QUOTA // 2 // EVENT)
    assert up.patch(up.create(len(half)), 0, half).status == 204
    left = QUOTA - before - len(half)
    data = stream(3 * QUOTA // 4 // EVENT)
    address = up.create(len(data))
    assert up.patch(address, 0, data[:left]).status == 204
    found = is_problem(up.patch(address, left, data[left:]), "quota-exceeded", 429)
    assert found["limit"] == "streams.bytes"
    assert up.offset(address) == left
    # One that could never fit is not even begun.
    vain = is_problem(
        up.ask("POST", f"{up.path}/streams", **TUS, Upload_Length=str(QUOTA + 1)), "too-large", 413
    )
    assert (vain["allowed"], vain["setting"]) == (QUOTA, "THALWEG_QUOTA_STREAM_BYTES")
    assert up.ask("DELETE", up.path).status == 204


def test_idle_uploads_hold_little(both: tuple[Service, Service]) -> None:
    up = Uploader(both[0])
    addresses = [up.create(len(GOOD)) for _ in range(200 if not SOAK else 1000)]
    files, resident = up.service.descriptors(), up.service.memory()
    with contextlib.ExitStack() as stack:
        for address in addresses[:OPEN]:
            stack.enter_context(up.sending(address, 0, GOOD[:16], len(GOOD)))
        wait_until(lambda: up.service.metric("thalweg_requests_running") == OPEN + 1)
        wait_until(lambda: up.service.metric("thalweg_buffers_used") == 0)
        wait_until(lambda: up.describe()["bytes"] == 16 * OPEN)
        # A connection and a file each, what checks the stream, and the small buffer of a body
        # that waits.
        assert up.service.descriptors() - files <= 2 * OPEN + 10
        assert up.service.memory() - resident <= (OPEN + 20) * 600_000
    wait_until(lambda: up.service.metric("thalweg_requests_running") == 1)


def test_a_server_that_stops_keeps_what_came(both: tuple[Service, Service]) -> None:
    one, other = both
    up = Uploader(one)
    there = Uploader(other, up.path.rpartition("/")[2])
    address = up.create(len(GOOD))
    with up.sending(address, 0, GOOD[:300], len(GOOD)) as client:
        wait_until(lambda: there.streams()[0]["offset"] == 300)
        client.sendall(GOOD[300:500])
        one.term()
        is_problem(Answer(client, "PATCH"), "draining", 503)
    assert one.end() == 0
    assert there.offset(address) == 500
    one.start()
    assert up.patch(address, 500, GOOD[500:]).status == 204


def test_uploads_go_on_after_every_kill(both: tuple[Service, Service]) -> None:
    one, other = both
    up, there = Uploader(one), Uploader(other, None)
    there.path = up.path
    events = 12 * KILLS
    data = stream(events)
    chance = random.Random(5)  # noqa: S311 - as above
    address, at, kills = up.create(len(data)), 0, 0
    while at < len(data):
        client = there if kills == KILLS or chance.random() < 0.5 else up
        if client is up and kills < KILLS:
            size = chance.randrange(300)
            with up.sending(address, at, data[at : at + size], len(data) - at):
                if chance.random() < 0.5:
                    there.streams()
                one.kill()
            one.start()
            kills += 1
        elif kills < KILLS:
            client.patch(address, at, data[at : at + chance.randrange(1, 200)])
        else:
            client.patch(address, at, data[at:])
        now = there.offset(address)
        assert now >= at
        at = now
    (found,) = there.streams()
    assert (found["state"], found["events"]) == ("complete", events)
    assert kills == KILLS
