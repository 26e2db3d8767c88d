"""Where columns of Arrow files lie, against the bytes that are there."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.decoding.wire import RefusedError
from app.decoding.worker import tables
from app.decoding.worker.requests import Request
from app.decoding.worker.tables import Table, open_subject

ROWS = 3
Coding = Literal["lz4", "zstd"] | None
PLAIN = {
    "small": pa.array([1, 2, 3], pa.int8()),
    "half": pa.array(np.array([0.5, 1, 2], "f2")),
    "x": pa.array([1.0, 2.0, 3.0]),
    "when": pa.array([1, 2, 3], pa.timestamp("us")),
    "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
}
RAGGED = {
    "text": pa.array(["a", "", "bcd"]),
    "octets": pa.array([b"12", b"3", b""], pa.large_binary()),
    "list": pa.array([[1], [], [2, 3]], pa.list_(pa.int16())),
    "wide": pa.array([[1.5], [], [2, 3]], pa.large_list(pa.float32())),
    "empty": pa.array(["", "", ""]),
}
DECODED = {
    "flag": pa.array([True, False, True]),
    "flags": pa.array([[True], [], [False]], pa.list_(pa.bool_())),
    "switches": pa.array([[True], [True], [False]], pa.list_(pa.bool_(), 1)),
    "day": pa.array([1, 2, 3], pa.date32()),
    "date": pa.array([0, 86_400_000, 0], pa.date64()),
    "days": pa.array([[1], [], [2]], pa.list_(pa.date32())),
    "dates": pa.array([[0], [], [86_400_000]], pa.list_(pa.date64())),
    "some": pa.array([1.0, None, 3.0]),
    "words": pa.array(["a", None, "b"]),
    "lists": pa.array([[1], None, [2]], pa.list_(pa.int16())),
    "pairs": pa.array([[1.0], None, [2.0]], pa.list_(pa.float64(), 1)),
    "holes": pa.array([[1.0], [None], [2.0]], pa.list_(pa.float64(), 1)),
    "gaps": pa.array([[1], [None], [2]], pa.list_(pa.int16())),
    "nested": pa.array([{"a": 1}] * ROWS),
}
TABLE = pa.table({**PLAIN, **RAGGED, **DECODED})


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Table]:
    table = open_subject("arrow", {"size": path.stat().st_size}, [os.open(path, os.O_RDONLY)])
    try:
        yield table
    finally:
        table.close()


def located(table: Table, *numbers: int, names: list[str] | None = None) -> Any:  # noqa: ANN401
    arguments = {"numbers": numbers, "names": TABLE.column_names if names is None else names}
    answer = table.act(Request("locate", arguments))
    assert isinstance(answer, dict)
    return answer["parts"]


def write(
    path: Path, table: pa.Table, form: str = "file", *, rows: int = ROWS, coding: Coding = None
) -> bytes:
    new: Any = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=coding)
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("times", [1, 10_000])
def test_the_bytes_at_the_place_of_a_column_are_its_values(
    tmp_path: Path, form: str, times: int
) -> None:
    table = pa.concat_tables([TABLE] * times).combine_chunks()
    octets = write(tmp_path / "table", pa.concat_tables([table, table]), form, rows=len(table))
    with opened(tmp_path / "table") as subject:
        assert [part[1] for part in subject.parts] == [len(table)] * 2
        parts = located(subject, *(part[0] for part in subject.parts))
    assert len(parts) == 2
    for part in parts:
        places = dict(zip(TABLE.column_names, part, strict=True))
        assert {name for name, place in places.items() if place is None} == set(DECODED)
        for name in PLAIN:
            column: Any = table[name].combine_chunks()
            expected = (column.flatten() if name == "pair" else column).to_numpy()
            values = np.frombuffer(octets, expected.dtype, len(expected), places[name][0])
            assert np.array_equal(values, expected), name
        for name in RAGGED:
            at, width, start, size = places[name]
            offsets = np.frombuffer(octets, f"<i{width}", len(table) + 1, at)
            dtype = np.dtype({"list": "<i2", "wide": "<f4"}.get(name, "u1"))
            assert offsets[-1] * dtype.itemsize <= size
            values = np.frombuffer(octets[start : start + size], dtype)
            rows = [values[a:b] for a, b in itertools.pairwise(offsets)]
            for row, expected in zip(rows[-4:], table[name].to_pylist()[-4:], strict=True):
                if isinstance(expected, list):
                    assert row.tolist() == expected
                else:
                    text = expected.encode() if isinstance(expected, str) else expected
                    assert row.tobytes() == text


@pytest.mark.parametrize("coding", ["lz4", "zstd"])
def test_compressed_columns_have_no_place_and_end_the_search(
    tmp_path: Path, coding: Coding
) -> None:
    table = pa.concat_tables([TABLE] * 3)
    write(tmp_path / "table", table, coding=coding)
    with opened(tmp_path / "table") as subject:
        assert located(subject, 0, 1, 2) == [None]


def test_dictionaries_do_not_hide_the_places_of_other_columns(tmp_path: Path) -> None:
    kinds = TABLE.append_column("kind", pa.array(["a", "b", "a"]).dictionary_encode())
    write(tmp_path / "table", kinds)
    with opened(tmp_path / "table") as subject:
        ((x, kind),) = located(subject, 0, names=["x", "kind"])
    assert x is not None
    assert kind is None


def test_a_table_has_so_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "table", pa.concat_tables([TABLE] * 3))
    monkeypatch.setattr(tables, "_MAX_PARTS", 3)
    with opened(tmp_path / "table") as subject:
        assert len(subject.parts) == 3
    monkeypatch.setattr(tables, "_MAX_PARTS", 2)
    descriptor = os.open(tmp_path / "table", os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    with pytest.raises(RefusedError, match="more than 2 parts") as caught:
        open_subject("arrow", {"size": size}, [descriptor])
    # What cannot be opened is closed, though the error holds what was made of it.
    assert caught.tb is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_stream_without_its_end_is_refused_wherever_it_stops(tmp_path: Path) -> None:
    path = tmp_path / "table"
    octets = write(path, pa.table({"x": np.arange(8)}), "stream", rows=2)
    marker = b"\xff\xff\xff\xff\0\0\0\0"
    assert octets.endswith(marker)
    source = pa.BufferReader(octets)
    ends = []
    for _ in range(5):
        pa.ipc.read_message(source)
        ends.append(source.tell())
    for end in ends:
        path.write_bytes(octets[:end])
        with pytest.raises(RefusedError, match=f"stops at byte {end} without its end marker"):
            opened(path).__enter__()
        for octet in (1, 4, 7):
            path.write_bytes(octets[: end + octet])
            with pytest.raises((RefusedError, pa.ArrowInvalid, OSError, EOFError)):
                opened(path).__enter__()
        for last in (marker, marker[4:]):
            path.write_bytes(octets[:end] + last)
            with opened(path) as table:
                assert len(table.parts) == ends.index(end)


def test_parquet_has_no_places(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "table")
    size = (tmp_path / "table").stat().st_size
    descriptor = os.open(tmp_path / "table", os.O_RDONLY)
    subject = open_subject("parquet", {"size": size}, [descriptor])
    assert located(subject, 0, names=["x"]) == [None]
    subject.close()


def test_opening_a_large_table_reads_little_of_it(tmp_path: Path) -> None:
    """The numbers of rows are in the heads of the batches, and values are left alone."""
    table = pa.table({"x": np.zeros(1 << 20)})
    with pa.ipc.new_file(str(tmp_path / "table"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 17)
    reads = []
    real = os.pread

    def pread(descriptor: int, size: int, at: int) -> bytes:
        octets = real(descriptor, size, at)
        reads.append(len(octets))
        return octets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", pread)
        with opened(tmp_path / "table") as subject:
            assert [part[1] for part in subject.parts] == [1 << 17] * 8
            assert None not in located(subject, *range(8), names=["x"])
    assert sum(reads) < 1 << 16
