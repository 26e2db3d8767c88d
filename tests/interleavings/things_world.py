"""Datasets, views, pipelines, inputs and keys: what owners do at once is as if one did it first.

What acts answer, and what is there afterwards, has to be that of one of their serial orders; of
what died, with or without it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from app.datasets import catalogue as datasets
from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.engine.ledger import Ledger
from app.errors import NotFoundError, ServiceError
from app.http.identity import ADMIN, USER_SCOPES, Identity
from app.losses import input_store
from app.losses.input_store import InputStore
from app.losses.inputs import Inputs
from app.pipelines import registry
from app.pipelines.registry import Pipelines
from app.state.api_keys import ApiKeys
from app.state.ownership import adopt, namespace
from app.state.quotas import NOTED, AdmittedRecords, Quotas
from app.state.shares import Shares
from app.state.sweeper import (
    Chore,
    blobs_without_owners,
    expired_blobs,
    expired_records,
    records_without_blobs,
)
from app.tiles import views
from app.tiles.views import Views
from app.tokens import Key, KeyRing
from core.errors import CoreError

from .pairs import Act, Done
from .points import PointedBlobs, PointedLock, PointedRecords, Shared, age
from .scheduler import Scheduler

ALICE, BOB = (Identity(name, USER_SCOPES) for name in ("alice", "bob"))
ROOT = Identity("root", USER_SCOPES | {ADMIN})
DAYS = 30
DAY = 86400.0
QUANTILES = b"quantile\n0.1\n0.5\n"
KINDS = (datasets.KIND, views.KIND, registry.KIND, input_store.KIND)
Serial: TypeAlias = set[tuple[tuple[Hashable, ...], Hashable]]
"""Answers of all acts, and what is observed then."""


class Desk:
    """A process of the service, as far as these go."""

    def __init__(self, shared: Shared, directory: Path, *, locks: bool = False) -> None:
        self.shared = shared
        pointed = PointedRecords(shared)
        records = AdmittedRecords(pointed, Quotas(shared.limits), self.clock)
        self._stores = (pointed, PointedBlobs(shared))
        self.sharing = PointedLock(shared.scheduler, "sharing")
        keys = KeyRing([Key(1, "sign", bytes(32))])
        self.records = records
        self.catalogue = Catalogue(records, Roots([directory]), {}, BufferPool(4))
        self.views = Views(self.catalogue, records, keys)
        self.pipelines = Pipelines(self.catalogue, self.views, records, keys)
        self.files = InputStore(self._stores[1], DAYS, self.clock)
        self.inputs = Inputs(self.files, records, self.sharing.turn, Ledger(1 << 30, 1 << 30))
        self.keys = ApiKeys(records)
        if locks:
            # What is in memory, one process's threads change in any order.
            for part in (self.catalogue, self.views, self.pipelines):
                lock = PointedLock(shared.scheduler, type(part).__name__)
                cast("Any", part)._lock = lock

    def clock(self) -> float:
        return self.shared.now

    @cached_property
    def chores(self) -> Mapping[str, Chore]:
        """Those of ``make_sweeper``, for these kinds."""
        records, blobs = self._stores
        kind, clock = input_store.KIND, self.clock
        owners = Shares(records, kind, self.sharing.turn)
        return {
            **{
                kind: expired_records(records, kind, DAYS * DAY, clock)
                for kind in (views.KIND, registry.KIND, datasets.KIND)
            },
            "expired owners of inputs": expired_records(records, kind, DAYS * DAY + NOTED, clock),
            "owners of missing inputs": records_without_blobs(records, blobs, kind, NOTED, clock),
            "inputs without owners": blobs_without_owners(blobs, owners, kind, 60.0, clock),
            "expired inputs": expired_blobs(blobs, kind, DAYS * DAY, clock),
        }

    # -- what owners do; each returns what the answer says ----------------------------------

    def dataset(self, who: Identity, files: str = "scan.npy", ident: str = "scan") -> Hashable:
        opened, created = self.catalogue.register(who, {"id": ident, "files": [files]})
        opened.close()
        return created

    def open_dataset(self, who: Identity) -> Hashable:
        with closing(self.catalogue.open(who, "scan")) as opened:
            return tuple(opened.spec.files)

    def delete_dataset(self, who: Identity) -> None:
        self.catalogue.delete(who, "scan")

    def another_dataset(self, who: Identity) -> Hashable:
        return self.dataset(who, ident="another")

    def view(self, who: Identity, spec: Mapping[str, str] | None = None) -> Hashable:
        _, opened, created = self.views.register(who, "scan", spec or {})
        opened.close()
        return created

    def another_view(self, who: Identity) -> Hashable:
        return self.view(who, {"dtype": "<f4"})

    def open_view(self, who: Identity) -> Hashable:
        with closing(self.views.registered(who, self.view_id, "scan")) as opened:
            return opened.plan.shape

    def delete_view(self, who: Identity) -> None:
        self.views.delete(who, self.view_id, "scan")

    @property
    def view_id(self) -> str:
        return self.shared.names["view"]

    def pipeline(self, who: Identity, size: int = 2) -> Hashable:
        stages = [{"op": "source", "dataset": "scan", "view": {}}, {"op": "batch", "size": size}]
        opened, created = self.pipelines.register(who, {"order": 1, "stages": stages})
        opened.close()
        return created

    def another_pipeline(self, who: Identity) -> Hashable:
        return self.pipeline(who, 3)

    def open_pipeline(self, who: Identity) -> Hashable:
        with closing(self.pipelines.open(who, self.shared.names["pipeline"])) as opened:
            return tuple(source.count for source in opened.sources)

    def delete_pipeline(self, who: Identity) -> None:
        self.pipelines.delete(who, self.shared.names["pipeline"])

    def input(self, who: Identity, data: bytes = QUANTILES) -> None:
        # Two that store the same file may both be told that they did.
        self.inputs.put(who, "quantiles", data)

    def another_input(self, who: Identity) -> None:
        self.input(who, b"quantile\n0.3\n")

    def use_input(self, who: Identity) -> Hashable:
        return tuple(self.inputs.parsed(who, "quantiles", self.shared.names["input"]).tolist())

    def delete_input(self, who: Identity) -> None:
        self.inputs.delete(who, "quantiles", self.shared.names["input"])

    def add_key(self, owner: str) -> None:
        self.keys.add(owner, ["runs"], self.shared.now)

    def revoke(self, name: str) -> Hashable:
        return tuple(key.ident for key in self.keys.revoke(name, self.shared.now))

    def revoke_all(self, owner: str) -> None:
        # Of two who revoke several keys at once, each may be told of a part, or of none.
        with contextlib.suppress(NotFoundError):
            self.keys.revoke(owner, self.shared.now)

    def adopt(self) -> None:
        """Hand everything of alice to bob; of two who do, each may be told of a part."""
        adopt(self.records, ALICE.owner, BOB.owner, self.sharing.turn)

    def sweep(self, kind: str = "") -> None:
        """Do the chores, or those of a kind."""
        for name, chore in self.chores.items():
            while kind in name and chore():
                pass

    def close(self) -> None:
        self.pipelines.close()
        self.catalogue.close()


def _answer(work: Callable[[], Hashable]) -> Hashable:
    """What an act answers, or the code of its problem."""
    try:
        return work()
    except (CoreError, ServiceError) as e:
        return e.code


@dataclass
class ThingsWorld:
    """What several owners have."""

    directory: Path
    begin: Shared
    acts: Sequence[Act[Desk]] = ()
    locks: bool = False
    open: list[Desk] = field(default_factory=list)
    ends: dict[Hashable, Hashable] = field(default_factory=dict)
    """What is observed, by what is stored: most orders end alike, those of other acts as well.
    Worlds that begin alike may have them in common."""
    known: dict[tuple[bool, ...], Serial] = field(default_factory=dict)
    """What ``acts`` may answer and leave, by who of them dies."""

    def process(self, shared: Shared) -> Desk:
        desk = Desk(shared, self.directory, locks=self.locks)
        self.open.append(desk)
        return desk

    def look(self, shared: Shared, done: Sequence[Done]) -> list[str]:
        """See World."""
        seen = self._close_and_observe(shared, died=any(d.outcome.killed for d in done))
        answers = tuple("died" if d.outcome.killed else _answer_of(d.outcome) for d in done)
        allowed = self._serial(tuple(d.outcome.killed for d in done))
        if (answers, seen) in allowed:
            return []
        found = [f"answers {answers}, and then {seen}"]
        return found + [f"  serially {a}, and then {s}" for a, s in sorted(allowed, key=str)]

    def _close_and_observe(self, shared: Shared, *, died: bool) -> Hashable:
        for desk in self.open:
            desk.close()
        self.open.clear()
        end = shared.digest(), frozenset(shared.written), died
        if end not in self.ends:
            with closing(Desk(shared, self.directory)) as desk:
                self.ends[end] = observed(desk, died=died)
        return self.ends[end]

    def _serial(self, died: tuple[bool, ...]) -> Serial:
        """What the acts answer and leave one after the other, in any order."""
        if died not in self.known:
            self.known[died] = set(self._orders(died))
        return self.known[died]

    def _orders(self, died: tuple[bool, ...]) -> Iterator[tuple[tuple[Hashable, ...], Hashable]]:
        numbers = range(len(self.acts))
        lives = [n for n in numbers if not died[n]]
        for deaths in _subsets([n for n in numbers if died[n]]):
            for order in itertools.permutations([*lives, *deaths]):
                shared = self.begin.copy()
                answers: list[Hashable] = ["died"] * len(self.acts)
                for n in order:
                    with closing(Desk(shared, self.directory)) as desk:
                        answer = _answer(partial(self.acts[n].run, desk))
                    if not died[n]:
                        answers[n] = answer
                yield tuple(answers), self._close_and_observe(shared, died=any(died))


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(items) + 1):
        yield from itertools.combinations(items, count)


def _answer_of(outcome: Any) -> Hashable:  # noqa: ANN401 - an Outcome
    if outcome.error is None:
        return cast("Hashable", outcome.value)
    return cast("Hashable", getattr(outcome.error, "code", repr(outcome.error)))


def observed(desk: Desk, *, died: bool) -> Hashable:
    """What every owner can see and use, and what their quotas count.

    Bytes are what is stored as well, unless somebody died: what has no owner then, expires.
    """
    shared = desk.shared
    shared.now += 120.0
    desk.sweep()
    keys = [(key.owner, key.revoked is None) for key in desk.keys.records()]
    return (
        *(_observed_by(desk, who) for who in (ALICE, BOB)),
        () if died else tuple(shared.all_blobs()),
        tuple(sorted(keys)),
    )


def _observed_by(desk: Desk, who: Identity) -> Hashable:
    usage, space = desk.shared.usage(), f"{namespace(who.owner)}."
    return (
        who.owner,
        ("dataset", tuple(desk.catalogue.ids(who)), _answer(partial(desk.open_dataset, who))),
        ("view", _answer(partial(desk.open_view, who))),
        ("pipeline", tuple(desk.pipelines.ids(who)), _answer(partial(desk.open_pipeline, who))),
        ("input", _answer(partial(desk.use_input, who))),
        tuple((kind, usage.get((kind, space), (0, 0))[0]) for kind in KINDS),
    )


def begun(scheduler: Scheduler, directory: Path) -> Shared:
    """Return the state before anybody did anything."""
    np.save(directory / "scan.npy", np.zeros((2, 3, 4, 5), "<u2"))
    np.save(directory / "other.npy", np.zeros((2, 3, 4, 5), "<u2"))
    shared = Shared(scheduler)
    scratch = Shared(scheduler)
    with closing(Desk(scratch, directory)) as desk:
        desk.dataset(ALICE)
        desk.view(ALICE)
        desk.pipeline(ALICE)
    names = {kind: ident.partition(".")[2] for kind, ident in scratch.all_records()}
    shared.names = {**names, "input": input_store.digest_of(QUANTILES)}
    return shared


def after(begin: Shared, directory: Path, *acts: Act[Desk], seconds: float = 0.0) -> Shared:
    """Return the state some seconds after some acts."""
    shared = begin.copy()
    with closing(Desk(shared, directory)) as desk:
        for act in acts:
            act.run(desk)
    age(shared, seconds)
    return shared
