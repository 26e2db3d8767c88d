"""Batches through broken connections and killed servers: each exactly once, in order.

A group of ranks reads one pipeline, each rank on a connection of its own. After every
fault it goes on from the token of the last batch that all of its ranks have, with another
number of ranks and another server. What the ranks have together must be what a pipeline in
this process gives.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.client import Client
from core.iterate.base import Block, Ragged
from core.iterate.sources import ArraySource
from core.pipelines.pipeline import Pipeline, build_pipeline, parse_pipeline
from tests.e2e.service import KEY, AnswerCut, Connection, Service
from tests.fault_proxy import GOOD, Cut, FaultProxy, Faults
from tests.frames import Frame, FrameReader
from tests.scale import SOAK

Array = npt.NDArray[Any]
CUTS = 1000 if SOAK else 40
KILLS = 100 if SOAK else 2
ITEMS, WIDTH, SIZE = 333, 40, 12
ENDLESS = {"op": "permute", "seed": 11, "epochs": None}
SOURCE = {"op": "source", "dataset": "numbers"}
BATCH = {"op": "batch", "size": SIZE}
SPECS: dict[str, list[dict[str, Any]]] = {
    "indexed": [
        SOURCE,
        ENDLESS,
        {"op": "shuffle", "kind": "overlap", "size": 16, "seed": 2},
        BATCH,
    ],
    "sequential": [
        SOURCE,
        ENDLESS,
        {"op": "shuffle", "kind": "reservoir", "size": 40, "seed": 5},
        BATCH,
    ],
    "ragged": [{"op": "source", "dataset": "lines"}, ENDLESS, BATCH],
}


class Cluster:
    """Two servers that know nothing of each other, but have one key and the same files."""

    def __init__(self, directory: Path) -> None:
        root = directory / "root"
        root.mkdir()
        rng = np.random.default_rng(1)
        self.numbers = rng.integers(0, 1 << 30, (ITEMS, WIDTH)).astype("<i4")
        (root / "numbers").write_bytes(self.numbers.tobytes())
        self.lines = [rng.bytes(int(rng.integers(0, 90))).replace(b"\n", b"") for _ in range(ITEMS)]
        self.lines = [line.replace(b"\r", b"") for line in self.lines]
        (root / "lines").write_bytes(b"".join(line + b"\n" for line in self.lines))
        self.servers = [
            Service(directory / f"server-{k}", token_keys=KEY, dataset_roots=root) for k in range(2)
        ]
        for server in self.servers:
            self._register(server)

    def _register(self, server: Service) -> None:
        raw = {"format": "raw", "dtype": "<i4", "sig_shape": [WIDTH]}
        for entry in (
            {"id": "numbers", "files": ["numbers"], **raw},
            {"id": "lines", "files": ["lines"], "format": "lines"},
        ):
            assert post(server, "/v1/datasets", entry).status == 201

    def local(self, stages: list[dict[str, Any]]) -> Pipeline:
        """The same pipeline in this process."""
        octets = np.frombuffer(b"".join(self.lines), np.uint8)
        ends = np.cumsum([0, *map(len, self.lines)]).astype(np.int64)
        sources = {
            "numbers": ArraySource({"data": self.numbers}),
            "lines": ArraySource({"text": Ragged(octets, ends)}),
        }
        spec = parse_pipeline({"order": 1, "stages": stages})
        return build_pipeline(spec, lambda dataset, _: sources[dataset])

    def register(self, stages: list[dict[str, Any]]) -> dict[str, Any]:
        """The pipeline as both servers know it."""
        told = [
            post(server, "/v1/pipelines", {"order": 1, "stages": stages}).json()
            for server in self.servers
        ]
        assert told[0]["fingerprint"] == told[1]["fingerprint"]
        about: dict[str, Any] = told[0]
        return about


def post(server: Service, target: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    return server.post(target, json.dumps(values).encode(), "Content-Type: application/json")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("pipelines"))
    try:
        yield made
        for server in made.servers:
            assert server.stop() == 0, server.log()
            assert not server.failures()
    finally:
        for server in made.servers:
            server.kill()


# -- a group of ranks ------------------------------------------------------------------


def columns_of(frame: Frame) -> dict[str, Array]:
    return {
        each["name"]: np.frombuffer(
            frame.payload[each["offset"] : each["offset"] + each["nbytes"]], each["dtype"]
        ).reshape(each["shape"])
        for each in frame.header["arrays"]
    }


def items_of(columns: Mapping[str, Array]) -> list[list[int]]:
    """Items of a part of a batch, whatever they are."""
    (name, *others) = columns
    if not others:
        found: list[list[int]] = columns[name].tolist()
        return found
    ends = columns[f"{name}.offsets"].tolist()
    return [columns[name][a:b].tolist() for a, b in itertools.pairwise(ends)]


def block_items(block: Block) -> list[list[int]]:
    (column,) = block.values()
    if isinstance(column, Ragged):
        return [column[k].tolist() for k in range(len(column))]
    found: list[list[int]] = column.tolist()
    return found


@dataclass
class Group:
    """Ranks that read one pipeline together.

    Attributes:
        local: what they must have.
        ident: of the pipeline.
        token: behind the last batch that all have.
        batches: how many all have.
        worlds: numbers of ranks there were.
    """

    local: Pipeline
    ident: str
    token: str
    batches: int = 0
    worlds: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._state = self.local.initial

    def read(self, world: int, most: int, frames: Callable[[str], list[Frame]]) -> None:
        """Have every rank read some batches, and keep those that all of them have."""
        parts = [
            frames(
                f"/v1/pipelines/{self.ident}/batches?after={self.token}"
                f"&rank={rank}&world={world}&max_batches={most}"
            )
            for rank in range(world)
        ]
        self.worlds.add(world)
        for together in zip(*parts, strict=False):
            step = self.local.step(self._state)
            assert step is not None
            headers = [frame.header for frame in together]
            assert {header["seq"] for header in headers} == {step.sequence} == {self.batches}
            assert {header["epoch"] for header in headers} == {step.epoch}
            assert len({header["token"] for header in headers}) == 1
            got = [item for frame in together for item in items_of(columns_of(frame))]
            assert got == block_items(step.block)
            rows = [header["rows"] for header in headers]
            assert [0, *(stop for _, stop in rows)] == [*(start for start, _ in rows), len(got)]
            self.token = headers[0]["token"]
            self._state = step.state
            self.batches += 1


def received(port: int, target: str, most: int | None = None) -> list[Frame]:
    """The batches of an answer, up to its end or to where it was cut."""
    reader = FrameReader()
    found: list[Frame] = []
    try:
        with Connection(port) as connection:
            connection.begin("GET", target, size=0)
            head = connection.read_head()
            assert head.status == 200, next(iter(connection.pieces()))
            for piece in connection.pieces():
                for frame in reader.feed(piece):
                    assert frame.kind != "ERROR"
                    if frame.kind == "DATA":
                        found.append(frame)
                    if len(found) == most:
                        return found
            reader.close()
    except (AnswerCut, OSError):
        pass
    return found


# -- faults ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_cuts_lose_repeat_and_change_no_batch(cluster: Cluster, name: str) -> None:
    rng = np.random.default_rng([3, *name.encode()])
    about = cluster.register(SPECS[name])
    group = Group(cluster.local(SPECS[name]), about["id"], about["token"])
    wanted = -(-CUTS // len(SPECS))

    def plan(_number: int) -> Faults:
        how = ("reset", "close", "half")[int(rng.integers(3))]
        after = int(rng.exponential(3000)) if rng.random() < 0.7 else 1 << 30
        slices = int(rng.choice([0, 0, 700]))
        cut = Cut("down", after, how)  # type: ignore[arg-type]
        return Faults(slice_bytes=slices, cut=cut) if after else GOOD

    with FaultProxy([server.port for server in cluster.servers], plan) as proxy:
        while proxy.cuts < wanted:
            world = int(rng.integers(1, 6))
            group.read(world, int(rng.integers(1, 7)), lambda to: received(proxy.port, to))
    assert group.batches > 10
    assert len(group.worlds) > 2


@dataclass
class Killing:
    """Reads answers of a server that is killed in the middle of one of them.

    Attributes:
        victim: the server.
        dies_at: the answer, counted from 0; None for none.
        answers: how many there were.
    """

    victim: Service
    dies_at: int | None
    answers: int = 0

    def __call__(self, target: str) -> list[Frame]:
        self.answers += 1
        if self.answers - 1 != self.dies_at:
            return received(self.victim.port, target)
        # In the middle of an answer that has no end.
        endless = target.partition("&max_batches")[0]
        reader = FrameReader()
        found: list[Frame] = []
        with Connection(self.victim.port) as connection:
            connection.begin("GET", endless, size=0)
            connection.read_head()
            for piece in connection.pieces():
                found += [each for each in reader.feed(piece) if each.kind == "DATA"]
                if found:
                    break
            self.victim.kill()
        self.victim.start()
        return found


def test_killed_servers_lose_repeat_and_change_no_batch(cluster: Cluster) -> None:
    rng = np.random.default_rng(4)
    groups = []
    for stages in SPECS.values():
        about = cluster.register(stages)
        groups.append(Group(cluster.local(stages), about["id"], about["token"]))
    for kill in range(KILLS):
        victim = cluster.servers[kill % 2]
        for group in groups:
            world = int(rng.integers(1, 6))
            before = group.batches
            dies_at = int(rng.integers(world)) if group is groups[kill % len(groups)] else None
            reading = Killing(victim, dies_at)
            group.read(world, int(rng.integers(1, 9)), reading)
            assert reading.answers == world
            assert group.batches > before
    other = cluster.servers[(KILLS + 1) % 2]
    for group in groups:
        before = group.batches
        group.read(3, 4, lambda to: received(other.port, to))
        assert group.batches == before + 4


def test_batches_by_offset_are_those_of_the_stream(cluster: Cluster) -> None:
    about = cluster.register(SPECS["indexed"])
    first, second = cluster.servers
    target = f"/v1/pipelines/{about['id']}"
    streamed = received(first.port, f"{target}/batches?after={about['token']}&max_batches=9")
    for offset in np.random.default_rng(1).permutation(9).tolist():
        server = (first, second)[offset % 2]
        answer = server.get(f"{target}/batch?after={about['token']}&offset={offset}")
        frames = list(FrameReader().feed(answer.body))
        assert frames[0].header == streamed[offset].header
        assert frames[0].payload == streamed[offset].payload
        assert frames[-1].kind == "END"


@pytest.mark.parametrize("prefetch", [0, 3])
def test_our_client_reads_items_padded_to_the_longest(cluster: Cluster, prefetch: int) -> None:
    stages: list[dict[str, Any]] = [
        {"op": "source", "dataset": "lines"},
        {"op": "permute", "seed": 1, "epochs": 2},
        BATCH,
        {"op": "pad"},
    ]
    local = cluster.local(stages)
    seen = 0
    for rank in range(3):
        with Client(f"http://127.0.0.1:{cluster.servers[rank % 2].port}") as client:
            pipeline = client.pipeline({"order": 1, "stages": stages})
            assert -1 in pipeline.schema[0].shape
            state = local.initial
            for batch in pipeline.batches(rank=rank, world=3, prefetch=prefetch):
                step = local.step(state, rank, 3)
                assert step is not None
                assert list(batch) == list(step.block)
                for name, column in step.block.items():
                    got = batch[name]
                    assert isinstance(got, np.ndarray)
                    assert isinstance(column, np.ndarray)
                    assert np.array_equal(got, column)
                state = step.state
                seen += 1
    assert seen == 3 * 2 * -(-ITEMS // SIZE)


def test_draining_ends_a_stream_with_a_token(cluster: Cluster, tmp_path: Path) -> None:
    root = cluster.servers[0]
    about = cluster.register(SPECS["indexed"])
    server = Service(
        tmp_path / "draining",
        token_keys=KEY,
        dataset_roots=root.data_dir.parents[1] / "root",
        drain_seconds=3,
    )
    try:
        raw = {"format": "raw", "dtype": "<i4", "sig_shape": [WIDTH]}
        post(server, "/v1/datasets", {"id": "numbers", "files": ["numbers"], **raw})
        post(server, "/v1/pipelines", {"order": 1, "stages": SPECS["indexed"]})
        reader = FrameReader()
        frames: list[Frame] = []
        with Connection(server.port) as connection:
            connection.begin("GET", f"/v1/pipelines/{about['id']}/batches", size=0)
            connection.read_head()
            for piece in connection.pieces():
                if not frames:
                    server.term()
                frames += reader.feed(piece)
        reader.close()
        assert frames[-1].header["reason"] == "drain"
        sent = sum(frame.kind == "DATA" for frame in frames)
        target = f"/v1/pipelines/{about['id']}/batches?max_batches=1"
        (behind,) = received(root.port, f"{target}&after={frames[-1].header['token']}")
        assert behind.header["seq"] == sent
        assert server.end() == 0
    finally:
        server.kill()
