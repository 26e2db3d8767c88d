"""Rows that wait are encoded together where no mark has to appear between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.losses import rows as rows_module
from app.losses.encoding import RowEncoder, row_encoder
from app.losses.request import LossRequest
from app.losses.rows import next_chunk
from app.losses.spool import Item, Mark, Spool, Table
from core.arrays import Rows
from core.losses.events import Position
from core.losses.reports import REPORTS

FORMS = ["csv", "bin", "parquet", "ndjson", "arrow", "frames"]


def melt(first: int, count: int) -> Rows:
    rows = np.zeros(count, REPORTS["melt"].dtype(4))
    rows["EventId"] = np.arange(first, first + count)
    return rows


class Counting:
    """An encoder that counts the items it is given."""

    def __init__(self, form: str) -> None:
        request = LossRequest(reports=("melt",))
        start = Mark(Position())
        self._encoder: RowEncoder = row_encoder(
            form, request, lambda mark: f"t{mark.position.offset}", start, duplex=False, titled=True
        )
        self.shows_marks = self._encoder.shows_marks
        self.items: list[Item] = []

    def add(self, item: Item) -> list[bytes | memoryview]:
        self.items.append(item)
        return self._encoder.add(item)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path, 1 << 20, 1 << 30)
    for k in range(1, 51):
        spool.put([Table("melt", melt(10 * k, 7)), Mark(Position(offset=100 * k))])
    spool.put([Table("melt", melt(1000, 3))])
    yield spool
    spool.close()


def encode(encoder: Counting, spool: Spool) -> tuple[bytes, list[Mark | None]]:
    buffers: list[bytes | memoryview] = []
    marks = []
    while len(spool):
        chunk = next_chunk(encoder, spool)  # type: ignore[arg-type]
        assert chunk.nbytes == sum(map(len, chunk.buffers))
        buffers += chunk.buffers
        marks.append(chunk.mark)
    return b"".join(buffers), marks


@pytest.mark.parametrize("form", FORMS)
def test_marks_split_the_rows_only_where_the_format_shows_them(spool: Spool, form: str) -> None:
    encoder = Counting(form)
    encode(encoder, spool)
    tables = [item for item in encoder.items if isinstance(item, Table)]
    assert sum(len(table.rows) for table in tables) == 50 * 7 + 3
    assert len(tables) == (51 if encoder.shows_marks else 1)
    assert encoder.shows_marks == (form in {"ndjson", "arrow", "frames"})


@pytest.mark.parametrize("form", ["csv", "bin"])
@pytest.mark.parametrize("together", [1, 1000, 1 << 19])
def test_rows_encoded_together_give_the_same_bytes(
    spool: Spool, form: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_TOGETHER", together)
    parts = [melt(10 * k, 7) for k in range(1, 51)] + [melt(1000, 3)]
    single = Counting(form)
    expected = b"".join(b"".join(single.add(Table("melt", part))) for part in parts)
    made, marks = encode(Counting(form), spool)
    assert made == expected
    assert marks[-1] == Mark(Position(offset=5000))


def test_a_chunk_has_the_last_of_its_marks(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_TOGETHER", 1)
    monkeypatch.setattr(rows_module, "CHUNK", 1)
    _, marks = encode(Counting("bin"), spool)
    offsets = [mark.position.offset for mark in marks if mark is not None]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 5000
