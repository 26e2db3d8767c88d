"""Columns that are read without decoding: the same values, and no trust in who names places."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.datasets.files.file_set import FileSet
from app.datasets.items.tables import Places, TableItems, parse_places, stored_column
from app.decoding.base import Parse, Request, T
from app.errors import DatasetUnreadableError
from core.arrays import Array, Octets
from core.errors import FormatError
from core.iterate.base import Column, Field, Ragged
from tests.decoders import DECODERS

F8 = Field("x", np.dtype("<f8"))
PAIR = Field("pair", np.dtype("<i2"), (2,))
TEXT = Field("text", np.dtype(np.uint8), ragged=True)
LIST = Field("list", np.dtype("<i2"), ragged=True)


class Watched:
    """Decoders that note what they are asked, and may lie about places."""

    max_bytes = DECODERS.max_bytes

    def __init__(self, lie: Any = None) -> None:  # noqa: ANN401 - JSON
        self.actions: list[tuple[str, Any]] = []
        self._lie = lie

    def ask(self, request: Request, parse: Parse[T]) -> T:
        self.actions.append((request.action, request.arguments))

        def check(values: Mapping[str, Any], octets: Octets) -> T:
            return parse(values if self._lie is None else {"parts": self._lie}, octets)

        if request.action == "locate":
            return DECODERS.ask(request, check)
        return DECODERS.ask(request, parse)

    def forget(self, key: str) -> None:
        DECODERS.forget(key)

    def count(self, action: str) -> int:
        return sum(name == action for name, _ in self.actions)


def opened(*paths: Path) -> FileSet:
    return FileSet(paths, lambda path: os.open(path, os.O_RDONLY))


def write(path: Path, table: pa.Table, rows: int = 10, **options: Any) -> Path:  # noqa: ANN401
    with pa.ipc.new_file(
        str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def table(rows: int = 1000) -> pa.Table:
    words = [("word" * (k % 5)) for k in range(rows)]
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * rows, dtype="i2")), 2)
    return pa.table({"id": np.arange(rows), "text": words, "pair": pairs})


def plain(column: Column) -> Array:
    assert isinstance(column, np.ndarray)
    return column


def ragged(column: Column) -> list[list[int]]:
    assert isinstance(column, Ragged)
    return [column[k].tolist() for k in range(len(column))]


def check(items: TableItems, rows: int = 1000) -> None:
    positions = np.random.default_rng(1).permutation(rows)
    block = items.source("row", None).at(positions)
    assert np.array_equal(plain(block["id"]), positions)
    assert np.array_equal(plain(block["pair"])[:, 0], 2 * positions)
    assert [bytes(word) for word in ragged(block["text"])] == [b"word" * (k % 5) for k in positions]


def test_decoders_only_say_where_plain_columns_lie(tmp_path: Path) -> None:
    decoders = Watched()
    paths = [write(tmp_path / f"{k}", table(), 10) for k in range(2)]
    with opened(*paths) as files:
        items = TableItems(files, "arrow", decoders)
        block = items.source("row", ["id"]).at(np.arange(2000))
        assert np.array_equal(plain(block["id"]), np.tile(np.arange(1000), 2))
        assert decoders.count("read") == 0
        # 100 parts per file, some at a time, and no part of one file with another's.
        asked = [arguments["numbers"] for name, arguments in decoders.actions if name == "locate"]
        assert asked == 2 * [
            list(range(start, min(start + 32, 100))) for start in range(0, 100, 32)
        ]
    with opened(paths[0]) as files:
        check(TableItems(files, "arrow", decoders))
    assert decoders.count("read") == 0


def test_only_what_has_no_place_is_decoded(tmp_path: Path) -> None:
    decoders = Watched()
    flags = np.arange(1000) % 3 == 0
    path = write(tmp_path / "table", table().append_column("flag", pa.array(flags)), 500)
    with opened(path) as files:
        items = TableItems(files, "arrow", decoders)
        check(items)
        block = items.source("row", None).at(np.arange(1000))
        assert np.array_equal(plain(block["flag"]), flags)
        assert list(block) == ["id", "text", "pair", "flag"]
    reads = [arguments["names"] for name, arguments in decoders.actions if name == "read"]
    assert reads
    assert all(names == ["flag"] for names in reads)


def test_a_compressed_file_is_asked_for_places_once(tmp_path: Path) -> None:
    decoders = Watched()
    path = write(tmp_path / "table", table(), 100, compression="zstd")
    other = write(tmp_path / "other", table(), 500)
    with opened(path, other) as files:
        items = TableItems(files, "arrow", decoders)
        assert np.array_equal(
            plain(items.source("row", None).at(np.arange(2000))["id"]), np.tile(np.arange(1000), 2)
        )
    assert decoders.count("locate") == 2
    assert decoders.count("read") == 10


def test_parquet_is_not_asked_for_places(tmp_path: Path) -> None:
    decoders = Watched()
    pq.write_table(table(), tmp_path / "table")
    with opened(tmp_path / "table") as files:
        check(TableItems(files, "parquet", decoders))
    assert decoders.count("locate") == 0


@pytest.mark.parametrize(
    "lie",
    [
        [],
        [[[0], [0, 4, 0, 8], [0]]] * 3,
        [[[0], [0, 4, 0, 8]]],
        [[[0], [0, 4, 0], [0]]],
        [[[0, 4, 0, 8], [0, 4, 0, 8], [0]]],
        [[[0], [0, 2, 0, 8], [0]]],
        [[[-1], [0, 4, 0, 8], [0]]],
        [[["0"], [0, 4, 0, 8], [0]]],
        {"0": None},
    ],
)
def test_an_answer_that_names_no_places_is_a_fault_of_the_decoder(
    tmp_path: Path,
    lie: Any,  # noqa: ANN401 - JSON
) -> None:
    with opened(write(tmp_path / "table", table(), 500)) as files:
        source = TableItems(files, "arrow", Watched(lie)).source("row", None)
        with pytest.raises(DatasetUnreadableError, match="invalid answer"):
            source.at(np.array([0]))


@pytest.mark.parametrize("place", [[1 << 62], [-8 + (1 << 40)]])
def test_places_beyond_the_file_are_refused(tmp_path: Path, place: list[int]) -> None:
    lie = [[place, [0, 4, 0, 8], [0]]]
    with opened(write(tmp_path / "table", table(), 500)) as files:
        source = TableItems(files, "arrow", Watched(lie)).source("row", ["id", "text", "pair"])
        with pytest.raises(FormatError, match="'id' reaches beyond its end"):
            source.at(np.array([0]))


def written(path: Path, *arrays: Any) -> FileSet:  # noqa: ANN401 - arrays
    path.write_bytes(b"".join(np.asarray(array).tobytes() for array in arrays))
    return opened(path)


def test_a_column_is_read_from_its_place(tmp_path: Path) -> None:
    values = np.arange(6, dtype="<i2")
    with written(tmp_path / "a", np.arange(3.0), values) as files:
        assert np.array_equal(plain(stored_column((files, 0), F8, 3, (0,))), np.arange(3.0))
        assert np.array_equal(plain(stored_column((files, 0), F8, 2, (8,))), [1.0, 2.0])
        assert np.array_equal(
            plain(stored_column((files, 0), PAIR, 3, (24,))), values.reshape(3, 2)
        )
        with pytest.raises(FormatError, match="'pair' reaches beyond its end"):
            stored_column((files, 0), PAIR, 3, (25,))


@pytest.mark.parametrize("dtype", ["<i4", "<i8"])
def test_offsets_need_not_begin_at_0(tmp_path: Path, dtype: str) -> None:
    offsets, values = np.array([2, 3, 3, 6], dtype), np.arange(6, dtype="<i2")
    with written(tmp_path / "a", offsets, values) as files:
        place = (0, offsets.itemsize, offsets.nbytes, values.nbytes)
        column = stored_column((files, 0), LIST, 3, place)
        assert isinstance(column, Ragged)
        assert ragged(column) == [[2], [], [3, 4, 5]]
        assert column.offsets.dtype == np.int64


@pytest.mark.parametrize(
    ("offsets", "size"),
    [
        ([0, 2, 1, 3], 6),
        ([-1, 0, 1, 2], 6),
        ([0, 1, 2, 4], 6),
        ([0, 2**31 - 1, -(2**31), 3], 6),
        ([3, 2, 1, 0], 6),
    ],
)
def test_offsets_that_lead_astray_are_refused(
    tmp_path: Path, offsets: Sequence[int], size: int
) -> None:
    with (
        written(tmp_path / "a", np.array(offsets, "<i4"), np.arange(3, dtype="<i2")) as files,
        pytest.raises(FormatError, match="'list' has offsets that lead beyond its values"),
    ):
        stored_column((files, 0), LIST, 3, (0, 4, 16, size))


def test_places_are_those_of_the_columns() -> None:
    schema = (F8, TEXT)
    assert parse_places(None, schema) is None
    assert parse_places([[3], None], schema) == ((3,), None)
    for wrong in ([[3]], [[3], [3]], [[3, 4, 5, 6], None], [[1.0], None], 7):
        with pytest.raises((TypeError, ValueError)):
            parse_places(wrong, schema)


def test_places_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.datasets.items.tables._MAX_PLACES", 8)
    asked: list[int] = []

    def locate(part: int) -> list[Any]:
        asked.append(part)
        return [((part,), None), ((part + 1,), None)]

    places = Places(locate, 2)
    assert [places.of(part, 0) for part in (0, 1, 2, 3, 0)] == [
        ((part,), None) for part in (0, 1, 2, 3, 0)
    ]
    assert asked == [0, 2]
    assert places.of(4, 0) == ((4,), None)
    assert places.of(0, 0) == ((0,), None)
    assert asked == [0, 2, 4, 0]
