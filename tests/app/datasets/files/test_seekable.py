"""Decoded bytes of compressed files, from any offset, without decoding all before it."""

from __future__ import annotations

import gzip
import itertools
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from backports import zstd

from app.datasets.files import seekable
from app.datasets.files.file_set import FileSet
from app.datasets.files.roots import Roots
from app.datasets.files.seekable import Compressed, Seekable, open_seekable
from app.engine.request_budget import BudgetLimits, RequestBudget
from core.budget import UNLIMITED
from core.errors import BudgetExceededError

STEP = 10_000
DATA = np.random.default_rng(4).integers(0, 50, 400_000).astype("u1").tobytes()
SKIPPABLE = b"\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seekable, "SPACING", STEP)
    monkeypatch.setattr(seekable, "_READ", 1000)


def opened(tmp_path: Path, content: bytes) -> Seekable:
    (tmp_path / "data").write_bytes(content)
    return open_seekable(FileSet([tmp_path / "data"], Roots([tmp_path]).open), 0)


def scanned(tmp_path: Path, content: bytes) -> Compressed:
    found = opened(tmp_path, content)
    assert isinstance(found, Compressed)
    assert found.size == 0
    assert b"".join(found.scan()) == DATA
    assert found.size == len(DATA)
    return found


def members(compress: str) -> bytes:
    """The data in many gzip members or zstd frames."""
    pieces = [DATA[at : at + 7000] for at in range(0, len(DATA), 7000)]
    return b"".join(gzip.compress(p) if compress == "gzip" else zstd.compress(p) for p in pieces)


FORMS = {"gzip": gzip.compress(DATA), "members": members("gzip"), "frames": members("zstd")}


@pytest.mark.parametrize("form", FORMS)
def test_checkpoints_lie_a_spacing_apart(tmp_path: Path, form: str) -> None:
    found = scanned(tmp_path, FORMS[form])
    at = [checkpoint.at for checkpoint in found._checkpoints]
    steps = [b - a for a, b in itertools.pairwise(at)]
    # A piece is up to four times what is read at once, a member or a frame 7000 bytes.
    assert all(STEP <= step < STEP + 2 * 7000 for step in steps)
    assert len(DATA) - at[-1] < STEP + 2 * 7000


def test_too_many_checkpoints_double_their_spacing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seekable, "MAX_CHECKPOINTS", 8)
    found = scanned(tmp_path, FORMS["gzip"])
    assert found._spacing == 8 * STEP
    assert 4 <= found.checkpoints <= 8
    steps = itertools.pairwise(checkpoint.at for checkpoint in found._checkpoints)
    assert all(after - before >= found._spacing for before, after in steps)
    monkeypatch.setattr(seekable, "MAX_CHECKPOINTS", 20)
    assert scanned(tmp_path, FORMS["gzip"]).checkpoints <= 20


@pytest.mark.parametrize("form", FORMS)
def test_a_scan_renews_its_budget_by_what_it_takes_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    renewed: list[int] = []
    monkeypatch.setattr(UNLIMITED, "renew", lambda: renewed.append(1))
    monkeypatch.setattr(seekable, "RENEWING", 4 * seekable._READ)
    scanned(tmp_path, FORMS[form])
    pieces = len(FORMS[form]) / seekable.RENEWING
    assert pieces / 2 <= len(renewed) <= pieces


def test_the_window_of_a_frame_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    monkeypatch.setattr(UNLIMITED, "hold", lambda _, nbytes: held.append(nbytes))
    for content in (zstd.compress(DATA), zstd.compress(DATA[:9]) + zstd.compress(DATA[9:])):
        held.clear()
        scanned(tmp_path, content)
        assert sum(held) >= len(DATA) - 9


@pytest.mark.parametrize("form", FORMS)
def test_reads_decode_little_before_their_bytes(tmp_path: Path, form: str) -> None:
    found = scanned(tmp_path, FORMS[form])
    taken = 0
    read = found._files.read

    def count(file: int, start: int, stop: int) -> bytes:
        nonlocal taken
        data = read(file, start, stop)
        taken += len(data)
        return data

    found._files.read = count  # type: ignore[method-assign]
    assert found.read(390_000, 390_100) == DATA[390_000:390_100]
    assert taken < len(FORMS[form]) / 8
    # Going on costs what is read, and once only.
    taken = 0
    for at in range(100_000, 200_000, 500):
        assert found.read(at, at + 500) == DATA[at : at + 500]
    assert taken < len(FORMS[form]) / 2.5
    rng = random.Random(2)  # noqa: S311 - repeatable
    for _ in range(100):
        start, stop = sorted(rng.sample(range(len(DATA) + 3000), 2))
        stop = min(stop, start + 9000)
        assert found.read(start, stop) == DATA[start:stop]


@pytest.mark.parametrize("first", range(0x50, 0x60))
def test_zstd_may_begin_with_a_skippable_frame(tmp_path: Path, first: int) -> None:
    content = bytes([first]) + SKIPPABLE + zstd.compress(DATA)
    found = scanned(tmp_path, content)
    assert found.coding == "zstd"


@pytest.mark.parametrize("first", [0x00, 0x45, 0x60, 0xA0, 0xD5])
def test_other_first_bytes_are_no_skippable_frame(tmp_path: Path, first: int) -> None:
    assert opened(tmp_path, bytes([first]) + SKIPPABLE).coding == "plain"


def wide(log: int) -> bytes:
    made = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
    return made.compress(DATA, mode=made.FLUSH_BLOCK) + made.flush()


@pytest.mark.parametrize("memory", [4 << 20, 256 << 20])
def test_whoever_reads_holds_the_window_of_a_zstd_frame(tmp_path: Path, memory: int) -> None:
    """From before a decoder takes it: when the file is scanned, and in each read."""
    never = threading.Event()
    budget = RequestBudget(BudgetLimits(memory=memory), never, never)
    found = opened(tmp_path, zstd.compress(DATA) + wide(27))
    if memory < 128 << 20:
        with pytest.raises(BudgetExceededError):
            budget.run(lambda: b"".join(found.scan()))
        return
    assert budget.run(lambda: b"".join(found.scan())) == DATA + DATA
    assert budget.peak >= 128 << 20
    for start in (len(DATA), len(DATA) + 10):
        reading = RequestBudget(BudgetLimits(memory=memory), never, never)
        assert reading.run(found.read, start, start + 10) == DATA[start - len(DATA) :][:10]
        assert reading.peak >= 128 << 20
        assert reading.held == 0
