"""Every way to read or visit ranges gives the bytes there are, or says that they changed."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.datasets.files import backends, buffered
from app.datasets.files.backends import open_backend
from app.datasets.files.buffered import BufferedBackend
from app.datasets.files.buffers import PAGE, BufferPool
from app.datasets.files.file_set import FileSet, ReadFailedError
from app.datasets.files.roots import Roots
from app.errors import BusyError, DataChangedError, InvalidOptionError
from tests.descriptors import files_open, nothing_left_open
from tests.scale import SOAK, half

SIZES = (300_000, 0, 70_001, 1, 8192)
WAYS = ("leased", "unleased", "buffered", "direct")
"""The backends; ``unleased`` is the default one where somebody has the files open for writing."""
Range = tuple[int, int, int, int]
"""File, start, stop, offset."""
Piece = tuple[int, int]
"""File, start."""


def maps(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


class Setup:
    """Files, and a backend that reads them."""

    def __init__(self, folder: Path, way: str, sizes: Sequence[int], pool: BufferPool) -> None:
        self.paths = [folder / f"{k}.raw" for k in range(len(sizes))]
        rng = np.random.default_rng(len(sizes))
        self.contents = [rng.bytes(size) for size in sizes]
        for path, content in zip(self.paths, self.contents, strict=True):
            path.write_bytes(content)
            os.utime(path, (10**9, 10**9))
        self.way = way
        flags = os.O_RDWR | os.O_CLOEXEC
        self._writers = [os.open(p, flags) for p in self.paths] if way == "unleased" else []
        self.files = FileSet(self.paths, Roots([folder]).open)
        self.pool = pool
        self.backend = open_backend("leased" if way == "unleased" else way, self.files, pool)

    def read(self, ranges: Sequence[Range], size: int) -> bytes:
        return read(self.backend, ranges, size)

    def expected(self, ranges: Sequence[Range], size: int) -> bytes:
        out = bytearray(b"\xaa" * size)
        for file, start, stop, offset in ranges:
            out[offset : offset + stop - start] = self.contents[file][start:stop]
        return bytes(out)

    def visit(self, pieces: Sequence[Piece], size: int) -> bytes:
        return visit(self.backend, pieces, size)

    def expected_of(self, pieces: Sequence[Piece], size: int) -> bytes:
        return b"".join(self.contents[file][start : start + size] for file, start in pieces)

    def close(self) -> None:
        self.backend.close()
        self.files.close()
        while self._writers:
            os.close(self._writers.pop())


def columns(ranges: Sequence[Range]) -> list[npt.NDArray[np.int64]]:
    return list(np.array(ranges, np.int64).reshape(-1, 4).T)


def read(backend: BufferedBackend, ranges: Sequence[Range], size: int) -> bytes:
    out = bytearray(b"\xaa" * size)
    files, starts, stops, offsets = columns(ranges)
    backend.read_ranges(files, starts, stops, memoryview(out), offsets)
    return bytes(out)


def visit(backend: BufferedBackend, pieces: Sequence[Piece], size: int) -> bytes:
    """Visit and copy ranges of ``size`` bytes; what is seen, which must come in order."""
    seen: list[bytes] = []

    def use(first: int, octets: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> None:
        assert first == len(seen)
        assert positions.dtype == np.int64
        assert len(positions)
        seen.extend(octets[at : at + size].tobytes() for at in positions.tolist())

    files, starts = np.array(pieces, np.int64).reshape(-1, 2).T.copy()
    if len(set(files.tolist())) == 1:
        files = files[:1]
    backend.visit(files, starts, size, use)
    out = np.empty(len(pieces) * size, np.uint8)
    backend.copy(files, starts, size, out)
    assert out.tobytes() == b"".join(seen)
    return out.tobytes()


PLACES = [(way, place) for way in WAYS for place in ("disk", "memory")]
if not SOAK:
    # A file system in memory has neither direct reads nor cold pages: the ways differ there less.
    PLACES = [(way, place) for way, place in PLACES if place == "disk" or way == "direct"]


@pytest.fixture(params=PLACES, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A backend, and the kind of file system."""
    assert isinstance(request.param, tuple)
    return request.param


@pytest.fixture
def folder(way: tuple[str, str], tmp_path: Path) -> Iterator[Path]:
    """On a disk, or on a file system in memory."""
    memory = Path("/dev/shm")  # noqa: S108 - a scratch directory is made in it
    if way[1] == "disk":
        yield tmp_path
    elif memory.is_dir():
        with tempfile.TemporaryDirectory(dir=memory) as name:
            yield Path(name)
    else:
        pytest.skip("there is none")


@pytest.fixture
def setup(way: tuple[str, str], folder: Path) -> Iterator[Setup]:
    with nothing_left_open():
        made = Setup(folder, way[0], SIZES, BufferPool(2, 4 * PAGE))
        yield made
        assert made.pool._left._value == 2
        made.close()
    assert maps(folder) == 0


def packed(pieces: Sequence[tuple[int, int, int]]) -> tuple[list[Range], int]:
    """Ranges one after the other in the output."""
    at = 0
    made = []
    for file, start, stop in pieces:
        made.append((file, start, stop, at))
        at += stop - start
    return made, at


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[Range], int]:
    """Rows, frames and anything else, in any order, with room around them."""
    count = draw(st.integers(0, 30))
    kind = draw(st.sampled_from(["rows", "any", "any"]))
    pieces: list[tuple[int, int, int]] = []
    if kind == "rows":
        file = draw(st.sampled_from([0, 2]))
        length = draw(st.sampled_from([1, 3, 64, 1000, 3000]))
        step = draw(st.integers(1, 9000))
        first = draw(st.integers(0, 5000))
        for k in range(count):
            start = first + k * step
            if start + length <= SIZES[file]:
                pieces.append((file, start, start + length))
    else:
        for _ in range(count):
            file = draw(st.integers(0, len(SIZES) - 1))
            start = draw(st.integers(0, SIZES[file]))
            longest = draw(st.sampled_from([0, 10, 5000, 300_000]))
            pieces.append(
                (file, start, draw(st.integers(start, min(start + longest, SIZES[file]))))
            )
    if draw(st.booleans()):
        pieces = draw(st.permutations(pieces))
    if draw(st.booleans()):
        return packed(pieces)
    # The last of them first, with gaps of 3.
    made: list[Range] = []
    at = 5
    for file, start, stop in reversed(pieces):
        made.append((file, start, stop, at))
        at += stop - start + 3
    return made[::-1], at


@given(request=requests())
@settings(max_examples=half(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_way_gives_the_same_bytes(setup: Setup, request: tuple[list[Range], int]) -> None:
    ranges, size = request
    assert setup.read(ranges, size) == setup.expected(ranges, size)


@given(request=requests(), huge=st.sampled_from([PAGE, 5000]), vectors=st.integers(1, 4))
@settings(max_examples=half(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_limits_of_a_call_do_not_change_the_bytes(
    setup: Setup, request: tuple[list[Range], int], huge: int, vectors: int
) -> None:
    ranges, size = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffered, "_MAX_CALL", huge)
        patch.setattr(buffered, "_MAX_BUFFERS", vectors)
        patch.setattr(buffered, "_SCATTERED", 100)
        assert setup.read(ranges, size) == setup.expected(ranges, size)


@given(request=requests(), seed=st.integers(0, 99))
@settings(max_examples=half(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_that_stop_short_go_on(
    setup: Setup, request: tuple[list[Range], int], seed: int
) -> None:
    ranges, size = request
    rng = np.random.default_rng(seed)
    whole = os.preadv

    def some(descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int) -> int:
        if flags:
            return whole(descriptor, buffers, at, *flags)
        first = memoryview(buffers[0])
        few = int(rng.choice([1, 100, 3 * PAGE])) * (PAGE if setup.backend.name == "direct" else 1)
        return whole(descriptor, [first[:few]], at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", some)
        assert setup.read(ranges, size) == setup.expected(ranges, size)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((0, 10, 5, 0), "after its end"),
        ((0, -1, 5, 0), "before 0"),
        ((0, 0, 5, -1), "before 0"),
        ((0, 0, 11, 0), "fit its output"),
        ((0, 0, 5, 6), "fit its output"),
        ((0, 299_995, 300_001, 0), "ends at byte"),
        ((1, 0, 1, 0), "ends at byte"),
        ((5, 0, 1, 0), "no file"),
        ((-1, 0, 1, 0), "no file"),
    ],
)
def test_ranges_that_are_none(setup: Setup, bad: Range, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setup.read([(0, 0, 1, 0), bad], 10)


def test_nothing_is_read(setup: Setup) -> None:
    assert setup.read([], 0) == b""
    assert setup.read([(1, 0, 0, 0), (0, 5, 5, 3)], 3) == b"\xaa" * 3


def shrink(path: Path) -> None:
    os.truncate(path, 100_000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def touch(path: Path) -> None:
    os.utime(path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"!")


def replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def remove(path: Path) -> None:
    path.unlink()


CHANGES = (shrink, empty, grow, touch, overwrite, replace, remove)
FRAMES = packed([(0, k * 10_000, k * 10_000 + 9000) for k in range(30)])
ROWS = packed([(0, k * 100, k * 100 + 20) for k in range(3000)])
WHOLE = packed([(0, 0, 300_000)])
BEGIN = packed([(0, 0, 1000)])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("request_", [FRAMES, ROWS, WHOLE, BEGIN])
def test_a_file_that_was_changed(
    setup: Setup, change: Callable[[Path], None], request_: tuple[list[Range], int]
) -> None:
    assert setup.read(*request_) == setup.expected(*request_)
    change(setup.paths[0])
    with pytest.raises(DataChangedError) as caught:
        setup.read(*request_)
    assert caught.value.members["file"] == "0.raw"
    # The others are as they were.
    other = packed([(2, 0, 70_001), (4, 5, 9)])
    assert setup.read(*other) == setup.expected(*other)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("request_", [FRAMES, ROWS])
def test_a_file_that_changes_in_the_middle_of_a_read(
    setup: Setup,
    change: Callable[[Path], None],
    request_: tuple[list[Range], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change comes between two calls; while a map is visited, nobody can make one."""
    whole = os.preadv
    calls = 0

    def change_then_read(
        descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int
    ) -> int:
        nonlocal calls
        calls += not flags
        if calls == 2:
            change(setup.paths[0])
        return whole(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "preadv", change_then_read)
    monkeypatch.setattr(buffered, "_GAP", 500)
    monkeypatch.setattr(backends, "_GAP", 500)
    with pytest.raises(DataChangedError):
        setup.read(*request_)
    assert calls >= 2


@st.composite
def visits(draw: st.DrawFn) -> tuple[list[Piece], int]:
    """Ranges of one length in one file or several."""
    size = draw(st.sampled_from([1, 3, 64, 5000, 8192]))
    files = draw(st.sampled_from([[0], [2], [0, 2], [0, 4]]))
    count = draw(st.integers(0, 60))
    pieces = []
    for k in range(count):
        file = draw(st.sampled_from(files))
        last = SIZES[file] - size
        step = draw(st.sampled_from([size, 0])) or draw(st.integers(0, last))
        pieces.append((file, (k * step) % (last + 1)))
    return pieces, size


@given(request=visits(), long=st.sampled_from([0, 64, 1 << 30]))
@settings(max_examples=half(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_way_visits_the_same_bytes(
    setup: Setup, request: tuple[list[Piece], int], long: int
) -> None:
    pieces, size = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "_PORTION", 20_000)
        patch.setattr(backends, "_LEAST", 10_000)
        patch.setattr(buffered, "_LONG", long)
        assert setup.visit(pieces, size) == setup.expected_of(pieces, size)


@pytest.mark.parametrize(
    ("pieces", "size", "words"),
    [
        ([(0, -1)], 5, "before 0"),
        ([(0, 0)], 0, "is empty"),
        ([(0, 0), (0, 299_996)], 5, "ends at byte"),
        ([(0, 0), (2, 70_000)], 5, "ends at byte"),
        ([(5, 0)], 5, "no file"),
        ([(-1, 0)], 5, "no file"),
    ],
)
def test_visits_that_are_none(setup: Setup, pieces: list[Piece], size: int, words: str) -> None:
    files, starts = np.array(pieces, np.int64).T.copy()
    with pytest.raises(ValueError, match=words):
        setup.backend.visit(files, starts, size, lambda *_: None)
    with pytest.raises(ValueError, match=words):
        setup.backend.copy(files, starts, size, np.empty(len(pieces) * size, np.uint8))


def test_a_copy_fills_its_output(setup: Setup) -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="do not fill"):
        setup.backend.copy(one, np.array([0]), 5, np.empty(6, np.uint8))


FAR = [(0, k * 10_000) for k in range(30)]
BOTH = [(2 * (k % 2), k * 1000) for k in range(30)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("pieces", [FAR, BOTH])
def test_a_visited_file_that_was_changed(
    setup: Setup, change: Callable[[Path], None], pieces: list[Piece]
) -> None:
    assert setup.visit(pieces, 9000) == setup.expected_of(pieces, 9000)
    change(setup.paths[0])
    with pytest.raises(DataChangedError) as caught:
        setup.visit(pieces, 9000)
    assert caught.value.members["file"] == "0.raw"


def test_one_of_several_files_that_changes_after_its_last_read(setup: Setup) -> None:
    def change(first: int, _octets: object, positions: npt.NDArray[np.int64]) -> None:
        if first + len(positions) == len(BOTH):
            with setup.paths[0].open("r+b") as file:
                file.write(b"changed")

    files, starts = np.array(BOTH, np.int64).T.copy()
    with pytest.raises(DataChangedError) as caught:
        setup.backend.visit(files, starts, 9000, change)
    assert caught.value.members["file"] == "0.raw"


def test_an_error_of_the_visitor_ends_the_visit(setup: Setup) -> None:
    class OwnError(Exception):
        pass

    def fail(_first: int, _octets: object, _positions: object) -> None:
        raise OwnError

    files, starts = np.array(FAR, np.int64).T.copy()
    for _ in range(3):
        with pytest.raises(OwnError):
            setup.backend.visit(files, starts, 9000, fail)
    assert setup.visit(FAR, 9000) == setup.expected_of(FAR, 9000)
    # No lease is left that would keep a writer out.
    os.close(os.open(setup.paths[0], os.O_WRONLY | os.O_NONBLOCK))


def test_hints_are_for_the_ranges_to_come(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    cold = True

    def note(_descriptor: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        told.append((start, size))

    def probe(_descriptor: int, buffers: Sequence[bytearray], at: int, flags: int) -> int:
        assert (at, flags) == (51_999, os.RWF_NOWAIT)
        if cold:
            raise BlockingIOError
        return len(buffers)

    starts, one = np.array([250_000, 10, 50_000]), np.zeros(1, np.int64)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fadvise", note)
        patch.setattr(os, "preadv", probe)
        setup.backend.hint(one, starts, 2000)
        wanted = [(250_000, 2000), (10, 2000), (50_000, 2000)]
        assert told == ([] if setup.backend.name == "direct" else wanted)
        told.clear()
        cold = False
        setup.backend.hint(one, starts, 2000)
        setup.backend.hint(np.array([0, 2, 0]), starts, 2000)
        assert not told
    setup.backend.hint(one, starts, 2000)


def test_what_is_cold_is_asked_for_all_at_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = os.preadv

    def find_nothing(descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int) -> int:
        if flags:
            raise BlockingIOError
        return real(descriptor, buffers, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fadvise", lambda _file, start, _size, _advice: asked.append(start))
        assert setup.visit(FAR, 9000) == setup.expected_of(FAR, 9000)
        assert not asked
        patch.setattr(os, "preadv", find_nothing)
        fresh = open_backend(setup.backend.name, setup.files, setup.pool)
        assert visit(fresh, FAR, 9000) == setup.expected_of(FAR, 9000)
        fresh.close()
    wanted = [start for _, start in FAR]
    # Visited, then copied; what was mapped before is known to be there.
    times = {"direct": 0, "leased": 1}.get(setup.way, 2)
    assert asked == wanted * times


def test_one_range_that_takes_one_call_is_not_announced(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would be asked whether it is in memory, just to be asked for it next."""
    asked = 0
    real = os.preadv

    def count(descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int) -> int:
        nonlocal asked
        asked += len(flags)
        return real(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "preadv", count)
    assert setup.visit(FAR[:1], 9000) == setup.expected_of(FAR[:1], 9000)
    assert not asked
    assert setup.visit(FAR[:2], 9000) == setup.expected_of(FAR[:2], 9000)
    assert bool(asked) == (setup.backend.name != "direct")


@pytest.mark.parametrize("way", ["buffered", "direct"])
@pytest.mark.parametrize("there", ["all", "some", "nothing"])
def test_neighbours_in_memory_are_visited_after_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, there: str
) -> None:
    setup = Setup(tmp_path, way, SIZES, BufferPool())
    calls: list[tuple[int, int]] = []
    real = os.preadv

    def read_what_is_there(
        descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int
    ) -> int:
        if len(buffers[0]) > 1:
            calls.append((len(buffers[0]), *flags))  # type: ignore[arg-type]  # one or none
        if flags and there == "nothing":
            raise BlockingIOError
        if flags and there == "some":
            buffers = [buffers[0][: len(buffers[0]) // 2]]
        return real(descriptor, buffers, at, *flags)

    row = [(0, 10_000 + 1000 * k) for k in range(200)]
    visits: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", read_what_is_there)
        starts = np.array([start for _, start in row])
        setup.backend.visit(
            np.zeros(1, np.int64), starts, 1000, lambda *seen: visits.append(len(seen[2]))
        )
        if way != "direct":
            assert calls[0] == (200_000, os.RWF_NOWAIT)
            assert (len(calls) == 1) == (there == "all")
            assert visits == [200]
        # Neither a gap, a turned pair, nor a repeated range makes a row.
        for change in (row, [*row[:-1], (0, 250_000)], row[::-1], [*row[:2], row[1], *row[3:]]):
            assert setup.visit(change, 1000) == setup.expected_of(change, 1000)
    with setup.pool.lend(), setup.pool.lend():
        setup.close()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_short_read_of_neighbours_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    setup = Setup(tmp_path, "buffered", SIZES, BufferPool())
    real = os.preadv

    def stop_short(descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int) -> int:
        length = max(int(part * len(buffers[0])), 1)
        return real(descriptor, [buffers[0][:length]], at, *flags)

    row = [(0, 20_000 * k) for k in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", stop_short)
        assert setup.visit(row, 20_000) == setup.expected_of(row, 20_000)
    setup.close()


def test_hints_never_fail(setup: Setup) -> None:
    shrink(setup.paths[0])
    setup.backend.hint(np.zeros(1, np.int64), np.array([250_000]), 2000)
    setup.paths[0].unlink()
    setup.backend.hint(np.zeros(1, np.int64), np.array([250_000]), 2000)


def test_a_file_system_that_refuses_direct_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(tmp_path, "direct", SIZES, BufferPool())
    real_open, real_read = os.open, os.preadv
    opened: set[int] = set()

    def refuse(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "refused")
        return real_open(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert setup.read(*FRAMES) == setup.expected(*FRAMES)

    def notice(path: str, flags: int, *rest: int) -> int:
        descriptor = real_open(path, flags, *rest)
        if flags & os.O_DIRECT:
            opened.add(descriptor)
        return descriptor

    def refuse_later(descriptor: int, buffers: Sequence[memoryview], at: int, *flags: int) -> int:
        if descriptor in opened:
            raise OSError(errno.EINVAL, "refused")
        return real_read(descriptor, buffers, at, *flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", notice)
        patch.setattr(os, "preadv", refuse_later)
        assert setup.read(*FRAMES) == setup.expected(*FRAMES)
    assert opened
    setup.close()


def test_direct_reads_see_what_was_written_just_now(tmp_path: Path) -> None:
    path = tmp_path / "x.raw"
    for k in range(5):
        path.write_bytes(bytes([k]) * 10_000)
        with FileSet([path], Roots([tmp_path]).open) as files:
            backend = open_backend("direct", files, BufferPool())
            assert read(backend, [(0, 1, 9999, 0)], 9998) == bytes([k]) * 9998


def test_a_failing_disk(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **_more: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", fail)
    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(ReadFailedError, match="broken"):
        setup.read(*FRAMES)
    with pytest.raises(ReadFailedError, match="broken"):
        setup.visit(FAR, 9000)


def test_no_buffers_left(tmp_path: Path) -> None:
    pool = BufferPool(1, 4 * PAGE, wait=0.05)
    setup = Setup(tmp_path, "buffered", SIZES, pool)
    with pool.lend(), pytest.raises(BusyError):
        setup.read(*ROWS)
    assert setup.read(*ROWS) == setup.expected(*ROWS)
    setup.close()


def test_buffers_come_back_whatever_happens() -> None:
    pool = BufferPool(2, PAGE, wait=0.05)

    def fail() -> None:
        with pool.lend() as buffer:
            assert buffer.ctypes.data % PAGE == 0
            assert len(buffer) == PAGE
            raise KeyError

    for _ in range(5):
        with pytest.raises(KeyError):
            fail()
    with pool.lend() as one, pool.lend() as other:
        assert one.ctypes.data != other.ctypes.data
    assert len(pool._free) == 2
    for size in (0, -PAGE, PAGE + 1):
        with pytest.raises(ValueError, match="whole pages"):
            BufferPool(1, size)


def test_threads_read_at_once(setup: Setup) -> None:
    everything = packed([(k, 0, size) for k, size in enumerate(SIZES)])
    wanted = [FRAMES, ROWS, WHOLE, everything]
    ready = threading.Barrier(4)

    def run(k: int) -> None:
        ready.wait()
        for request in wanted[k:] + wanted[:k]:
            assert setup.read(*request) == setup.expected(*request)
        for pieces in (FAR, BOTH):
            assert setup.visit(pieces, 9000) == setup.expected_of(pieces, 9000)

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(run, range(4)):
            pass


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    for way in WAYS:
        folder = tmp_path / way
        folder.mkdir()
        setup = Setup(folder, way, [5000] * 300, BufferPool())
        request = packed([(k, 100, 200) for k in range(300)])
        before = files_open(folder)
        assert setup.read(*request) == setup.expected(*request)
        assert setup.visit([(k, 50) for k in range(300)], 9) == setup.expected_of(
            [(k, 50) for k in range(300)], 9
        )
        assert files_open(folder) <= before
        setup.close()


def test_ways_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with (
        FileSet([tmp_path / "x"], Roots([tmp_path]).open) as files,
        pytest.raises(InvalidOptionError),
    ):
        open_backend("psychic", files, BufferPool())


def test_a_closed_set_cannot_be_read(tmp_path: Path) -> None:
    for way in WAYS:
        setup = Setup(tmp_path, way, SIZES, BufferPool())
        setup.close()
        with pytest.raises(ValueError, match="closed"):
            setup.read(*BEGIN)
        with pytest.raises(ValueError, match="closed"):
            setup.visit(FAR, 9000)
