"""Ranges of objects are the bytes there are, however they are cut, sorted or hinted at."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import obstore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from app.datasets.files import backends
from app.datasets.files.backends import ObjectBackend, open_backend
from app.datasets.files.buffered import BufferedBackend
from app.datasets.files.buffers import BufferPool
from app.datasets.files.passing import Run, StoredBytes
from app.engine.request_budget import BudgetLimits, RequestBudget
from app.errors import DataChangedError, InvalidOptionError
from core.errors import BudgetExceededError
from tests.app.datasets.files.bucket import objects_of
from tests.app.datasets.files.test_backends import SIZES, Range, read, requests, visit
from tests.scale import examples


class Setup:
    """Objects in a store, and a backend that reads them."""

    def __init__(self, sizes: Sequence[int] = SIZES) -> None:
        rng = np.random.default_rng(len(sizes))
        self.contents = [rng.bytes(size) for size in sizes]
        self.store = MemoryStore()
        for number, content in enumerate(self.contents):
            obstore.put(self.store, f"{number}.raw", content)
        self.files = objects_of(self.store, [f"{k}.raw" for k in range(len(sizes))])
        self.backend: BufferedBackend = open_backend("leased", self.files, BufferPool())
        assert isinstance(self.backend, ObjectBackend)

    def expected(self, ranges: Sequence[Range], size: int) -> bytes:
        out = bytearray(b"\xaa" * size)
        for file, start, stop, offset in ranges:
            out[offset : offset + stop - start] = self.contents[file][start:stop]
        return bytes(out)


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup()


@pytest.fixture(params=[(256 << 10, 4 << 20), (100, 5000)], ids=["usual", "small"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_OBJECT_GAP", request.param[0])
    monkeypatch.setattr(backends, "PART", request.param[1])


@pytest.mark.usefixtures("_sizes")
@given(request=requests())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_bytes_as_in_memory(setup: Setup, request: tuple[list[Range], int]) -> None:
    ranges, size = request
    assert read(setup.backend, ranges, size) == setup.expected(ranges, size)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    size = draw(st.sampled_from([1, 8, 64, 1000, 3000, 8000]))
    fitting = [k for k, whole in enumerate(SIZES) if whole >= size]
    one = draw(st.booleans())
    file = draw(st.sampled_from(fitting))
    count = draw(st.integers(1, 40))
    made = []
    for _ in range(count):
        file = file if one else draw(st.sampled_from(fitting))
        made.append((file, draw(st.integers(0, SIZES[file] - size))))
    how = draw(st.sampled_from(["sorted", "any", "rows"]))
    if how == "sorted":
        made.sort()
    elif how == "rows":
        most = (SIZES[file] - size) // size
        made = [(file, k * size) for k in range(min(count, most + 1))]
    return made, size


@pytest.mark.usefixtures("_sizes")
@given(request=pieces(), hinted=st.booleans())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_visited_and_copied_is_what_there_is(
    setup: Setup, request: tuple[list[tuple[int, int]], int], hinted: bool
) -> None:
    made, size = request
    if hinted:
        files, starts = np.array(made, np.int64).T.copy()
        setup.backend.hint(files, starts, size)
    wanted = b"".join(setup.contents[file][start : start + size] for file, start in made)
    assert visit(setup.backend, made, size) == wanted


@pytest.mark.parametrize("shift", [0, 1, 3, 8])
def test_what_is_visited_is_aligned_as_in_the_object(setup: Setup, shift: int) -> None:
    """Values of any type can be looked at where they arrived."""
    starts = np.arange(20, dtype=np.int64) * 4096 + shift

    def use(_first: int, octets: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> None:
        assert octets.ctypes.data % 16 == 0
        assert (positions % 16 == shift).all()

    setup.backend.visit(np.zeros(1, np.int64), starts, 64, use)


def columns(starts: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.zeros(1, np.int64), np.array(starts, np.int64)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[Setup, list[tuple[int, int]]]:
    """A backend, and what is asked of the store."""
    made, seen = Setup((9 << 20,)), list[tuple[int, int]]()
    whole = made.files.part

    def part(file: int, start: int, stop: int) -> npt.NDArray[np.uint8]:
        seen.append((start, stop))
        return whole(file, start, stop)

    monkeypatch.setattr(made.files, "part", part)
    return made, seen


def test_a_long_range_is_several_requests(counted: tuple[Setup, list[tuple[int, int]]]) -> None:
    made, seen = counted
    out = np.empty(9 << 20, np.uint8)
    made.backend.copy(*columns([0]), 9 << 20, out)
    assert out.tobytes() == made.contents[0]
    assert sorted(seen) == [(0, 4 << 20), (4 << 20, 8 << 20), (8 << 20, 9 << 20)]


def test_near_ranges_are_one_request(counted: tuple[Setup, list[tuple[int, int]]]) -> None:
    made, seen = counted
    starts = [0, 1000, 2000, 5 << 20, (5 << 20) + 128]
    out = np.empty(5 * 100, np.uint8)
    made.backend.copy(*columns(starts), 100, out)
    assert sorted(seen) == [(0, 2100), (5 << 20, (5 << 20) + 228)]


def test_what_was_hinted_at_is_not_asked_for_again(
    counted: tuple[Setup, list[tuple[int, int]]],
) -> None:
    made, seen = counted
    files, starts = columns([k << 20 for k in range(6)])
    for _ in range(2):
        made.backend.hint(files, starts, 1 << 20)
    out = np.empty(6 << 20, np.uint8)
    made.backend.copy(files, starts, 1 << 20, out)
    assert out.tobytes() == made.contents[0][: 6 << 20]
    assert sorted(seen) == [(0, 4 << 20), (4 << 20, 6 << 20)]
    made.backend.copy(files, starts, 1 << 20, out)
    assert len(seen) == 4


def test_hints_never_fail(setup: Setup) -> None:
    for start in (-5, 10**9):
        setup.backend.hint(*columns([start]), 100)
    setup.backend.hint(*columns([]), 100)


@pytest.mark.parametrize("hinted", [False, True])
def test_a_change_is_an_error(hinted: bool) -> None:
    made = Setup((100_000,))
    obstore.put(made.store, "0.raw", bytes(100_000))
    files, starts = columns([0, 50_000])
    if hinted:
        made.backend.hint(files, starts, 1000)
    with pytest.raises(DataChangedError, match="was modified"):
        made.backend.copy(files, starts, 1000, np.empty(2000, np.uint8))


def test_what_is_under_way_is_in_the_budget(setup: Setup) -> None:
    never = threading.Event()
    request = RequestBudget(BudgetLimits(memory=50_000), never, never)

    def copy(size: int) -> None:
        setup.backend.copy(*columns([0]), size, np.empty(size, np.uint8))

    request.run(copy, 40_000)
    with pytest.raises(BudgetExceededError):
        request.run(copy, 60_000)


def test_ways_to_read_directories_are_refused(setup: Setup) -> None:
    with pytest.raises(InvalidOptionError, match="in a bucket"):
        open_backend("direct", setup.files, BufferPool())


def test_a_file_that_is_passed_on_is_fetched_ahead_and_once(
    counted: tuple[Setup, list[tuple[int, int]]],
) -> None:
    made, seen = counted
    size = 9 << 20
    stored, taken = StoredBytes(size, iter([Run(0, 0, size)]), made.backend), bytearray()
    stored.prepare()

    def write(octets: memoryview) -> int:
        taken.extend(octets)
        return len(octets)

    stored.pass_on(write)
    stored.pass_on(write)
    # The end was asked for before the middle was read.
    assert max(stop for _, stop in seen) == size
    while stored.left:
        stored.pass_on(write)
    assert bytes(taken) == made.contents[0]
    assert sum(stop - start for start, stop in seen) <= size + 3 * 64
