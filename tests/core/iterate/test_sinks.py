"""Blocks written to files of others' formats."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.errors import OptionError, ShapeError
from core.iterate.arrow_sink import ArrowWriter, arrow_type
from core.iterate.base import Block, Field, Ragged
from core.iterate.columns import schema_of
from core.iterate.sinks import LossSink, NpyWriter, RawWriter, Sink, Writer
from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.reader import LossReader
from core.losses.writer import LossWriter


def blocks(dtype: str = "<f4", shape: tuple[int, ...] = (2, 3)) -> list[Block]:
    rng = np.random.default_rng(1)
    return [{"v": (rng.random((n, *shape)) * 99).astype(dtype)} for n in (3, 0, 1, 5)]


def together(made: list[Block]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    columns = [block["v"] for block in made]
    return np.concatenate([each for each in columns if not isinstance(each, Ragged)])


@pytest.mark.parametrize("dtype", ["<f4", ">u2", "|i1", "|b1", "<c16"])
@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("before", [b"", b"something else"])
def test_npy_is_what_numpy_reads(dtype: str, shape: tuple[int, ...], before: bytes) -> None:
    made = blocks(dtype, shape)
    file = io.BytesIO()
    file.write(before)
    writer = NpyWriter(file, schema_of(made[0])[0])
    for block in made:
        writer.write(block)
    writer.commit()
    writer.commit()
    assert writer.items == 9
    file.seek(len(before))
    found = np.load(file)
    assert found.dtype == np.dtype(dtype).newbyteorder("<")
    assert np.array_equal(found, together(made))
    assert not file.closed


def test_npy_without_its_end_is_no_npy() -> None:
    made = blocks()
    file = io.BytesIO()
    writer = NpyWriter(file, schema_of(made[0])[0])
    writer.write(made[0])
    file.seek(0)
    with pytest.raises(ValueError, match="pickle"):
        np.load(file)


def test_raw_is_the_values_and_says_what_they_are() -> None:
    made = blocks(">u2")
    file = io.BytesIO()
    writer = RawWriter(file, schema_of(made[0])[0])
    for block in made:
        writer.write(block)
    writer.commit()
    assert writer.describe() == {
        "format": "raw", "dtype": "<u2", "nav_shape": [9], "sig_shape": [2, 3],
    }  # fmt: skip
    found = np.frombuffer(file.getvalue(), "<u2").reshape(9, 2, 3)
    assert np.array_equal(found, together(made))
    assert writer.nbytes == len(file.getvalue())


def arrow_block(n: int) -> Block:
    rng = np.random.default_rng(n)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, n))]).astype(np.int64)
    total = int(offsets[-1])
    return {
        "x": np.arange(n, dtype=np.int32),
        "b": rng.random(n) < 0.5,
        "m": rng.random((n, 2, 3)).astype(">f4"),
        "r": Ragged(rng.integers(0, 9, total).astype(np.int16), offsets),
        "s": Ragged(rng.random((total, 2)), offsets),
    }


@pytest.mark.once
def test_arrow_is_what_arrow_reads() -> None:
    made = [arrow_block(n) for n in (4, 1, 7)]
    file = io.BytesIO()
    writer = ArrowWriter(file, schema_of(made[0]))
    for block in made:
        writer.write(block)
    assert not file.getvalue().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    writer.commit()
    assert file.getvalue().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    assert not file.closed
    table = pa.ipc.open_stream(file.getvalue()).read_all()
    rows = table.to_pylist()
    assert len(rows) == 12
    k = 0
    for block in made:
        for i in range(len(block["x"])):
            for name in ("m", "s", "r", "x", "b"):
                assert np.asarray(block[name][i]).tolist() == rows[k][name]
            k += 1


def test_types_that_arrow_lacks() -> None:
    for dtype in ("c16", "S3", "V4"):
        with pytest.raises(OptionError):
            arrow_type(Field("v", np.dtype(dtype)))
    with pytest.raises(ShapeError):
        arrow_type(Field("v", np.dtype("f4"), (-1,)))


@pytest.mark.parametrize("kind", [Kind.SUMMARY, Kind.GUL])
def test_losses_are_what_the_engine_reads(kind: Kind) -> None:
    summary = kind is Kind.SUMMARY
    header = StreamHeader(kind, 1, 3 if summary else 1, 5, 1 if summary else None, 4)
    offsets = np.array([0, 2, 3, 6], np.int64)
    block: dict[str, object] = {
        "event": np.array([1, 1, 4], np.int32),
        "item": np.array([1, 2, 1], np.int32),
        "sidx": Ragged(np.array([-1, 1, 2, -1, 3, 5], np.int32), offsets),
        "loss": Ragged(np.array([9, 1, 2, 3, 4, 5], np.float32), offsets),
    }
    if summary:
        block["exposure"] = np.array([10.0, 20.0, 30.0])
    file = io.BytesIO()
    sink = LossSink(file, LossWriter(header))
    sink.write(block)  # type: ignore[arg-type]
    sink.commit()
    reader = LossReader()
    reader.receive(file.getvalue())
    reader.close()
    events = list(reader.drain())
    assert [event.event_id for event in events] == [1, 4]
    assert [event.block_ids.tolist() for event in events] == [[1, 2], [1]]
    assert [event.losses.tolist() for event in events] == [[9, 1, 2], [3, 4, 5]]
    assert [event.sidx.tolist() for event in events] == [[-1, 1, 2], [-1, 3, 5]]


def test_what_cannot_be_written() -> None:
    field = Field("v", np.dtype("f4"), (2,))
    with pytest.raises(ShapeError):
        NpyWriter(io.BytesIO(), Field("v", np.dtype("f4"), ragged=True))
    with pytest.raises(ShapeError):
        RawWriter(io.BytesIO(), Field("v", np.dtype("f4"), (-1,)))
    writer: Writer = RawWriter(io.BytesIO(), field)
    for wrong in ({}, {"v": np.zeros((1, 2))}, {"v": np.zeros((1, 3), "f4")}):
        with pytest.raises(OptionError):
            writer.write(wrong)
    writer.write({"v": np.zeros((1, 2), "f4")})
    writer.commit()
    with pytest.raises(OptionError, match="past the end"):
        writer.write({"v": np.zeros((1, 2), "f4")})
    sink = LossSink(io.BytesIO(), LossWriter(StreamHeader(Kind.GUL, 1, 1, 5, None, 4)))
    with pytest.raises(OptionError):
        sink.write({"event": np.array([1])})
    with pytest.raises(OptionError):
        sink.write({"event": np.array([1]), "item": np.array([1]), "sidx": np.array([1])})


def test_threads_may_share_a_writer() -> None:
    file = io.BytesIO()
    writer: Sink = RawWriter(file, Field("v", np.dtype("<i8")))

    def work(which: int) -> None:
        for k in range(50):
            writer.write({"v": np.full(3, which * 100 + k)})

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.commit()
    found = np.frombuffer(file.getvalue(), "<i8").reshape(-1, 3)
    assert writer.items == 600
    assert np.array_equal(found[:, 0], found[:, 2])
    assert len(set(found[:, 0].tolist())) == 200


class Full(io.BytesIO):
    """A disk with room for some writes only."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
        if not self.left:
            raise OSError("no space left on device")
        self.left -= 1
        return super().write(data)


@pytest.mark.parametrize("make", [NpyWriter, RawWriter, lambda f, x: ArrowWriter(f, (x,))])
def test_a_file_that_lacks_items_is_not_completed(make: Callable[..., Sink]) -> None:
    file = Full(99)
    sink = make(file, Field("x", np.dtype("<i4")))
    block = {"x": np.arange(3, dtype="<i4")}
    sink.write(block)
    file.left = 0
    with pytest.raises(OSError, match="no space"):
        sink.write(block)
    file.left = 99
    with pytest.raises(OptionError, match="a write failed after 3 items"):
        sink.write(block)
    with pytest.raises(OptionError, match="a write failed after 3 items"):
        sink.commit()


def test_a_block_that_is_refused_leaves_the_sink_as_it_was() -> None:
    file = io.BytesIO()
    sink = NpyWriter(file, Field("x", np.dtype("<i4")))
    with pytest.raises(OptionError, match="lacks the field"):
        sink.write({})
    sink.write({"x": np.arange(3, dtype="<i4")})
    sink.commit()
    assert np.load(io.BytesIO(file.getvalue())).tolist() == [0, 1, 2]


def test_files_that_take_a_part_at_a_time_get_all() -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
            return super().write(bytes(data)[:7])

    file = Slow()
    sink = RawWriter(file, Field("x", np.dtype("<i4")))
    sink.write({"x": np.arange(30, dtype="<i4")})
    sink.commit()
    assert np.frombuffer(file.getvalue(), "<i4").tolist() == list(range(30))
    assert sink.nbytes == len(file.getvalue())
