"""Items of stored loss streams, tables and lines of text, against what was written."""

from __future__ import annotations

import gzip
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports.zstd import compress as zstd_compress

from app.datasets.files import seekable
from app.datasets.files.file_set import FileSet
from app.datasets.items import lines as line_items
from app.datasets.items import losses as loss_items
from app.datasets.items import segments
from app.datasets.items.lines import LineItems
from app.datasets.items.losses import LossItems
from app.datasets.items.segments import ItemRange, Items, Segmented
from app.datasets.items.tables import TableItems
from app.engine.budgets import Budgets
from app.engine.request_budget import BudgetLimits
from app.errors import DataChangedError
from core.errors import (
    BudgetExceededError,
    CancelledError,
    CoreError,
    FormatError,
    LimitError,
    OptionError,
    PositionError,
)
from core.iterate.base import Block, Field, Indexed, Ragged
from tests.decoders import DECODERS
from tests.scale import examples
from tests.streams import Stream, random_stream

Rng = np.random.Generator


def opened(paths: Sequence[Path], *, growing: bool = False) -> FileSet:
    return FileSet(paths, lambda path: os.open(path, os.O_RDONLY), growing=growing)


def written(directory: Path, *contents: bytes, growing: bool = False) -> FileSet:
    paths = [directory / f"part_{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return opened(paths, growing=growing)


def rows_of(block: Block) -> list[tuple[Any, ...]]:
    columns = [
        [column[k].tolist() for k in range(len(column))]
        if isinstance(column, Ragged)
        else column.tolist()
        for column in block.values()
    ]
    return list(zip(*columns, strict=True))


def every(source: Indexed) -> list[tuple[Any, ...]]:
    assert source.length is not None
    return rows_of(source.at(np.arange(source.length)))


def check_source(source: Indexed, expected: list[tuple[Any, ...]], rng: Rng) -> None:
    """Whole, at random positions, one by one and not at all, it is what is expected."""
    assert source.length == len(expected)
    assert every(source) == expected
    for size in (1, 5, 40):
        positions = rng.integers(0, len(expected), size)
        assert rows_of(source.at(positions)) == [expected[k] for k in positions.tolist()]
    nothing = source.at(np.zeros(0, np.int64))
    assert list(nothing) == [field.name for field in source.schema]
    assert all(len(column) == 0 for column in nothing.values())
    for field, column in zip(source.schema, source.at(np.array([0])).values(), strict=True):
        values = column.values if isinstance(column, Ragged) else column
        assert (isinstance(column, Ragged), values.dtype) == (field.ragged, field.dtype)
        assert values.shape[1:] == field.shape
    for wrong in (-1, len(expected)):
        with pytest.raises(PositionError):
            source.at(np.array([0, wrong]))


# -- loss streams --------------------------------------------------------------------


def stream_rows(stream: Stream, unit: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    kind = np.float32 if stream.width == 4 else np.float64
    for event, group in itertools.groupby(stream.blocks, key=lambda block: block.event):
        blocks = list(group)
        pairs = [(b.ident, s, float(kind(x))) for b in blocks for s, x in b.pairs]
        if unit == "event":
            found.append((event, *([pair[k] for pair in pairs] for k in range(3))))
            continue
        for block in blocks:
            exposure = (float(kind(block.exposure)),) if stream.kind == "summary" else ()
            sidx = [s for s, _ in block.pairs]
            losses = [float(kind(x)) for _, x in block.pairs]
            found.append((event, block.ident, *exposure, sidx, losses))
    return found


def random_streams(rng: Rng, count: int, **options: Any) -> list[Stream]:  # noqa: ANN401
    kind, width = str(rng.choice(["gul", "loss", "summary"])), int(rng.choice([4, 8]))
    made = {"kind": kind, "width": width, "samples": int(rng.integers(1, 60)), **options}
    return [random_stream(rng, events=int(rng.integers(1, 30)), **made) for _ in range(count)]


@pytest.mark.parametrize("seed", range(examples(12)))
def test_events_and_blocks_are_those_of_the_streams(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(loss_items, "SPACING", int(rng.choice([1, 300, 5000])))
    monkeypatch.setattr(loss_items, "_PIECE", int(rng.choice([64, 1000, 1 << 20])))
    streams = random_streams(rng, int(rng.integers(1, 4)))
    files = written(tmp_path, *(stream.encode() for stream in streams))
    with files:
        items = LossItems(files, streams[0].width)
        for unit in items.units:
            expected = [row for stream in streams for row in stream_rows(stream, unit)]
            check_source(items.source(unit, None), expected, rng)
            assert items.count(unit) == len(expected)


def test_the_fields_of_a_loss_stream(tmp_path: Path) -> None:
    (stream,) = random_streams(np.random.default_rng(5), 1, kind="summary")
    with written(tmp_path, stream.encode()) as files:
        items = LossItems(files, stream.width)
        assert [f.name for f in items.schema("event")] == ["event", "summary", "sidx", "loss"]
        names = [f.name for f in items.schema("block")]
        assert names == ["event", "summary", "exposure", "sidx", "loss"]
        some = items.source("block", ["loss", "event"])
        assert [f.name for f in some.schema] == ["event", "loss"]
        with pytest.raises(OptionError, match="colour"):
            items.source("event", ["colour"])
        with pytest.raises(OptionError, match="no field is selected"):
            items.source("event", [])
        assert items.describe()["kind"] == "summary"


def test_streams_that_cannot_be_items_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    gul = random_stream(rng, kind="gul", samples=5)
    loss = random_stream(rng, kind="loss", samples=5)
    cases = {
        "stream-truncated": [gul.encode()[:-3]],
        "stream-header": [b"not a loss stream"],
        "stream-empty": [b""],
        "format": [gul.encode(), loss.encode()],
        "terminator": [gul.encode()[:-4] + b"\1\2\3\4"],
    }
    for code, contents in cases.items():
        with written(tmp_path, *contents) as files, pytest.raises(CoreError) as error:
            LossItems(files)
        assert error.value.code == code


@pytest.mark.parametrize("seed", range(examples(8)))
def test_a_stream_that_grows_is_what_is_whole_of_it(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    (stream,) = random_streams(rng, 1, width=4)
    content, ends = stream.encode(), stream.boundaries()
    path = tmp_path / "live"
    for cut in rng.integers(ends[0], len(content), 12, endpoint=True).tolist():
        path.write_bytes(content[:cut])
        whole = stream.with_blocks(stream.blocks[: sum(end <= cut for end in ends[1:])])
        with opened([path], growing=True) as files:
            items = LossItems(files)
            assert every(items.source("block", None)) == stream_rows(whole, "block")
            # More of the last event may come.
            assert every(items.source("event", None)) == stream_rows(whole, "event")[:-1]
            assert items.stops("block", items.count("block")) == (max(e for e in ends if e <= cut),)


def check_stops(items: Items, unit: str, sizes: Sequence[int], rng: Rng) -> None:
    """The first items depend on no more bytes than ``stops`` says, and no fewer."""
    count = items.count(unit)
    whole = [items.stops(unit, k) for k in (0, count)]
    assert whole[1] == tuple(sizes)
    previous = 0
    for wanted in sorted(rng.integers(0, count, 10, endpoint=True).tolist()):
        stops = items.stops(unit, wanted)
        assert all(0 <= stop <= size for stop, size in zip(stops, sizes, strict=False))
        assert sum(stops) >= previous
        previous = sum(stops)


@pytest.mark.parametrize("unit", ["event", "block"])
def test_what_the_first_losses_depend_on(
    tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_items, "SPACING", 500)
    rng = np.random.default_rng(9)
    streams = random_streams(rng, 2, width=4)
    contents = [stream.encode() for stream in streams]
    with written(tmp_path, *contents) as files:
        items = LossItems(files)
        check_stops(items, unit, [len(each) for each in contents], rng)
        expected = every(items.source(unit, None))
        first = len(stream_rows(streams[0], unit))
        counts = (1, first // 2 + 1, first)
        stops = [stop for count in counts for stop in items.stops(unit, count)]
    for count, stop in zip(counts, stops, strict=True):
        with written(tmp_path, contents[0][:stop]) as files:
            assert every(LossItems(files).source(unit, None)) == expected[:count]


# -- lines ---------------------------------------------------------------------------


def random_text(rng: Rng) -> bytes:
    ends = [b"\n", b"\n", b"\r\n"]
    lines = [rng.bytes(int(rng.integers(0, 40))).replace(b"\n", b".") for _ in range(200)]
    text = b"".join(line.replace(b"\r", b",") + ends[rng.integers(3)] for line in lines)
    return text + (b"the last" if rng.random() < 0.5 else b"")


def line_rows(text: bytes) -> list[tuple[list[int]]]:
    lines = text.split(b"\n")
    whole = [line.removesuffix(b"\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return [(list(line),) for line in whole]


def framed(rng: Rng, text: bytes, frames: int) -> bytes:
    edges = sorted(rng.integers(0, len(text), frames - 1).tolist())
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *edges, len(text)])]
    return b"".join(zstd_compress(piece) for piece in pieces)


CODINGS: dict[str, Callable[[Rng, bytes], bytes]] = {
    "plain": lambda _, text: text,
    "gzip": lambda _, text: gzip.compress(text),
    "gzip members": lambda _, text: gzip.compress(text[:900]) + gzip.compress(text[900:]),
    "padded gzip": lambda _, text: gzip.compress(text) + bytes(512),
    "zstd": lambda _, text: zstd_compress(text),
    "zstd frames": lambda rng, text: framed(rng, text, 12),
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("seed", range(examples(4)))
def test_lines_are_those_of_the_text(
    tmp_path: Path, coding: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    # So that there are points, and some have to go, in a small text.
    monkeypatch.setattr(seekable, "SPACING", 64)
    monkeypatch.setattr(seekable, "MAX_CHECKPOINTS", 8)
    monkeypatch.setattr(seekable, "_READ", int(rng.choice([7, 100, 1 << 16])))
    monkeypatch.setattr(line_items, "MAX_POINTS", 20)
    monkeypatch.setattr(line_items, "_SPACING", dict.fromkeys(("plain", "gzip", "zstd"), 30))
    texts = [random_text(rng), random_text(rng)]
    with written(tmp_path, *(CODINGS[coding](rng, text) for text in texts)) as files:
        items = LineItems(files)
        expected = [row for text in texts for row in line_rows(text)]
        check_source(items.source("line", None), expected, rng)


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n", b"\r", b"a", b"\n\n", b"a\r\nb\r", b"a\n"])
def test_odd_texts(tmp_path: Path, text: bytes) -> None:
    with written(tmp_path, text) as files:
        assert every(LineItems(files).source("line", None)) == line_rows(text)


def test_a_text_that_grows_is_its_whole_lines(tmp_path: Path) -> None:
    for text, lines in ((b"one\ntwo", 1), (b"one\ntwo\n", 2), (b"one", 0), (b"", 0)):
        with written(tmp_path, text, growing=True) as files:
            items = LineItems(files)
            assert items.count("line") == lines
            assert items.stops("line", lines) == (text.rfind(b"\n") + 1,)


def test_what_the_first_lines_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_items, "_SPACING", {"plain": 30})
    rng = np.random.default_rng(4)
    texts = [random_text(rng), random_text(rng)]
    with written(tmp_path, *texts) as files:
        items = LineItems(files)
        check_stops(items, "line", [len(text) for text in texts], rng)
        for count in (1, 77, 150):
            (stop,) = items.stops("line", count)
            assert line_rows(texts[0][:stop]) == line_rows(texts[0])[:count]


def test_texts_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = random_text(np.random.default_rng(2))
    packed = gzip.compress(text)
    damaged = packed[:50] + bytes([packed[50] ^ 255]) + packed[51:]
    for content in (packed[:-5], damaged, zstd_compress(text)[:-3], packed + b"more"):
        with written(tmp_path, content) as files, pytest.raises(FormatError):
            LineItems(files)
    with written(tmp_path, packed, growing=True) as files, pytest.raises(FormatError):
        LineItems(files)
    monkeypatch.setattr(line_items, "MAX_LINE", 10)
    for content in (b"short\n" + bytes(11), b"short\n" + bytes(11) + b"\n"):
        with written(tmp_path, content) as files, pytest.raises(LimitError, match="line 2 "):
            LineItems(files)


@pytest.mark.parametrize("pack", [gzip.compress, zstd_compress], ids=["gzip", "zstd"])
def test_a_bomb_is_decoded_in_bounded_pieces(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    text = b"a" * 10 + b"\n" + b"b" * (40 << 20) + b"\n"
    with written(tmp_path, pack(text)) as files:
        decoded = seekable.open_seekable(files, 0)
        pieces = [len(piece) for piece in decoded.scan()]
        assert sum(pieces) == len(text)
        assert max(pieces) <= 1 << 20
        assert decoded.read(5, 15) == text[5:15]
        assert decoded.read(30 << 20, (30 << 20) + 9) == b"b" * 9


def test_a_scan_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    left = threading.Event()
    with written(tmp_path, gzip.compress(b"a\n" * (1 << 22))) as files:
        scan = seekable.open_seekable(files, 0).scan()
        with Budgets().of_request("ann", left) as budget, budget.in_thread():
            assert next(scan)
            left.set()
            with pytest.raises(CancelledError):
                list(scan)


def test_large_segments_are_refused_before_they_are_read(tmp_path: Path) -> None:
    limits = BudgetLimits(memory=1 << 20)
    with written(tmp_path, b"short\n" + b"x" * (1 << 20)) as files:
        source = LineItems(files).source("line", None)
        budgets = Budgets(limits).of_request("ann", threading.Event())
        with budgets as budget, pytest.raises(BudgetExceededError):
            budget.run(source.at, np.arange(2))


def test_a_text_that_changes_is_told(tmp_path: Path) -> None:
    with written(tmp_path, b"one\ntwo\n") as files:
        source = LineItems(files).source("line", None)
        (tmp_path / "part_0").write_bytes(b"uno\ndue\n")
        with pytest.raises(DataChangedError):
            source.at(np.array([0]))


# -- tables --------------------------------------------------------------------------


def random_table(rng: Rng, rows: int) -> pa.Table:
    words = ["", "a", "Ångström", "x" * 40]
    lists = [rng.integers(0, 9, rng.integers(0, 4)).tolist() for _ in range(rows)]
    pairs = rng.normal(size=(rows, 2)).astype("f4")
    return pa.table(
        {
            "id": pa.array(np.arange(rows, dtype=np.int64)),
            "x": pa.array([None if k % 7 == 3 else float(k) for k in range(rows)], pa.float64()),
            "flag": pa.array((np.arange(rows) % 3 == 0).tolist()),
            "name": pa.array([words[k % 4] for k in range(rows)]),
            "kind": pa.array([words[k % 3] for k in range(rows)]).dictionary_encode(),
            "list": pa.array(lists, pa.list_(pa.int16())),
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(pairs.reshape(-1)), 2),
            "when": pa.array(np.arange(rows).astype("M8[us]")),
            "nested": pa.array([{"a": k} for k in range(rows)]),
        }
    )


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    found = []
    names = [name for name in table.column_names if name != "nested"]
    for row in table.select(names).to_pylist():
        values = [list(v.encode()) if isinstance(v, str) else v for v in row.values()]
        found.append(tuple("nan" if value is None else value for value in values))
    return found


def nan_named(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple("nan" if value != value else value for value in row) for row in rows]  # noqa: PLR0124


def write_table(path: Path, table: pa.Table, form: str) -> None:
    if form == "parquet":
        pq.write_table(table, path, row_group_size=30)
        return
    new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=30)


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrow stream"])
def test_rows_are_those_of_the_tables(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(3)
    tables = [random_table(rng, 100), random_table(rng, 41)]
    if form == "arrow stream":
        tables = [table.drop_columns(["kind"]) for table in tables]
    paths = [tmp_path / f"table_{k}" for k in range(2)]
    for path, table in zip(paths, tables, strict=True):
        write_table(path, table, form)
    with opened(paths) as files:
        items = TableItems(files, form.split(maxsplit=1)[0], DECODERS)
        assert items.describe()["left_out"] == ["nested"]
        expected = [row for table in tables for row in table_rows(table)]
        source = items.source("row", None)
        assert nan_named(every(source)) == expected
        positions = rng.integers(0, 141, 60)
        found = nan_named(rows_of(source.at(positions)))
        assert found == [expected[k] for k in positions.tolist()]
        names = items.source("row", ["name", "id"]).at(np.array([140, 3]))
        assert [*names] == ["id", "name"]
        assert bytes(names["name"][0]) == tables[1]["name"][40].as_py().encode()
        with pytest.raises(OptionError, match="nested"):
            items.source("row", ["nested"])
        assert items.stops("row", 1) == tuple(path.stat().st_size for path in paths)


def test_tables_that_cannot_be_items_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = pa.table({"a": pa.array([1, None, 3])})
    write_table(path, table, "parquet")
    with opened([path]) as files:
        source = TableItems(files, "parquet", DECODERS).source("row", None)
        with pytest.raises(FormatError, match="'a' has missing values"):
            source.at(np.array([0]))
    for form in ("parquet", "arrow"):
        for content in (b"", b"PAR1 is not enough", b"ARROW1\0\0and then nothing", bytes(64)):
            path.write_bytes(content)
            with opened([path]) as files, pytest.raises(FormatError):
                TableItems(files, form, DECODERS)
    write_table(path, pa.table({"s": pa.array([{"a": 1}])}), "parquet")
    with opened([path]) as files, pytest.raises(FormatError, match="no column"):
        TableItems(files, "parquet", DECODERS)
    write_table(path, pa.table({"k": pa.array(["a"]).dictionary_encode()}), "arrow stream")
    with opened([path]) as files, pytest.raises(FormatError, match="dictionaries"):
        TableItems(files, "arrow", DECODERS)
    other = tmp_path / "other"
    write_table(path, pa.table({"a": [1]}), "parquet")
    write_table(other, pa.table({"b": [1]}), "parquet")
    with opened([path, other]) as files, pytest.raises(FormatError, match="columns"):
        TableItems(files, "parquet", DECODERS)


# -- what is common ------------------------------------------------------------------


def test_a_stretch_of_a_source(tmp_path: Path) -> None:
    with written(tmp_path, b"a\nb\nc\nd\n") as files:
        source = LineItems(files).source("line", None)
        part = ItemRange(source, 1, 3)
        assert every(part) == [([98],), ([99],)]
        assert part.schema == source.schema
        assert every(ItemRange(source, 2, 2)) == []
        with pytest.raises(PositionError):
            part.at(np.array([2]))
        for start, stop in ((2, 5), (-1, 2), (3, 2)):
            with pytest.raises(OptionError):
                ItemRange(source, start, stop)


def test_what_is_cached_counts_for_the_request_that_loads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[tuple[str, int]] = []
    monkeypatch.setattr(segments, "keep_for_request", lambda *more: kept.append(more))
    monkeypatch.setattr(segments, "CACHED_BYTES", 80)
    starts = np.array([0, 4, 10, 13])
    schema = (Field("x", np.dtype("<i8")),)
    source = Segmented(schema, starts, lambda k: {"x": np.arange(starts[k], starts[k + 1])})
    for position in (0, 9, 3, 4, 12):
        assert np.asarray(source.at(np.array([position]))["x"]).tolist() == [position]
    # Of the three, the third takes the place of the one that was used longest ago.
    assert kept == [("items", 32), ("items", 48)]
    assert np.asarray(source.at(np.array([12, 4, 12]))["x"]).tolist() == [12, 4, 12]
    assert len(kept) == 2
