"""Batches from a service that misbehaves."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from app.client import (
    Batch,
    Client,
    Pipeline,
    ProblemError,
    ProtocolError,
    Ragged,
    StateError,
)
from app.client.pipelines import async_streams, streams

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.frames import DATA, END, EPOCH, ERROR, HEARTBEAT, Frames, with_beats
from ..fakes.pipelines import SPEC
from ..fakes.service import FakeService

Way: TypeAlias = Any
"""Arguments of ``batches`` that change nothing of what comes."""
ALL = list(range(12))
WAYS = pytest.mark.parametrize(
    "way", [{}, {"prefetch": 3}, {"parallel": 2}, {"prefetch": 5, "parallel": 1}]
)


@pytest.fixture
def pipeline(client: Client) -> Pipeline:
    return client.pipeline(SPEC)


def sequences(batches: Any) -> list[int]:  # noqa: ANN401
    return [batch.sequence for batch in batches]


def check(service: FakeService, batch: Batch, rank: int = 0, world: int = 1) -> None:
    fake = service.pipeline
    wanted = fake.columns(batch.sequence, rank, world)
    assert list(batch) == list(wanted)
    for name, column in wanted.items():
        got = batch[name]
        if isinstance(got, Ragged):
            assert np.array_equal(got.values, column[0])
            assert np.array_equal(got.offsets, column[1])
        else:
            assert got.dtype == column.dtype
            assert np.array_equal(got, column)
    assert batch.epoch == batch.sequence // fake.per_epoch
    assert batch.count == fake.count(batch.sequence)
    assert list(batch.rows) == fake.rows(batch.sequence, rank, world)
    assert batch.token == fake.token(batch.sequence + 1)


def test_what_is_known_of_it(service: FakeService, client: Client) -> None:
    spec = {**SPEC, "stages": [SPEC, {"seed": np.int64(7), "range": np.arange(2)}]}
    pipeline = client.pipeline(spec)
    assert (pipeline.id, pipeline.token, pipeline.fingerprint) == ("p1", "0.f0.k", "f0")
    assert (pipeline.batch_size, pipeline.batches_in_all, pipeline.batches_per_epoch) == (4, 12, 6)
    assert [(f.name, f.dtype.str, f.shape, f.ragged) for f in pipeline.schema] == [
        ("x", "<i8", (), False),
        ("m", "<f4", (2, 3), False),
        ("r", ">f8", (), True),
    ]
    assert pipeline.info["items"] == 22
    with pytest.raises(ProblemError, match="pipeline"):
        client.pipeline({"stages": []})
    for wrong in ({"a": {1}}, {"a": float("nan")}):
        with pytest.raises((TypeError, ValueError), match="a cannot be"):
            client.pipeline(wrong)
    deep = {"stages": [{"op": "map", "args": {"mean": float("nan")}}]}
    with pytest.raises(ValueError, match=r"stages\[0\]\.args\.mean cannot be nan"):
        client.pipeline(deep)
    assert [seen.method for seen in service.seen] == ["POST", "POST"]


def test_the_length_of_a_pipeline(service: FakeService) -> None:
    with Client(service.url) as client:
        assert len(client.pipeline(SPEC)) == 12
        service.pipeline.tells_length = False
        source, mix = {"op": "source", "dataset": "random"}, {"op": "mix", "stop": "cycle"}
        for named, stages in (
            ("mix", [{**mix, "inputs": [[source]]}]),
            ("filter and mix", [{**mix, "inputs": [[source, {"op": "filter"}]]}]),
            ("mix", [{"op": "mix", "order": "random", "inputs": [[source]]}]),
            ("shuffle", [source, {"op": "shuffle", "kind": "reservoir"}]),
            ("repeat", [source, {"op": "permute", "epochs": 1}, {"op": "repeat", "times": None}]),
        ):
            service.pipeline.change = {"spec": {"stages": stages}}
            with pytest.raises(TypeError, match=f"batches is not known: with {named} the"):
                len(client.pipeline(SPEC))
            assert client.pipeline(SPEC)


@WAYS
def test_batches_come_once_and_in_order(service: FakeService, pipeline: Pipeline, way: Way) -> None:
    with pipeline.batches(**way) as batches:
        assert batches.token is None
        assert batches.getstate() == {"token": None}
        seen = []
        for batch in batches:
            check(service, batch)
            assert batches.getstate() == {"token": batch.token} == {"token": batches.token}
            seen.append(batch.sequence)
        assert seen == ALL
        assert batches.data_finished
        assert next(batches, None) is None
    assert sequences(pipeline.batches("5.f0.k", **way)) == ALL[5:]
    assert sequences(pipeline.batches(max_batches=3, **way)) == ALL[:3]
    assert sequences(pipeline.batches(max_batches=0, **way)) == []
    assert sequences(pipeline.batches("12.f0.k", **way)) == []


def test_fields_of_every_type(service: FakeService, client: Client) -> None:
    service.pipeline.fields = ("t", "s", "w", "r")
    for batch in client.pipeline(SPEC).batches():
        check(service, batch)
    for name in ("x", "r", "t"):
        service.pipeline.fields = (name,)
        for batch in client.pipeline(SPEC).batches():
            check(service, batch)
    service.pipeline.fields = ("x",)
    service.pipeline.bend = in_arrays(0, 0, name="data")
    assert list(next(client.pipeline(SPEC).batches())) == ["x"]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_share_every_batch(service: FakeService, pipeline: Pipeline, world: int) -> None:
    whole = [batch["x"] for batch in pipeline.batches()]
    parts = [list(pipeline.batches(rank=rank, world=world)) for rank in range(world)]
    for rank, each in enumerate(parts):
        for batch in each:
            check(service, batch, rank, world)
    for x, shares in zip(whole, zip(*parts, strict=True), strict=True):
        assert np.array_equal(np.concatenate([np.asarray(part["x"]) for part in shares]), x)  # type: ignore[arg-type]


def test_what_cannot_be_asked(pipeline: Pipeline) -> None:
    wrong: Any
    for wrong in (
        {"rank": 2, "world": 2},
        {"rank": -1},
        {"world": 0},
        {"max_batches": -1},
        {"every": 0},
        {"prefetch": -1},
        {"parallel": -2},
        {"parallel": 0},
        {"parallel": 65},
        {"prefetch": 65537},
    ):
        with pytest.raises(ValueError, match=r"rank|must be"):
            pipeline.batches(**wrong)
    for wrong in ({"prefetch": True}, {"every": 1.5}, {"parallel": "4"}, {"epoch": "yes"}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} cannot be"):
            pipeline.batches(**wrong)
    for wrong in ({"token": None}, next(pipeline.batches())):
        with pytest.raises(StateError, match=r"a token is batch.token, or state"):
            pipeline.batches(after=wrong)
    with pytest.raises(StateError, match="empty: leave it out"):
        pipeline.batches(after="")
    for wrong in ({"after": ""}, {"after": "a b"}, {"after": "x" * 600}, {"skip": -1}):
        with pytest.raises(StateError):
            pipeline.batches(**wrong)
    with pytest.raises(ProblemError, match="options"):
        next(pipeline.batches(rank=0, world=5))


@WAYS
def test_states(pipeline: Pipeline, way: Way) -> None:
    batches = pipeline.batches(**way)
    states = [json.loads(json.dumps(batches.getstate())) for _ in itertools.chain([0], batches)]
    for place, state in enumerate(states):
        batches.setstate(state)
        assert batches.getstate() == state
        assert sequences(batches) == ALL[place:]
    batches.setstate(None)
    assert sequences(itertools.islice(batches, 4)) == ALL[:4]
    assert sequences(batches) == ALL[4:]
    wrong: Any
    for wrong in ({}, [], "t", {"token": 3}, {"token": None, "x": 1}):
        with pytest.raises(StateError):
            batches.setstate(wrong)
    for wrong in ("1", True, -1):
        with pytest.raises(StateError):
            batches.setstate({"token": None, "skip": wrong})


@pytest.mark.parametrize("way", [{}, {"prefetch": 4}])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_every_nth(pipeline: Pipeline, workers: int, way: Way) -> None:
    for worker in range(workers):
        wanted = ALL[worker::workers]
        batches = pipeline.batches(skip=worker, every=workers, **way)
        states = [batches.getstate(), *(batches.getstate() for _ in batches)]
        assert len(states) == len(wanted) + 1
        for place, state in enumerate(states):
            again = pipeline.batches(every=workers, **way)
            again.setstate(state)
            assert sequences(again) == wanted[place:]
            assert again.data_finished


def cut_batches(service: FakeService, read: Callable[[], list[int]], stride: int) -> None:
    """Cut the first answer at every byte, or every few."""
    cut = 0
    while True:
        service.script[:] = [Fault(cut=cut)]
        before = len(service.streams)
        assert read() == [0, 1, 2]
        if len(service.streams) == before + 1 and cut > 1000:
            return
        cut += (3 if cut % 2 else 1) * stride


def test_a_cut_at_every_byte(service: FakeService, client: Client, stride: int) -> None:
    service.pipeline.items, service.pipeline.epochs = 9, 1
    service.pipeline.fields = ("x", "r")
    pipeline = client.pipeline(SPEC)

    def read() -> list[int]:
        with pipeline.batches() as batches:
            got = list(batches)
            assert batches.data_finished
        for batch in got:
            check(service, batch)
        return sequences(got)

    cut_batches(service, read, stride)


def test_a_cut_at_every_byte_of_two(service: FakeService, client: Client, stride: int) -> None:
    service.pipeline.items, service.pipeline.epochs = 9, 1
    service.pipeline.fields = ("x",)
    pipeline = client.pipeline(SPEC)
    for cut in itertools.count(step=2 * stride):
        service.script[:] = [Fault(cut=cut)]
        service.seen.clear()
        with pipeline.batches(parallel=2) as batches:
            got = list(batches)
        assert sequences(got) == [0, 1, 2]
        for batch in got:
            check(service, batch)
        if len(service.streams) == 2 and cut > 300:
            return


@WAYS
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503, headers={"Retry-After": "0"}),
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(change=lambda octets: octets[:-40] + bytes([octets[-40] ^ 1]) + octets[-39:]),
        Fault(change=lambda octets: octets[:250] + bytes([octets[250] ^ 1]) + octets[251:]),
        Fault(change=lambda octets: octets[:300]),
    ],
)
def test_what_goes_away(service: FakeService, pipeline: Pipeline, fault: Fault, way: Way) -> None:
    service.script[:] = [fault]
    got = list(pipeline.batches(**way))
    assert sequences(got) == ALL
    for batch in got:
        check(service, batch)


@pytest.mark.parametrize("drain", [0, 1, 5, 6, 11])
def test_a_service_that_stops(service: FakeService, pipeline: Pipeline, drain: int) -> None:
    service.script[:] = [Fault(drain=drain)]
    assert sequences(pipeline.batches()) == ALL
    assert [s.query["after"] for s in service.streams] == ["0.f0.k", f"{drain}.f0.k"]


@pytest.mark.parametrize("reason", ["time", "bytes", "count", "epoch"])
def test_limits_of_the_service(service: FakeService, pipeline: Pipeline, reason: str) -> None:
    service.pipeline.most, service.pipeline.reason = 5, reason
    batches = pipeline.batches(max_batches=11)
    assert sequences(batches) == ALL[:11]
    assert [s.query["max_batches"] for s in service.streams] == ["11", "6", "1"]
    assert not batches.data_finished
    assert sequences(pipeline.batches()) == ALL


@pytest.mark.parametrize("told", [True, False])
@WAYS
def test_an_exact_tie(service: FakeService, client: Client, told: bool, way: Way) -> None:
    service.pipeline.tells_length = told
    pipeline = client.pipeline(SPEC)
    batches = pipeline.batches(max_batches=12, **way)
    assert sequences(batches) == ALL
    assert batches.data_finished
    assert sequences(pipeline.batches(max_batches=13, **way)) == ALL
    if not way:
        assert batches.profile == {"source": 0.25}


@WAYS
def test_without_a_batch_it_says_why(service: FakeService, client: Client, way: Way) -> None:
    service.pipeline.epochs, service.pipeline.tells_length = 0, False
    service.pipeline.notes = ["nothing is left"]
    batches = client.pipeline(SPEC).batches(**way)
    with pytest.warns(UserWarning, match="nothing is left") as told:
        assert sequences(batches) == []
    # Where somebody iterates, in the blocking way or the other one.
    assert ["tests/client" in warning.filename for warning in told] == [True]
    assert batches.notes == ("nothing is left",)
    assert batches.data_finished


@WAYS
def test_epochs(service: FakeService, pipeline: Pipeline, way: Way) -> None:
    batches = pipeline.batches(epoch=True, **way)
    assert [sequences(batches) for _ in range(4)] == [ALL[:6], ALL[6:], [], []]
    assert batches.data_finished
    batches = pipeline.batches("4.f0.k", epoch=True, **way)
    assert sequences(batches) == ALL[4:6]
    assert batches.getstate() == {"token": "6.f0.k"}
    assert next(batches, None) is None
    batches.close()
    assert sequences(batches) == ALL[6:]
    for cut in range(2000, 7000, 331):
        service.script[:] = [Fault(cut=cut)]
        batches = pipeline.batches(epoch=True, **way)
        assert [sequences(batches) for _ in range(2)] == [ALL[:6], ALL[6:]]


def test_an_epoch_whose_end_is_not_told(service: FakeService, pipeline: Pipeline) -> None:
    service.pipeline.bend = lambda frames: [each for each in frames if each[0] != EPOCH]
    batches = pipeline.batches(epoch=True)
    assert sequences(batches) == ALL[:6]
    assert batches.getstate() == {"token": "6.f0.k"}
    assert sequences(batches) == ALL[6:]


def changed(where: int, **more: Any) -> Any:  # noqa: ANN401
    def bend(frames: Frames) -> Frames:
        kind, header, payload = frames[where]
        frames[where] = (kind, header | more, payload)
        return frames

    return bend


def in_arrays(where: int, number: int, **more: Any) -> Any:  # noqa: ANN401
    def bend(frames: Frames) -> Frames:
        arrays = frames[where][1]["arrays"]
        arrays[number] = arrays[number] | more
        return frames

    return bend


def in_payload(where: int, at: int, value: int) -> Any:  # noqa: ANN401
    def bend(frames: Frames) -> Frames:
        kind, header, payload = frames[where]
        place = header["arrays"][-1]["offset"] + at
        frames[where] = (kind, header, payload[:place] + bytes([value]) + payload[place + 1 :])
        return frames

    return bend


LIES: list[Any] = [
    changed(0, seq=1),
    changed(0, seq=None),
    changed(0, seq=True),
    changed(1, seq=0),
    changed(1, seq=2),
    changed(0, epoch=-1),
    changed(0, epoch=True),
    changed(0, count="4"),
    changed(0, rows=[0, 3]),
    changed(0, rows=[4, 0]),
    changed(0, rows=None),
    changed(0, rows=[0, 1, 2]),
    changed(0, rows=[0, 10**30]),
    changed(0, token=None),
    changed(0, token="x" * 600),
    changed(0, arrays=None),
    changed(0, arrays=[]),
    changed(0, arrays=[1, 2, 3]),
    changed(2, reason=None),
    changed(2, reason="well"),
    changed(2, data_finished=None),
    changed(2, reason="exhausted"),
    changed(2, data_finished=True),
    in_arrays(0, 0, name="y"),
    in_arrays(0, 0, name="data"),
    in_arrays(0, 0, dtype="<f8"),
    in_arrays(0, 0, dtype="O"),
    in_arrays(0, 0, dtype="V0"),
    in_arrays(0, 0, shape=[4, 1]),
    in_arrays(0, 0, shape=[-4]),
    in_arrays(0, 0, shape=4),
    in_arrays(0, 0, offset=1),
    in_arrays(0, 1, offset=0),
    in_arrays(0, 0, nbytes=1 << 40),
    in_arrays(0, 1, shape=[1 << 30]),
    in_arrays(0, 2, name="r"),
    in_payload(0, 0, 1),
    in_payload(0, 8, 255),
    in_payload(0, 32, 7),
    lambda frames: [(DATA, frames[0][1], frames[0][2] * 9), *frames[1:]],
    lambda frames: [(DATA, frames[0][1], b""), *frames[1:]],
    lambda frames: [frames[0], frames[0], *frames[1:]],
    lambda frames: [frames[1], frames[0], *frames[2:]],
    lambda frames: [frames[1], *frames[2:]],
    lambda frames: frames[:2],
    lambda frames: [(EPOCH, {}, b"x"), *frames],
    lambda frames: [(HEARTBEAT, {}, b"x" * 99), *frames],
    lambda frames: [(END, frames[2][1], b""), *frames],
    lambda frames: [(ERROR, {}, b""), *frames],
    lambda frames: [(END, frames[2][1] | {"reason": "time", "token": None}, b"")],
]


@pytest.mark.parametrize("lie", range(len(LIES)))
def test_lies_are_refused(service: FakeService, connect: Connect, lie: int) -> None:
    fake = service.pipeline
    fake.fields, fake.most = ("x", "r"), 2
    fake.bend = LIES[lie]
    with pytest.raises(ProtocolError):
        list(connect(service, retries=0).pipeline(SPEC).batches())
    fake.bend = LIES[lie]
    got = list(connect(service, retries=1).pipeline(SPEC).batches())
    assert sequences(got) == ALL
    for batch in got:
        check(service, batch)


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"token": 3},
        {"schema": None},
        {"schema": []},
        {"schema": [3]},
        {"schema": [{"name": 3, "dtype": "<f4"}]},
        {"schema": [{"name": "x", "dtype": "nonsense"}]},
        {"schema": [{"name": "x", "dtype": "O"}]},
        {"schema": [{"name": "x", "dtype": [["a", "O"]]}]},
        {"schema": [{"name": "x", "dtype": "<f4", "shape": [-2]}]},
        {"schema": [{"name": "x", "dtype": "<f4", "shape": [1] * 99}]},
        {"schema": [{"name": "x", "dtype": "<f4", "shape": [1 << 30, 1 << 30]}]},
        {"schema": [{"name": "x", "dtype": "<f4", "ragged": 1}]},
        {"schema": [{"name": "x", "dtype": "<f4"}] * 2},
        {"batches": -1},
        {"batch_size": "4"},
        {"batches_per_epoch": True},
    ],
)
def test_descriptions_that_cannot_be(
    service: FakeService, client: Client, change: dict[str, Any]
) -> None:
    service.pipeline.change = change
    with pytest.raises(ProtocolError):
        client.pipeline(SPEC)


def test_heartbeats_may_come_between_any_frames(service: FakeService, pipeline: Pipeline) -> None:
    service.pipeline.bend = with_beats
    assert sequences(pipeline.batches()) == ALL
    service.pipeline.bend = lambda frames: [(HEARTBEAT, {}, b""), *frames]
    assert sequences(pipeline.batches(parallel=2)) == ALL


@WAYS
def test_changed_data(service: FakeService, pipeline: Pipeline, way: Way) -> None:
    problem = {"status": 412, "code": "data-changed", "detail": "a.raw was modified"}
    service.pipeline.bend = lambda _: [(ERROR, {"problem": problem}, b"")]
    batches = pipeline.batches(**way)
    with pytest.raises(ProblemError, match="was modified"):
        list(batches)
    service.pipeline.fingerprint = "f1"
    with pytest.raises(ProblemError, match="data-changed") as caught:
        list(batches)
    assert caught.value.status == 412
    service.pipeline.fingerprint = "f0"
    # What went wrong can be tried again: nothing is handed out twice, or left out. Of those
    # that are asked for together, any may have met the fault.
    before = int((batches.token or "0").split(".")[0])
    assert sequences(batches) == ALL[before:]


@WAYS
def test_tokens_from_before_the_data_grew(service: FakeService, client: Client, way: Way) -> None:
    service.pipeline.change = {"batches": 99}
    pipeline = client.pipeline(SPEC)
    batches = pipeline.batches("3.f0.k", **way)
    assert sequences(batches) == ALL[3:]
    assert batches.data_finished
    with pytest.raises((ProtocolError, ProblemError), match=r"finished before batch 12|position"):
        list(pipeline.batches(**way))


@WAYS
def test_keys_that_retire(service: FakeService, pipeline: Pipeline, way: Way) -> None:
    batches = pipeline.batches("3.f0.old", max_batches=4, **way)
    assert sequences(batches) == [3, 4, 5, 6]
    assert "/v1/tokens/refresh" in [s.target for s in service.seen]


def test_renewed_tokens_go_on(service: FakeService, pipeline: Pipeline) -> None:
    service.refreshed = lambda token: token.replace(".old", ".k")
    assert sequences(pipeline.batches("3.f0.old")) == ALL[3:]
    assert [s.query["after"] for s in service.streams] == ["3.f0.old", "3.f0.k"]


@WAYS
def test_a_service_that_has_forgotten(
    service: FakeService, connect: Connect, pipeline: Pipeline, way: Way
) -> None:
    service.pipeline.known = False
    assert sequences(pipeline.batches("2.f0.k", **way)) == ALL[2:]
    assert [s.method for s in service.seen].count("POST") >= 2
    service.pipeline.known = False
    service.pipeline.fields = ("x",)
    if not way:
        with pytest.raises(ProblemError, match="data-changed"):
            list(pipeline.batches("2.f0.k"))
    else:
        # Of requests side by side, one may be answered with the other data before another,
        # which registers the pipeline again, is told that it changed.
        with pytest.raises((ProblemError, ProtocolError), match=r"data-changed|other arrays"):
            list(pipeline.batches("2.f0.k", **way))
    service.pipeline.change = {"id": "p2"}
    with pytest.raises(ProblemError, match="not-found"):
        list(connect(service).pipeline(SPEC).batches())


def test_order_is_kept_however_late_each_comes(service: FakeService, pipeline: Pipeline) -> None:
    service.pipeline.delays = {0: 0.06, 2: 0.04, 3: 0.02, 7: 0.05}
    with pipeline.batches(prefetch=6, parallel=4) as batches:
        got = list(batches)
    assert sequences(got) == ALL
    for batch in got:
        check(service, batch)


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A caller counts as busy that was away for longer than this."""
    for module in (streams, async_streams):
        monkeypatch.setattr(module, "_WORTH_A_THREAD", seconds)


@pytest.mark.parametrize("way", [{"prefetch": 4}, {"prefetch": 5, "parallel": 2}])
def test_a_busy_caller_is_read_ahead_of(
    service: FakeService, pipeline: Pipeline, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However threads take turns, all that can be seen is as if nothing was read ahead."""
    patience(monkeypatch, 0.0)
    for cut in (None, *range(300, 7000, 431)):
        service.script[:] = [Fault(cut=cut)]
        batches, seen = pipeline.batches(**way), []
        for batch in batches:
            check(service, batch)
            assert batches.getstate() == {"token": batch.token}
            assert batches.data_finished <= (batch.sequence == 11)
            seen.append(batch.sequence)
            if batch.sequence in {2, 5}:
                batches.close()
        assert seen == ALL
        assert batches.data_finished
    workers = pipeline.batches(skip=1, every=3, **way)
    assert sequences(workers) == ALL[1::3]
    batches = pipeline.batches(epoch=True, **way)
    assert [sequences(batches) for _ in range(3)] == [ALL[:6], ALL[6:], []]


def test_what_is_read_ahead_comes_before_its_failure(
    service: FakeService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 0.0)
    problem = {"status": 422, "code": "transform", "detail": "item 9"}
    service.pipeline.bend = lambda frames: [*frames[:4], (ERROR, {"problem": problem}, b"")]
    batches = connect(service).pipeline(SPEC).batches(prefetch=8)
    got: list[int] = []
    with pytest.raises(ProblemError, match="item 9"):
        got.extend(batch.sequence for batch in batches)
    assert batches.getstate() == {"token": "4.f0.k"}
    assert sequences(batches) == ALL[4:]


def test_nothing_is_read_ahead_of_a_caller_that_waits(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    for module in (streams, async_streams):
        monkeypatch.setattr(module._Lane, "read_ahead", lambda _, depth: begun.append(depth))
    patience(monkeypatch, 60.0)
    assert sequences(pipeline.batches(prefetch=12)) == ALL
    assert not begun
    patience(monkeypatch, 0.0)
    assert sequences(pipeline.batches(prefetch=12)) == ALL
    assert set(begun) == {12}


def test_streams_side_by_side_share_the_batches(service: FakeService, pipeline: Pipeline) -> None:
    with pipeline.batches("2.f0.k", parallel=3, every=2, max_batches=4) as batches:
        assert sequences(batches) == [2, 4, 6, 8]
    asked = sorted((s.query["offset"], s.query["max_batches"]) for s in service.streams)
    assert asked == [("0", "2"), ("2", "1"), ("4", "1")]
    assert {s.query["every"] for s in service.streams} == {"6"}


def test_workers_ask_for_large_batches_one_by_one(
    service: FakeService, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * (8 + 4 * 6 + 8)
    for module in (streams, async_streams):
        monkeypatch.setattr(module, "_LARGE", size - 1)
    assert sequences(pipeline.batches(every=4, max_batches=2)) == [0, 4]
    assert sequences(pipeline.batches(every=4)) == [0, 4, 8]
    assert [s.query["max_batches"] for s in service.streams] == ["1"] * 5
    service.seen.clear()
    assert sequences(pipeline.batches()) == ALL
    assert sequences(pipeline.batches(every=4, world=2)) == [0, 4, 8]
    assert sequences(pipeline.batches(parallel=2)) == ALL
    assert not any("max_batches" in s.query for s in service.streams)


def test_exceptions_come_in_order(service: FakeService, connect: Connect) -> None:
    service.pipeline.delays = {0: 0.05, 1: 0.05}
    batches = connect(service, retries=0).pipeline(SPEC).batches(parallel=3)
    service.script[:] = [None, None, Fault(status=500)]
    got: list[int] = []
    with pytest.raises(ProblemError, match="scripted"):
        got.extend(batch.sequence for batch in itertools.islice(batches, 3))
    # Which of the three met the fault is up to the threads.
    place = batches.getstate()["token"]
    rest = sequences(batches)
    first = 0 if place is None else int(place.split(".")[0])
    assert rest == ALL[first:]


def test_closing_does_not_wait(service: FakeService, pipeline: Pipeline) -> None:
    service.pipeline.delays = dict.fromkeys(range(1, 12), 30.0)
    before = threading.active_count()
    batches = pipeline.batches(parallel=3)
    assert next(batches).sequence == 0
    batches.close()  # else the test would take half a minute
    assert not [t for t in threading.enumerate() if t.name.startswith("thalweg-worker")]
    assert threading.active_count() <= before + 8
    service.pipeline.delays = {}
    assert sequences(batches) == ALL[1:]


def test_stopping_early_and_going_on(service: FakeService, pipeline: Pipeline) -> None:
    ways: list[Any] = [{}, {"prefetch": 4}]
    for way in ways:
        batches = pipeline.batches(**way)
        got: list[int] = []
        for _ in range(12):
            got.append(next(batches).sequence)
            batches.close()
        assert got == ALL
    assert len(service.streams) >= 12


@pytest.mark.parametrize("way", [{}, {"parallel": 4}, {"parallel": 2, "prefetch": 8}])
def test_batches_that_are_dropped_end_quietly(
    service: FakeService,
    way: Way,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a loop that is left, nothing is reported, no socket stays open, and nobody waits."""
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    service.pipeline.delays = dict.fromkeys(range(4, 12), 30.0)
    with Client(service.url) as client, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)  # of sockets
        for _ in range(3):
            for batch in client.pipeline(SPEC).batches(**way):
                assert batch.sequence == 0
                break
        with contextlib.suppress(LookupError):
            for _ in client.pipeline(SPEC).batches(**way):
                raise LookupError
        gc.collect()
        workers = [t for t in threading.enumerate() if t.name.startswith("thalweg-worker")]
        for worker in workers:
            worker.join(10)  # far less than the service takes
            assert not worker.is_alive()
        gc.collect()
    assert not reported
    assert not caplog.records
