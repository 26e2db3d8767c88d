"""Every chunk is decoded once, in reads as large as they have to be and no larger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from core.arrays import Array
from core.tiles import chunked
from core.tiles.chunked import ArrayFrames, boxes, pieces
from core.tiles.formats.arrays import BlockArray
from core.tiles.plan import Box
from tests.scale import half


def chunks_of(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(rng.integers(1, n + 1)) for n in shape)


@dataclass(frozen=True, eq=False)
class Spy(BlockArray):
    """An array in memory that remembers what was read of it."""

    data: Array
    boxes: list[Box] = field(default_factory=list)
    batches: list[list[Box]] = field(default_factory=list)

    @classmethod
    def of(cls, data: Array, chunks: tuple[int, ...]) -> Spy:
        return cls(0, "spy", data.shape, data.dtype, chunks, (), (), data)

    def read(self, boxes: Sequence[Box]) -> list[Array]:
        self.batches.append(list(boxes))
        self.boxes.extend(boxes)
        return [np.array(self.data[tuple(slice(a, b) for a, b in box)]) for box in boxes]

    def chunks_read(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for box in self.boxes:
            cells = [range(a // c, -(-b // c)) for (a, b), c in zip(box, self.chunks, strict=True)]
            found += [tuple(i) for i in np.stack(np.meshgrid(*cells), -1).reshape(-1, len(cells))]
        return found


@pytest.mark.parametrize(("widest", "few"), [(9, False), (40, True)])
@pytest.mark.parametrize("seed", range(half(200)))
def test_no_chunk_is_read_twice_and_no_read_is_larger_than_it_must_be(
    seed: int, widest: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    nav = rng.integers(1, widest, int(rng.integers(1, 3 if few else 4))).tolist()
    shape = (*nav, *rng.integers(1, 9, 2).tolist())
    data = rng.integers(0, 999, shape).astype("u2")
    spies = [Spy.of(data, chunks_of(rng, shape)), Spy.of(data + 1, chunks_of(rng, shape))]
    limit = int(rng.choice([2, 100, 1000, 1 << 20]))
    monkeypatch.setattr(chunked, "READ_BYTES", limit)
    count = math.prod(shape[:-2])
    frames = rng.integers(0, 2 * count, int(rng.integers(1, 6 if few else 3 * count)))
    frames = frames.astype(np.int64)
    if rng.random() < 0.5:
        frames = np.unique(frames)
    rows = sorted(rng.choice(shape[-2] + 1, 2, replace=False).tolist())
    loaded = ArrayFrames(spies, 2).load(frames, (rows[0], rows[1]))
    assert not loaded.values.flags.writeable
    assert loaded.pitch == shape[-1]
    size = (rows[1] - rows[0]) * loaded.pitch
    every = np.concatenate([spy.data.reshape(-1, *shape[-2:]) for spy in spies])
    for frame, start in zip(frames, loaded.starts, strict=True):
        part = loaded.values[start : start + size].reshape(-1, loaded.pitch)
        assert np.array_equal(part, every[frame, rows[0] : rows[1]])
    for spy in spies:
        seen = spy.chunks_read()
        assert len(seen) == len(set(seen))
        most = max(limit, math.prod(spy.chunks) * 2)
        assert all(2 * math.prod(b - a for a, b in box) <= most for box in spy.boxes)
        for batch in spy.batches:
            items = [math.prod(b - a for a, b in box) for box in batch]
            assert len(batch) == 1 or 2 * sum(items) <= limit


def test_boxes_apart_are_read_at_once() -> None:
    spy = Spy.of(np.zeros((16, 16, 4, 4), "u2"), (1, 1, 4, 4))
    ArrayFrames([spy], 2).load(np.arange(0, 256, 2, dtype=np.int64), (0, 4))
    assert [len(batch) for batch in spy.batches] == [8]


def test_consecutive_frames_are_one_selection() -> None:
    spy = Spy.of(np.zeros((16, 16, 4, 4), "u2"), (1, 1, 4, 4))
    ArrayFrames([spy], 2).load(np.arange(32, 112, dtype=np.int64), (1, 3))
    assert spy.boxes == [((2, 7), (0, 16), (1, 3), (0, 4))]


def test_a_shuffle_is_read_frame_by_frame_at_once() -> None:
    spy = Spy.of(np.arange(16 * 16 * 16, dtype="u2").reshape(16, 16, 4, 4), (1, 1, 4, 4))
    frames = np.array([200, 3, 77, 120, 9, 161, 44, 255, 18], np.int64)
    ArrayFrames([spy], 2).load(frames, (0, 4))
    (batch,) = spy.batches
    assert batch == [
        ((f // 16, f // 16 + 1), (f % 16, f % 16 + 1), (0, 4), (0, 4))
        for f in sorted(frames.tolist())
    ]


def test_boxes_and_pieces_of_one_place() -> None:
    ((box, members),) = boxes(np.zeros((3, 1), np.int64), (1,), 1)
    assert box == ((0, 1),)
    assert members.tolist() == [0, 1, 2]
    assert list(pieces(((3, 9), (0, 2)), (4, 2), 8)) == [
        ((3, 4), (0, 2)),
        ((4, 8), (0, 2)),
        ((8, 9), (0, 2)),
    ]
