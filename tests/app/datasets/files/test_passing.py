"""Bytes of files are passed on as they were when the files were opened, or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.datasets.files import passing
from app.datasets.files.buffers import BufferPool
from app.datasets.files.passing import Run, StoredBytes, join_runs
from app.engine.budgets import Budgets
from app.engine.ledger import Ledger
from app.errors import DataChangedError
from core.arrays import Indices
from tests.app.datasets.files.test_backends import WAYS, Setup
from tests.scale import SOAK

SIZES = (900_000, 300_001)


@pytest.fixture(params=WAYS)
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path, request.param, SIZES, BufferPool())
    yield setup
    setup.close()


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_PORTION", 70_000)
    monkeypatch.setattr(passing, "_FIRST", 5000)


class Taker:
    """Takes as many bytes of each portion as it likes."""

    def __init__(self, rng: random.Random) -> None:
        self.taken = bytearray()
        self._rng = rng

    def __call__(self, octets: memoryview) -> int:
        size = self._rng.choice([0, 1, len(octets) // 2, len(octets), len(octets)])
        self.taken += octets[:size]
        return size


def stored(setup: Setup, *pieces: Run | memoryview) -> StoredBytes:
    size = sum(p.stop - p.start if isinstance(p, Run) else len(p) for p in pieces)
    return StoredBytes(size, join_runs(pieces), setup.backend)


def test_random_ranges(setup: Setup) -> None:
    rng = random.Random(7)  # noqa: S311 - repeatable
    for _ in range((2000 if SOAK else 100) // len(WAYS)):
        pieces: list[Run | memoryview] = []
        expected = b""
        for _ in range(rng.randrange(1, 4)):
            file = rng.randrange(len(SIZES))
            start, stop = sorted(rng.sample(range(SIZES[file] + 1), 2))
            middle = rng.choice([start, stop, (start + stop) // 2])
            # Some follow each other, and some bytes are in memory.
            pieces += [Run(file, a, b) for a, b in ((start, middle), (middle, stop)) if a < b]
            expected += setup.contents[file][start:stop]
            if rng.random() < 0.2:
                pieces.append(memoryview(b"given"))
                expected += b"given"
        source, taker = stored(setup, *pieces), Taker(rng)
        if rng.random() < 0.5:
            source.prepare()
        while source.left:
            source.pass_on(taker)
        assert taker.taken == expected


def test_hints_are_for_what_is_passed_on(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: list[tuple[int, int, int]] = []

    def hint(files: Indices, starts: Indices, size: int) -> None:
        hinted.append((int(files[0]), int(starts[0]), int(starts[0]) + size))

    monkeypatch.setattr(setup.backend, "hint", hint)
    pass_all(stored(setup, Run(0, 1000, 200_000)), len)
    assert hinted == [(0, 71_000, 141_000), (0, 141_000, 200_000)]


def pass_all(source: StoredBytes, take: Callable[[memoryview], int]) -> None:
    while source.left:
        source.pass_on(take)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(SIZES[0]))


def cut(path: Path) -> None:
    os.truncate(path, 1000)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(SIZES[0]))
    other.rename(path)


@pytest.mark.parametrize("change", [overwrite, cut, replace, Path.unlink])
def test_a_file_that_changes_ends_it_before_other_bytes(
    setup: Setup, change: Callable[[Path], None]
) -> None:
    source = stored(setup, Run(0, 0, SIZES[0]))
    source.prepare()
    taken = bytearray()

    def take(octets: memoryview) -> int:
        taken.extend(octets)
        return len(octets)

    for _ in range(3):
        source.pass_on(take)
    change(setup.paths[0])
    with pytest.raises(DataChangedError):
        pass_all(source, take)
    assert len(taken) < SIZES[0]
    assert setup.contents[0].startswith(taken)


def test_a_change_before_the_answer_is_told_by_preparing(setup: Setup) -> None:
    source = stored(setup, Run(0, 0, SIZES[0]))
    cut(setup.paths[0])
    with pytest.raises(DataChangedError):
        source.prepare()


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path, "leased", SIZES, BufferPool())
    yield setup
    setup.close()


def test_portions_are_lent_from_the_map_under_a_lease(leased: Setup) -> None:
    held = []

    def take(octets: memoryview) -> int:
        with leased.files.hold(0) as descriptor:
            held.append(fcntl.fcntl(descriptor, fcntl.F_GETLEASE))
        return len(octets)

    source = stored(leased, Run(0, 0, SIZES[0]))
    while source.left:
        source.pass_on(take)
    assert set(held) == {fcntl.F_RDLCK}
    with leased.files.hold(0) as descriptor:
        assert fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    # Nothing was read into a room.
    assert source._room is None


def test_a_page_that_the_kernel_cannot_get_is_read(leased: Setup) -> None:
    source, taken, refused = stored(leased, Run(0, 5, 200_000)), bytearray(), []

    def take(octets: memoryview) -> int:
        with leased.files.hold(0) as descriptor:
            if fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK:
                refused.append(len(octets))
                raise OSError(errno.EFAULT, "a page that does not come")
        taken.extend(octets)
        return len(octets)

    while source.left:
        source.pass_on(take)
    assert refused
    assert taken == leased.contents[0][5:200_000]


def test_other_faults_of_the_socket_are_passed_on(leased: Setup) -> None:
    def fail(_octets: memoryview) -> int:
        raise TimeoutError(errno.ETIMEDOUT, "nobody answers")

    with pytest.raises(TimeoutError):
        stored(leased, Run(0, 0, SIZES[0])).pass_on(fail)


def test_runs_that_follow_each_other_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_JOINED", 100)
    given = memoryview(b"x")
    pieces: list[Run | memoryview] = [
        Run(0, 0, 50),
        Run(0, 50, 90),
        Run(0, 91, 95),
        Run(1, 95, 99),
        given,
        Run(1, 99, 300),
    ]
    joined = [Run(0, 0, 90), Run(0, 91, 95), Run(1, 95, 99), given, Run(1, 99, 300)]
    assert list(join_runs([*pieces, Run(1, 300, 301)])) == [*joined, Run(1, 300, 301)]
    assert list(join_runs([])) == []


class Copied:
    """A backend without leases, whose files consist of one byte."""

    ahead = 0

    def lend(self, *_: object) -> bool:
        return False

    def hint(self, *_: object) -> None: ...

    def copy(self, _files: object, _starts: object, size: int, room: Any) -> None:  # noqa: ANN401
        room[:size] = 7


@pytest.mark.parametrize("size", [1 << 20, 10 << 20])
@pytest.mark.parametrize("limit", [8 << 20, 3 << 20])
def test_what_is_read_for_an_answer_is_in_the_ledger_or_little(
    monkeypatch: pytest.MonkeyPatch, limit: int, size: int
) -> None:
    monkeypatch.setattr(passing, "_PORTION", 4 << 20)
    backend: Any = Copied()
    source = StoredBytes(size, iter([Run(0, 0, size)]), backend)
    ledger = Ledger(limit, limit)
    sizes, held = [], set()

    def take(octets: memoryview) -> int:
        sizes.append(len(octets))
        held.add(ledger.held)
        return len(octets)

    with Budgets(ledger=ledger).of_request("ann", threading.Event()) as budget:
        while source.left:
            budget.run(source.pass_on, take)
    assert sum(sizes) == size
    enough = limit >= 4 << 20
    assert max(sizes) == (min(size, 4 << 20) if enough else 64 << 10)
    assert held == {4 << 20 if enough else 0}
    # It is not asked for again and again.
    assert sum(ledger.refused.values()) == (0 if enough else 1)
    assert ledger.held == 0
