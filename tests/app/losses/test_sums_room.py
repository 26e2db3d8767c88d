"""Memory and disk of sums: charged, bounded, given back, and without influence on a digit."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
import tracemalloc
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.budgets import Budgets
from app.engine.ledger import Ledger
from app.engine.request_budget import BudgetLimits
from app.errors import (
    BusyError,
    InvalidOptionError,
    QuotaExceededError,
    StorageFullError,
    TooLargeError,
)
from app.http.decompression import decoder
from app.losses.answer import give_back
from app.losses.passes import make_pass
from app.losses.posting import Posting
from app.losses.request import LossRequest
from app.losses.spool import Spools, Table
from app.losses.sums_room import Admission, Followed, SumsRoom, hold_for_request
from app.state.presence import Presence
from app.state.reservations import Reservations
from core.arrays import Rows
from core.errors import BudgetExceededError
from core.losses.analysis import Analysis, aggregate
from core.losses.events import StreamHeader
from core.losses.format import SOURCE_SUMMARY, Kind
from core.losses.inputs import Occurrence, encode_occurrence, encode_summary_xref
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.parameters import ReportInputs
from core.losses.samples import SampleSpec, generate_stream
from core.losses.summaries import SummarySets
from tests.app.harness import Answer, Contract, Post, Service, ask, head, is_problem, with_query
from tests.app.losses.posts import put_input
from tests.frames import read_frames
from tests.streams import Block, Stream
from tests.summary_oracle import Sets

OWNER = "alice"
EVENTS = 100
PERIODS = 25
FIRST = 16 << 10
MIB = 1 << 20
FEW = 100 << 10
"""Bytes in which each summary fits, and not all of them."""
STREAM = b"".join(generate_stream(SampleSpec(events=EVENTS, summaries=20, samples=20)))
IDS = np.arange(1, EVENTS + 1, dtype=np.int32)
OCCURRENCE = Occurrence(PERIODS, IDS, IDS % PERIODS + 1, np.zeros(EVENTS, np.int64))
REPORTS = ("aal", "alct")


class Rooms:
    """A room for the sums of one request at a time, and what pays for it."""

    def __init__(
        self, directory: Path, *, disk: int = 1 << 30, quota: int = 1 << 30, limit: int = 1 << 30
    ) -> None:
        self.ledger = Ledger(limit, limit)
        self.reservations = Reservations(Presence(), quota)
        self._spools = Spools(directory, MIB, disk, self.reservations, self.ledger)

    def room(self) -> SumsRoom:
        """A room for the sums of another request."""
        return SumsRoom(self._spools, OWNER, FIRST)

    def compute(self, memory: int = 1 << 30) -> dict[str, bytes]:
        """The reports of the stream, within this memory of a request."""
        tables: dict[str, list[Rows]] = {name: [] for name in REPORTS}
        budgets = Budgets(BudgetLimits(memory=memory), self.ledger)
        room = SumsRoom(self._spools, OWNER, FIRST)
        try:
            with budgets.of_request(OWNER, threading.Event()) as budget:
                analysis = Analysis(
                    REPORTS,
                    lambda name, rows: tables[name].append(rows.copy()),
                    occurrence=OCCURRENCE,
                    resources=room.resources,
                )
                for begin in range(0, len(STREAM), 4000):
                    analysis.receive(STREAM[begin : begin + 4000])
                self.reserved = self.reservations.reserved
                analysis.close()
                self.held = budget.held
        finally:
            room.close()
        return {name: np.concatenate(rows).tobytes() for name, rows in tables.items()}


def unbounded() -> dict[str, bytes]:
    tables: dict[str, Any] = aggregate(STREAM, REPORTS, occurrence=OCCURRENCE)
    return {name: rows.tobytes() for name, rows in tables.items()}


def test_sums_in_memory_count_in_the_budget_of_the_request(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    assert rooms.compute() == unbounded()
    assert rooms.reserved == 0
    assert rooms.held > FIRST
    assert rooms.ledger.held == 0


def test_sums_beyond_the_budget_are_on_the_disk_and_in_the_quota(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    assert rooms.compute(FEW) == unbounded()
    assert rooms.reserved > 0
    assert rooms.reservations.reserved == 0
    assert list(tmp_path.iterdir()) == []


def test_a_summary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path)
    with pytest.raises(BudgetExceededError) as caught:
        rooms.compute(FIRST + 3000)
    assert caught.value.setting == "THALWEG_REQUEST_MEMORY"
    assert "aggregate" in str(caught.value.hint)
    assert rooms.reservations.reserved == 0


def test_a_ledger_that_has_no_memory_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceededError):
        Rooms(tmp_path).compute(FIRST - 1)


def test_the_disk_of_a_request_has_a_limit(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path, disk=5000)
    with pytest.raises(TooLargeError) as caught:
        rooms.compute(FEW)
    assert caught.value.members["setting"] == "THALWEG_SPOOL_LIMIT"
    assert rooms.reservations.reserved == 0


def test_the_disk_of_an_owner_has_a_quota(tmp_path: Path) -> None:
    with pytest.raises(QuotaExceededError):
        Rooms(tmp_path, quota=5000).compute(FEW)


def test_a_full_disk_is_not_the_fault_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_fd: int, _data: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(StorageFullError) as caught:
        Rooms(tmp_path).compute(FEW)
    assert str(tmp_path) not in str(caught.value)


# -- what follows what a small input declares ----------------------------------------------------

MANY = 20_000
"""Occurrences of one event, each of which makes every block of it a sum of its own."""
BLOCKS = 40
SLACK = 16 * MIB


def repeated() -> bytes:
    """A stream of a kilobyte whose one event has many occurrences."""
    losses = ((-1, 3.0), (1, 5.0))
    blocks = tuple(Block(1, summary, losses) for summary in range(1, BLOCKS + 1))
    return Stream("summary", 1, 4, blocks).encode()


def of_many_periods() -> Occurrence:
    periods = np.arange(1, MANY + 1, dtype=np.int32)
    return Occurrence(MANY, np.ones(MANY, np.int32), periods, np.zeros(MANY, np.int64))


def compute_repeated(room: SumsRoom | None, names: tuple[str, ...] = REPORTS) -> dict[str, bytes]:
    tables: dict[str, list[bytes]] = {name: [] for name in names}
    analysis = Analysis(
        names,
        lambda name, rows: tables[name].append(rows.tobytes()),
        occurrence=of_many_periods(),
        resources=None if room is None else room.resources,
    )
    analysis.receive(repeated())
    analysis.close()
    return {name: b"".join(rows) for name, rows in tables.items()}


@pytest.mark.parametrize(("memory", "spills"), [(256 * MIB, False), (12 * MIB, True)])
def test_occurrences_of_an_event_take_no_more_than_is_charged(
    tmp_path: Path, memory: int, spills: bool
) -> None:
    rooms = Rooms(tmp_path)
    whole = compute_repeated(None)
    budgets = Budgets(BudgetLimits(memory=memory), rooms.ledger)
    tracemalloc.start()
    try:
        room = rooms.room()
        with budgets.of_request(OWNER, threading.Event()) as budget:
            assert compute_repeated(room) == whole
            assert room.on_disk == spills
            charged = budget.peak
        room.close()
        assert tracemalloc.get_traced_memory()[1] <= charged + SLACK
    finally:
        tracemalloc.stop()
    assert rooms.ledger.held == 0


def test_posts_at_once_hold_what_the_service_has_or_are_refused(tmp_path: Path) -> None:
    limit = 48 * MIB
    rooms = Rooms(tmp_path, disk=MIB, limit=limit)
    whole = compute_repeated(None)
    budgets = Budgets(BudgetLimits(), rooms.ledger)
    together = threading.Barrier(6)

    def post(number: int) -> str:
        room = rooms.room()
        try:
            with budgets.of_request(f"owner {number}", threading.Event()) as budget:
                together.wait()
                assert budget.run(compute_repeated, room) == whole
                return "computed"
        except (BusyError, TooLargeError) as e:
            return type(e).__name__
        finally:
            room.close()

    tracemalloc.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            outcomes = Counter(pool.map(post, range(6)))
        assert tracemalloc.get_traced_memory()[1] <= limit + SLACK
    finally:
        tracemalloc.stop()
    assert outcomes["computed"] >= 1
    assert outcomes["BusyError"] + outcomes["TooLargeError"] >= 1
    assert rooms.ledger.peak <= limit
    assert rooms.ledger.held == 0


def test_ids_of_events_that_lie_far_apart_are_counted_as_they_come() -> None:
    """Each takes a page of the events seen, of twenty times its bytes."""
    blocks = tuple(Block(event << 12, 1, ((1, 1.0),)) for event in range(1, 20_000))
    stream = Stream("summary", 1, 4, blocks).encode()
    limits = BudgetLimits(memory=32 * MIB)
    with Budgets(limits).of_request(OWNER, threading.Event()) as budget:
        pass_ = make_pass(LossRequest(reports=("melt",)), lambda *_: None, lambda *_: None, None)
        memory = Followed()
        for begin in range(0, len(stream), 1 << 16):
            pass_.receive(memoryview(stream)[begin : begin + (1 << 16)])
            memory.follow(pass_.nbytes)
        assert len(blocks) * 512 <= budget.held <= 2 * len(blocks) * 512
    limits = BudgetLimits(memory=MIB)
    with Budgets(limits).of_request(OWNER, threading.Event()) as budget:
        pass_ = make_pass(LossRequest(reports=("melt",)), lambda *_: None, lambda *_: None, None)
        with pytest.raises(BudgetExceededError):
            budget.run(pass_.receive, memoryview(stream))


def test_sums_of_items_are_counted_before_they_are_made(tmp_path: Path) -> None:
    """With rows that are copied while they grow, and what each set unpacks blocks into."""
    samples, summaries = 100_000, 20
    items = range(1, 11)
    xref = Sets(tuple((n, n, number) for n in items for number in (1, 2))).xref
    blocks = tuple(Block(1, n, ((-1, 1.0), (samples, 1.0))) for n in items)
    stream = Stream("loss", samples, 4, blocks).encode()
    spools = Spools(tmp_path, MIB, MIB, Reservations(Presence(), MIB), Ledger(MIB, MIB))
    request = LossRequest(reports=("melt",), sets=SummarySets(xref))
    ledger = Ledger(1 << 30, 1 << 30)
    with Budgets(None, ledger).of_request(OWNER, threading.Event()) as budget:
        tracemalloc.start()
        try:
            posting = Posting(request, decoder(None, None), spools.new(OWNER))
            budget.run(posting.feed, memoryview(stream))
            taken, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 8 * samples * summaries <= taken <= peak <= ledger.held + 2 * MIB
        assert ledger.held <= 1.3 * peak


def test_more_memory_is_granted_or_required() -> None:
    assert hold_for_request(1 << 50, required=True)
    budgets = Budgets(BudgetLimits(memory=MIB))
    with budgets.of_request(OWNER, threading.Event()) as budget:
        assert hold_for_request(MIB // 2, required=False)
        assert not hold_for_request(MIB, required=False)
        with pytest.raises(BudgetExceededError):
            hold_for_request(MIB, required=True)
        assert budget.held == MIB // 2


def test_a_room_does_not_wait_for_a_collection_of_garbage(tmp_path: Path) -> None:
    spools = Spools(tmp_path, MIB, MIB, Reservations(Presence(), MIB), Ledger(MIB, MIB))
    gc.disable()
    try:
        room = SumsRoom(spools, OWNER)
        room.close()
        left = weakref.ref(room)
        del room
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_what_waits_on_the_disk_is_closed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The kernel frees the pages of a file then, for tens of milliseconds."""
    rooms = Rooms(tmp_path)
    spools = Spools(
        tmp_path, 0 if where == "disk" else MIB, 1 << 30, rooms.reservations, rooms.ledger
    )
    spool, room = spools.new(OWNER), SumsRoom(spools, OWNER)
    spool.put([Table("melt", np.zeros(1000, [("Loss", "<f8")]))])
    assert spool.on_disk == (where == "disk")
    closers: list[threading.Thread] = []
    real = spool.close

    def close() -> None:
        closers.append(threading.current_thread())
        real()

    monkeypatch.setattr(spool, "close", close)
    asyncio.run(give_back(spools, spool, room))
    assert [closer is threading.main_thread() for closer in closers] == [where == "memory"]
    assert not spool.on_disk
    assert rooms.ledger.held == 0


BOUND_IDS = np.arange(1, 31, dtype=np.int32)
BOUND_OCCURRENCE = Occurrence(
    10, BOUND_IDS, (BOUND_IDS % 7 + 1).astype(np.int32), BOUND_IDS.astype(np.int64)
)
BUSY = 7
HUGE = 2**31 - 1
BOUND_STREAM = b"".join(generate_stream(SampleSpec(events=20, summaries=3, samples=6)))


def bound(samples: int, summaries: int = 1, width: int = 4) -> Any:  # noqa: ANN401 - of the engine
    return ledger_bound(make_calendar(BOUND_OCCURRENCE), samples, width, summaries)


def request(report: str = "aal", **options: Any) -> LossRequest:  # noqa: ANN401 - fields
    return LossRequest(
        reports=(report,), inputs=ReportInputs(occurrence=BOUND_OCCURRENCE), **options
    )


@pytest.fixture(scope="module")
def occurrence(service: Service) -> str:
    answer = put_input(service, "occurrence", encode_occurrence(BOUND_OCCURRENCE, "bin"))
    digest: str = answer.json()["digest"]
    return digest


# -- admission -----------------------------------------------------------------------------


def test_sums_that_fit_exactly_are_admitted_and_one_byte_less_is_refused() -> None:
    wanted = request(expect_samples=100, expect_summaries=50)
    state = bound(100, 50).state_bytes
    memory = bound(100).least_budget
    stated = Admission(memory, state - memory).admit(wanted)
    assert stated is not None
    assert (stated.summaries, stated.samples, stated.bound.state_bytes) == (50, 100, state)
    with pytest.raises(TooLargeError) as caught:
        Admission(memory, state - memory - 1).admit(wanted)
    members = caught.value.members
    assert members["setting"] == "THALWEG_SPOOL_LIMIT"
    assert (members["bound"], members["allowed"]) == (state, state - 1)
    with pytest.raises(TooLargeError) as caught:
        Admission(memory - 1, state).admit(wanted)
    assert caught.value.members["setting"] == "THALWEG_REQUEST_MEMORY"
    assert caught.value.members["bound"] == memory


def test_sums_are_tried_where_that_is_asked_for() -> None:
    wanted = request(expect_samples=100, expect_summaries=50, refuses_over_bound=False)
    assert Admission(0, 0).admit(wanted) is not None


def test_the_bound_is_of_one_summary_where_their_number_is_unknown() -> None:
    header = StreamHeader(Kind.SUMMARY, 1, SOURCE_SUMMARY, 9, 1, 4)
    stated = Admission(0, 0).admit(request(), header)
    assert stated is not None
    assert stated.summaries is None
    assert stated.bound == bound(9)


def test_without_samples_or_sums_nothing_is_bounded() -> None:
    everything = Admission(0, 0)
    assert everything.admit(request(expect_summaries=HUGE)) is None
    assert everything.admit(request("melt", expect_summaries=HUGE, expect_samples=9)) is None


def test_other_samples_than_declared_are_refused() -> None:
    header = StreamHeader(Kind.SUMMARY, 1, SOURCE_SUMMARY, 9, 1, 4)
    with pytest.raises(InvalidOptionError, match="9 samples, but expect_samples is 8"):
        Admission(1 << 40, 0).admit(request("melt", expect_samples=8), header)


# -- over HTTP -----------------------------------------------------------------------------


def test_too_much_is_refused_before_the_body(service: Service, occurrence: str) -> None:
    query = {"occurrence": occurrence, "expect_samples": 1000, "expect_summaries": HUGE}
    path = with_query("/v1/losses/aal", query)
    with service.connect() as client:
        # Not a byte of the body is sent.
        client.sendall(head("POST", path, [("Content-Length", "1000000000")]))
        answer = Answer(client, "POST")
    found = is_problem(answer, "too-large", 413)
    assert found["setting"] == "THALWEG_SPOOL_LIMIT"
    assert found["bound"] == bound(1000, HUGE).state_bytes > found["allowed"]
    assert str(found["bound"]) in found["detail"]
    assert "over_bound=try" in found["hint"]


def test_too_much_is_refused_at_the_header_of_the_stream(
    service: Service, contract: Contract, occurrence: str
) -> None:
    query = {"occurrence": occurrence, "expect_summaries": HUGE, "reports": "melt,aal"}
    path = with_query("/v1/losses", query)
    answer = contract.check("POST", path, ask(service, Post(path, [BOUND_STREAM])))
    assert is_problem(answer, "too-large", 413)["limit"] == "ledger_bound"
    path = with_query("/v1/losses", query | {"over_bound": "try"})
    assert ask(service, Post(path, [BOUND_STREAM])).status == 200


def test_answers_state_the_bound(service: Service, occurrence: str) -> None:
    path = with_query("/v1/losses/aal", {"occurrence": occurrence, "expect_summaries": 5})
    answer = ask(service, Post(path, [BOUND_STREAM]))
    expected = bound(6, 5)
    assert int(answer.getheader("Thalweg-Ledger-Bound") or "") == expected.state_bytes
    end = read_frames(ask(service, Post(f"{path}&format=frames", [BOUND_STREAM])).body)[-1].header
    assert end["ledger_bound"] == {
        "summaries": 5,
        "samples": 6,
        "state_bytes": expected.state_bytes,
        "memory_bytes": expected.least_budget,
    }
    path = with_query("/v1/losses/aal", {"occurrence": occurrence, "expect_summaries": 1})
    found = is_problem(ask(service, Post(path, [BOUND_STREAM])), "option", 422)
    assert "summaries, but expect_summaries is 1" in found["detail"]
    path = with_query("/v1/losses/aal", {"occurrence": occurrence})
    answer = ask(service, Post(path, [BOUND_STREAM]))
    assert answer.getheader("Thalweg-Ledger-Bound") is None
    end = read_frames(ask(service, Post(f"{path}&format=frames", [BOUND_STREAM])).body)[-1].header
    assert end["ledger_bound"]["summaries"] is None
    assert end["ledger_bound"]["state_bytes"] == bound(6).state_bytes


def test_an_xref_tells_the_number_of_summaries(service: Service, occurrence: str) -> None:
    rows = tuple((item, summary, 1) for item, summary in ((1, 1), (2, 1), (3, 2)))
    xref = encode_summary_xref(Sets((*rows, (1, 9, 3), (2, 9, 3), (3, 9, 3))).xref, "bin")
    digest = put_input(service, "summary_xref", xref).json()["digest"]
    query = {"occurrence": occurrence, "summary_xref": digest, "format": "frames"}
    data = Stream("loss", 2, 4, (Block(1, 1, ((-3, 1.0), (-1, 1.0), (1, 2.0))),)).encode()
    path = with_query("/v1/losses/aal", query)
    end = read_frames(ask(service, Post(path, [data])).body)[-1].header
    assert end["ledger_bound"]["summaries"] == 3
    assert end["ledger_bound"]["state_bytes"] == bound(2, 3).state_bytes


def test_samples_are_as_declared(service: Service) -> None:
    path = "/v1/losses/melt?expect_samples=6"
    assert ask(service, Post(path, [BOUND_STREAM])).status == 200
    answer = ask(service, Post("/v1/losses/melt?expect_samples=7", [BOUND_STREAM]))
    is_problem(answer, "option", 422, option="expect_samples")


# -- events of only one side ---------------------------------------------------------------


@pytest.mark.parametrize("report", ["splt", "aal", "melt"])
def test_events_that_only_occur_are_counted(
    service: Service, contract: Contract, occurrence: str, report: str
) -> None:
    path = with_query(f"/v1/losses/{report}", {"occurrence": occurrence})
    answer = contract.check("POST", path, ask(service, Post(path, [BOUND_STREAM])))
    assert answer.getheader("Thalweg-Events-Only-In-Occurrence") == "10"
    assert answer.getheader("Thalweg-Events-Without-Occurrence") == "0"
    end = read_frames(ask(service, Post(f"{path}&format=frames", [BOUND_STREAM])).body)[-1].header
    assert end["events_only_in_occurrence"] == 10


def test_parts_do_not_tell_which_events_only_occur(service: Service, occurrence: str) -> None:
    path = with_query("/v1/losses/splt", {"occurrence": occurrence})
    first = ask(service, Post(path, [BOUND_STREAM[:900]], [("Upload-Complete", "?0")]))
    token, begin = (first.getheader(f"Thalweg-{name}") for name in ("Token", "Offset"))
    rest = ask(service, Post(f"{path}&after={token}", [BOUND_STREAM[int(begin or 0) :]]))
    for answer in (first, rest):
        assert answer.status == 200
        assert answer.getheader("Thalweg-Events-Only-In-Occurrence") is None
