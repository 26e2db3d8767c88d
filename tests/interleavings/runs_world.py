"""Runs and their uploads: processes of the service, what clients do, and what has to hold."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar, cast

import pytest

from app.errors import NotFoundError
from app.http.identity import USER_SCOPES, Identity
from app.runs import sweeping
from app.runs.records import REPORT, RunRecord, StreamRecord
from app.runs.results.files import Published
from app.runs.sealing import lease, sealer
from app.runs.sealing.jobs import ATTEMPTS, Job, Jobs, Variant
from app.runs.sealing.lease import Lease
from app.runs.sealing.sealer import Sealer
from app.runs.sealing.work import SealingContext
from app.runs.store import Runs
from app.runs.streams import Streams
from app.runs.sweeping import Removal
from app.runs.uploads.appending import Appending, AppendRequest, Terms
from app.runs.uploads.uploads import Uploads, _finish
from app.state import presence
from app.state.ownership import Namespaces
from app.state.presence import Presence
from app.state.quotas import AdmittedRecords, Quotas
from app.state.sweeper import Chore
from core.errors import EmptyStreamError
from core.losses.policy import Policy
from tests.app.runs.requests import EVENT, stream

from .points import PointedBlobs, PointedRecords, PointedWatch, Shared, age
from .scheduler import Scheduler

T = TypeVar("T")

ALICE = Identity("alice", USER_SCOPES)
SPEC = {"perspective": "gul", "reports": ["melt"], "options": {}}
KEY = "key of the run"
LEASE = 1e6
DAY = 86400.0
MOST = 1 << 20
DATA = {number: stream(3, first=10 * number) for number in (1, 2, 3)}
"""The bytes of each partition."""
OTHER = stream(3, first=50)
"""Of partition 1, by another client."""
ANY = stream(3, first=70)
"""Of whichever partition is free."""
CUT = len(DATA[1]) - 2 * EVENT
UNFIT = EmptyStreamError("nothing is there", offset=0)
MORE = Job("alice", "", ("elt",), Variant({"sets": [1]}), seals=False)
"""What is computed besides what the run was created for."""


class _Threads:
    """Workers that are done at once."""

    async def start(self, work: Callable[..., T], *args: Any) -> T:  # noqa: ANN401 - as Workers
        return work(*args)

    quick = start


class _Losses:
    """What uploads and sealing use of a LossService here."""

    threads = _Threads()


class _Workshop(SealingContext):
    """A sealing whose requests need no inputs."""

    ends: Callable[[], None] | None = None
    """Raises what ends work on a job before anything is published."""

    def request(self, run: RunRecord, variant: Variant, reports: Sequence[str]) -> Any:  # noqa: ANN401
        return (run, variant, reports)


class _Elsewhere(Presence):
    """A process on another machine, from where no end of a process is seen."""

    def is_near(self, name: str) -> bool:
        return name == self.name


class ListingWork:
    """In the place of SealingWork: publishes what streams there are, and their bytes' digests."""

    def __init__(
        self, sealing: SealingContext, run: RunRecord, job: Job, proceed: Callable[[int, int], None]
    ) -> None:
        streams = sealing.streams
        self._run, self._job, self._proceed = run, job, proceed
        self._stored = [streams.stored(stream) for stream in streams.of(run)]
        self._files = published(sealing, run)
        # Signs of life are given here, in no thread.
        self._lease = cast("Any", proceed).__self__
        self._ends = cast("_Workshop", sealing).ends

    def run(self) -> None:
        self._lease.renew()
        self._proceed(0, len(self._stored))
        if self._ends is not None:
            self._ends()
        rows = {}
        for stored in self._stored:
            rows[stored.record.partition] = digest(stored.read(0, stored.size))
            self._proceed(len(rows), len(self._stored))
        for report in self._job.reports:
            name = f"{report}.{self._job.variant.name}"
            if self._files.find(name) is None:
                writer = self._files.writer(name)
                writer.write(json.dumps(rows).encode())
                self._files.publish(writer)

    def remarks(self) -> dict[str, int | str]:
        return {}


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def published(sealing: SealingContext, run: RunRecord) -> Published:
    """The published reports of a run."""
    things = Namespaces(sealing.records, REPORT)
    return Published(things, sealing.streams.blobs, REPORT, run.owner, run.files)


@contextmanager
def exploring() -> Iterator[Scheduler]:
    """Provide a scheduler, and let executions repeat themselves."""
    scheduler = Scheduler()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", scheduler.token)
        patch.setattr(secrets, "token_urlsafe", scheduler.token)
        # Asked for of the system by each process of each execution.
        patch.setattr(presence, "_machine", lambda: "machine")
        patch.setattr(sealer, "SealingWork", ListingWork)
        # No thread is needed that gives no sign of life in all that time.
        patch.setattr(Lease, "kept", lambda *_: contextlib.nullcontext())
        patch.setattr(lease, "LOOK_SECONDS", LEASE)
        yield scheduler
    scheduler.close()


class Process:
    """A process of the service, as far as runs go."""

    def __init__(self, shared: Shared, later: float = 0.0) -> None:
        self.shared = shared
        self.later = later
        """By which its clock, and only that, is ahead."""
        records = AdmittedRecords(PointedRecords(shared), Quotas(shared.limits), self.clock)
        blobs = PointedBlobs(shared)
        self.runs = Runs(records, 30.0, PointedWatch(shared.scheduler), self.clock)
        self.streams = Streams(records, blobs, self.runs, self.clock)
        self.removal = Removal(self.streams, records)
        losses = cast("Any", _Losses())
        self.uploads = Uploads(self.streams, losses, losses.threads, (MOST, ""))
        # Time passes nowhere here.
        self.uploads.patience = 0
        self.sealing = _Workshop(self.streams, records, losses, cast("Any", None))
        self._records, self._blobs = records, blobs

    @cached_property
    def sealer(self) -> Sealer:
        """What seals, which reads files for its name."""
        return Sealer(self.sealing, Jobs(self._records, LEASE, self.clock), interval=0.0)

    @cached_property
    def chores(self) -> dict[str, Chore]:
        """What its sweeper does."""
        clock = self.clock
        return sweeping.chores(self.removal, self._records, self._blobs, clock, clock)

    def clock(self) -> float:
        # A run that is created again is created later.
        self.shared.now += 1e-6
        return self.shared.now + self.later

    # -- what clients ask for ------------------------------------------------------------

    def run(self) -> RunRecord:
        """The run, of which there is one."""
        return self.runs.own(ALICE, self.run_id)

    @property
    def run_id(self) -> str:
        return self.shared.names["run"]

    def create(
        self, partition: int | None, request: AppendRequest | None = None
    ) -> tuple[RunRecord, StreamRecord]:
        run = self.run()
        self.runs.check_open(run)
        template = StreamRecord(run.id, "", run.owner, 0, 0.0)
        return run, self.uploads.create(run, template, partition, request)

    def post(self, partition: int | None, data: bytes, *, last: bool = True) -> StreamRecord:
        """Create a stream with all of its bytes, or some."""
        request = AppendRequest(0, last=last)
        _run, made = self.create(partition, request)
        try:
            return self.receive(made, request, data)
        except BaseException:
            driven(self.uploads._give_up(made))
            raise

    def continue_(self, partition: int, data: bytes) -> StreamRecord:
        """Append the rest to the stream that was there when all began."""
        run = self.run()
        known = self.streams.get(run, self.first(partition))
        request = AppendRequest(known.offset, last=True)
        taken = self.uploads.take(run, known.id, request)
        return self.receive(taken, request, data[known.offset :])

    def append_checked(self, partition: int, data: bytes) -> StreamRecord:
        """Append the rest with a checksum, which is verified before."""
        run = self.run()
        known = self.streams.get(run, self.first(partition))
        rest = data[known.offset :]
        request = AppendRequest(
            known.offset,
            last=True,
            checksums=(("sha1", hashlib.sha1(rest).digest()),),  # noqa: S324
        )
        self.uploads.check(run, known.id, request)
        return self.receive(self.uploads.take(run, known.id, request), request, rest)

    def first(self, partition: int) -> str:
        """Id of a partition's stream when all began."""
        return self.shared.names[f"partition {partition}"]

    def receive(self, record: StreamRecord, request: AppendRequest, data: bytes) -> StreamRecord:
        """Append as ``Uploads.append`` does, in three parts, in one thread."""
        if record.complete:
            return record
        appending = Appending(
            self.streams,
            record,
            Policy(),
            takes_items=None,
            terms=Terms(record.length, request.last, MOST, ""),
            tell=lambda _enough: None,
        )
        failure: Exception | None = None
        try:
            for part in _thirds(data):
                appending.feed(memoryview(part))
                appending.commit()
            appending.finish()
        except Exception as e:  # noqa: BLE001 - as a task keeps it
            failure = e
        try:
            _finish(appending, failure)
        finally:
            appending.close()
        return appending.record

    def look(self, partition: int) -> StreamRecord:
        """Ask for the offset, which ends an append elsewhere."""
        run = self.runs.get(ALICE, self.run_id)
        return driven(self.uploads.look(run, self.first(partition)))

    def delete_stream(self, partition: int) -> str:
        run, ident = self.run(), self.first(partition)
        driven(self.uploads.delete(run, ident))
        return ident

    def create_run(self) -> None:
        """Create the run again by its key."""
        self.runs.create(ALICE, SPEC, {}, key=KEY)

    def create_other_run(self, key: str) -> None:
        self.runs.create(ALICE, SPEC, {}, key=key)

    def delete_run(self) -> None:
        self.removal.delete(ALICE, self.run_id)

    def seal(self) -> RunRecord:
        return self.sealer.seal(self.run())

    def compute_more(self) -> bool:
        """Have another report computed of a run that is done, as clients may; return whether it is.

        A run that is done is never sealed again: nobody repairs it while this is computed.
        """
        run = self.run()
        if run.state == "done":
            self.sealer.compute(run, MORE.reports, MORE.variant)
        return run.state == "done"

    def work(self) -> None:
        """Do the jobs that are to be had."""
        self.sealer.look()

    def work_in_vain(self, error: Exception) -> None:
        """Do the jobs that are to be had, each of which ends with an error."""

        def ends() -> None:
            raise error

        self.sealing.ends = ends
        self.sealer.look()

    def take_over(self) -> None:
        """On another machine, watch the jobs for a lease; do those without a sign of life."""
        self.sealer.jobs.presence = _Elsewhere()
        self.sealer.jobs.claimable()
        self.later += LEASE
        self.sealer.look()

    def sweep(self) -> None:
        for chore in self.chores.values():
            while chore():
                pass


def _thirds(data: bytes) -> Iterator[bytes]:
    step = -(-len(data) // 3) or 1
    for at in range(0, len(data), step):
        yield data[at : at + step]


def driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        return cast("T", e.value)
    raise AssertionError("it waits")


def begin(shared: Shared, *parts: Callable[[Process], Any]) -> Shared:
    """A state: a run, after some of what clients do."""
    shared = shared.copy()
    process = Process(shared)
    run, _ = process.runs.create(ALICE, SPEC, {}, key=KEY)
    shared.names["run"] = run.id
    for part in parts:
        part(process)
        streams = process.streams.page(process.run(), "", 10)
        shared.names |= {f"partition {each.partition}": each.id for each in streams}
    return shared


def left(begun: Shared, part: Callable[[Process], Any], calls: int) -> Shared | None:
    """The state a day after a process died before a call; None if it lived to its end."""
    shared = begun.copy()
    process = Process(shared)
    scheduler = shared.scheduler
    (outcome,) = scheduler.run(
        [lambda: part(process)], lambda _calls, enabled: min(enabled), {0: calls}
    )
    if not outcome.killed:
        return None
    age(shared, DAY)
    shared.names["died"] = "yes"
    try:
        Process(shared).run()
    except NotFoundError:
        shared.names["deleted"] = "yes"
    return shared


def half(partition: int) -> Callable[[Process], Any]:
    """Upload the first third of a partition."""
    return lambda process: process.post(partition, DATA[partition][:CUT], last=False)


def unfinished(partition: int) -> Callable[[Process], Any]:
    """Upload all bytes of a partition, without saying that they are all."""
    return lambda process: process.post(partition, DATA[partition], last=False)


def failed(process: Process) -> None:
    """Seal the run, and have that fail."""
    process.seal()
    process.work_in_vain(UNFIT)


def claimed(process: Process, **values: Any) -> None:  # noqa: ANN401 - of Job
    """Seal the run, and let the process die that has begun to compute it."""
    process.seal()
    jobs = process.sealer.jobs
    (job,) = jobs.of_run(ALICE.owner, process.run_id)
    known = jobs.claim(job)
    assert known is not None
    process.sealer._begin(known)
    assert not values or jobs.change(known, **values) is not None


def dying(deaths: int) -> Callable[[Process], Any]:
    """Seal the run, and let so many processes die that compute it alone, and who saw it."""

    def part(process: Process) -> None:
        claimed(process, suspect=True, deaths=deaths, death="SIGKILL")
        process.shared.names["deaths"] = str(deaths)

    return part


def tired(process: Process) -> None:
    """Seal the run, and have stores and memory fail at all attempts but the last."""
    claimed(process, worker="", attempts=ATTEMPTS - 1)
    process.shared.names["tired"] = "yes"


def poisoned(process: Process) -> None:
    """Seal the run, and let processes die until that fails."""
    dying(3)(process)
    Process(process.shared).work()


def whole(partition: int) -> Callable[[Process], Any]:
    """Upload a partition."""
    return lambda process: process.post(partition, DATA[partition])


def empty(partition: int) -> Callable[[Process], Any]:
    """Create the upload of a partition."""
    return lambda process: process.create(partition)
