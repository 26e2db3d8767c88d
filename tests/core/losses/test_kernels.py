from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core._jit import foreign_kernel
from core.losses._kernels import layout, moments, quantiles, unpacking
from core.losses._kernels import seen as seen_kernels
from core.losses._kernels.rows import event_rate
from core.losses.parameters import locate_quantiles, make_scratch
from core.losses.seen import SeenEvents
from tests.scale import BOUNDS_CHECKED, PURE_PYTHON, THOROUGH, examples, half

F = TypeVar("F", bound=Callable[..., Any])
Floats = npt.NDArray[np.floating]
SEEDS = st.integers(0, 2**32 - 1)
INT_MAX = 2**31 - 1
pytestmark = pytest.mark.skipif(
    BOUNDS_CHECKED, reason="each kernel is compiled anew, and plain Python checks its indices too"
)
WIDTHS = [4, 8] if PURE_PYTHON or THOROUGH else [4]
"""Of losses; kernels are compiled anew for each."""
widths = pytest.mark.parametrize("width", WIDTHS)


def callable_from_python(kernel: F) -> F:
    """A kernel that only kernels call, behind one that Python can call."""

    def call(*args: Any) -> Any:  # noqa: ANN401
        return kernel(*args)

    return cast("F", foreign_kernel(call))


add_block = callable_from_python(seen_kernels.add_block)
find_end = callable_from_python(unpacking.find_end)
fold = callable_from_python(moments.fold)
add_samples = callable_from_python(moments.add_samples)
mean_and_deviation = callable_from_python(moments.mean_and_deviation)
order_statistics = callable_from_python(quantiles.order_statistics)
select = callable_from_python(quantiles.select)
squared_deviations = callable_from_python(moments.squared_deviations)
statistics = callable_from_python(moments.statistics)
has_event = callable_from_python(seen_kernels.test_event)
total = callable_from_python(moments.total)
unpack = callable_from_python(unpacking.unpack)


@lru_cache
def select_with(_patience: int) -> Callable[..., None]:
    """``select``, compiled with the patience that its module has at the first call."""
    plain: Callable[..., None] = getattr(quantiles.select, "py_func", quantiles.select)
    return foreign_kernel(plain)


SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "random": lambda rng, n: rng.exponential(1e4, n),
    "equal": lambda _rng, n: np.full(n, 3.5),
    "two": lambda rng, n: rng.choice([1.0, 2.0], n),
    "few": lambda rng, n: rng.integers(0, 5, n).astype(float),
    "rising": lambda _rng, n: np.arange(n, dtype=float),
    "falling": lambda _rng, n: np.arange(n, dtype=float)[::-1],
    "pipe": lambda _rng, n: np.minimum(np.arange(n), np.arange(n)[::-1]).astype(float),
    "valley": lambda _rng, n: np.maximum(np.arange(n), np.arange(n)[::-1]).astype(float),
    "saw": lambda _rng, n: (np.arange(n) % 17).astype(float),
    "least last": lambda _rng, n: np.append(np.ones(max(n - 1, 0)), 0.0)[:n],
    "negative": lambda rng, n: rng.normal(0, 1e3, n),
    "infinite": lambda rng, n: rng.choice([-np.inf, 0.0, np.inf], n),
}
SIZES = (0, 1, 2, 3, 19, 20, 21, 22, 40, 41, 100, 255)


def run_select(function: Any, values: Floats, ranks: list[int]) -> None:  # noqa: ANN401
    expected = np.sort(values)
    wanted = np.array(sorted(ranks), np.int64)
    work = values.copy()
    spare = np.zeros_like(values)
    stack = np.zeros(4 * quantiles.STACK, np.int64)
    function(work, wanted, 0, len(wanted), spare, stack)
    np.testing.assert_array_equal(work[wanted], expected[wanted])
    np.testing.assert_array_equal(np.sort(work), expected)


@widths
@pytest.mark.parametrize("shape", SHAPES)
def test_select_puts_what_a_sort_would(width: int, shape: str) -> None:
    rng = np.random.default_rng(11)
    for n in SIZES:
        values = SHAPES[shape](rng, n).astype(f"f{width}")
        every = list(range(n))
        for ranks in (every, every[:1], every[-1:], every[n // 2 : n // 2 + 2], []):
            run_select(select, values, ranks)
        for count in (1, 5, 20):
            run_select(select, values, rng.integers(0, max(n, 1), count if n else 0).tolist())


@pytest.mark.parametrize("shape", SHAPES)
def test_select_puts_what_a_sort_would_among_many(shape: str) -> None:
    rng = np.random.default_rng(12)
    n = 500 if PURE_PYTHON else 50_000
    values = SHAPES[shape](rng, n).astype("f4")
    for count in (1, 20, 300):
        run_select(select, values, rng.integers(0, n, count).tolist())


@pytest.mark.parametrize("patience", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_select_falls_back_on_a_heap(
    monkeypatch: pytest.MonkeyPatch, shape: str, patience: int
) -> None:
    monkeypatch.setattr(quantiles, "_PATIENCE", patience)
    plain = select_with(patience)
    rng = np.random.default_rng(13)
    for n in (21, 22, 60, 130):
        values = SHAPES[shape](rng, n)
        run_select(plain, values, rng.integers(0, n, 9).tolist())


def test_select_falls_back_on_a_heap_where_too_many_segments_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantiles, "STACK", 2)
    plain = foreign_kernel(getattr(quantiles.select, "py_func", quantiles.select))
    rng = np.random.default_rng(14)
    values = rng.random(300)
    wanted = np.arange(300)
    plain(values, wanted, 0, 300, np.zeros(300), np.zeros(8, np.int64))
    np.testing.assert_array_equal(values, np.sort(values))


@settings(max_examples=half(200))
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from(sorted(SHAPES)),
    st.integers(1, 150),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 60),
    SEEDS,
)
def test_order_statistics_count_absent_samples_as_zero(
    width: int, shape: str, samples: int, density: float, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    present = SHAPES[shape](rng, round(samples * density)).astype(f"f{width}")
    present[rng.random(len(present)) < 0.1] = -0.0
    ranks = np.unique(rng.integers(0, samples, count)).astype(np.int64)
    scratch = make_scratch(samples, width, len(ranks))
    negatives = int(np.count_nonzero(np.signbit(present)))
    order_statistics(present, negatives, samples, ranks, scratch)
    dense = np.sort(np.append(present, np.zeros(samples - len(present), present.dtype)))
    np.testing.assert_array_equal(scratch.picked, dense[ranks])


@settings(max_examples=half(200))
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from(["random", "equal", "two", "few", "rising", "saw", "doubling", "near"]),
    st.integers(1, 700),
    st.integers(0, 300),
    st.integers(1, 8),
    SEEDS,
)
def test_a_few_ranks_have_the_values_of_a_sort_whatever_the_losses(
    width: int, shape: str, n: int, absent: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    if shape == "doubling":
        # Every straight line misses: the search is given up.
        bits = np.left_shift(1, np.arange(n) % (8 * width - 6)).astype(f"i{width}")
        present = rng.permutation(bits).view(f"f{width}")
    elif shape == "near":
        bits = np.array([7.0], f"f{width}").view(f"i{width}") + rng.integers(0, n, n)
        present = bits.astype(f"i{width}").view(f"f{width}")
    else:
        present = SHAPES[shape](rng, n).astype(f"f{width}")
    samples = n + absent
    first = rng.integers(0, samples, count)
    ranks = np.unique(np.minimum(np.concatenate([first, first + 1]), samples - 1))[:count]
    scratch = make_scratch(samples, width, len(ranks))
    order_statistics(present, 0, samples, ranks, scratch)
    dense = np.sort(np.append(np.zeros(absent, present.dtype), present))
    assert scratch.picked.tobytes() == dense[ranks].tobytes()


@settings(max_examples=half(100))
@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30),
    st.one_of(st.integers(1, 300), st.integers(1, 10**6)),
)
def test_quantiles_lie_where_definition_seven_says(qs: list[float], samples: int) -> None:
    q = np.array(qs, np.float32)
    positions, fractions, ranks = locate_quantiles(q, samples)
    assert np.all(np.diff(ranks) > 0)
    for i, value in enumerate(q.tolist()):
        place = (samples - 1) * value
        below, above = ranks[positions[i]].tolist()
        assert below == min(int(place), samples - 1)
        assert above == min(below + 1, samples - 1)
        assert fractions[i] == place - below
        assert 0 <= fractions[i] < 1


# -- moments -------------------------------------------------------------------------


def exact_moments(values: npt.ArrayLike, samples: int) -> tuple[float, float]:
    """Two passes, each summed without error."""
    x = np.append(np.asarray(values, np.float64), np.zeros(samples - np.size(values))).tolist()
    mean = math.fsum(x) / samples
    if samples == 1:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (samples - 1))


@pytest.mark.once
@widths
@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 63, 64, 65, 128, 1000])
def test_sums_are_exact_sums(width: int, n: int) -> None:
    rng = np.random.default_rng(n)
    lanes = np.zeros(layout.LANES)
    for values in (rng.exponential(1e4, n), rng.normal(0, 1, n), 10 ** rng.uniform(-9, 9, n)):
        x = values.astype(f"f{width}")
        scale = float(np.sum(np.abs(x), dtype=np.float64))
        assert total(x, lanes) == pytest.approx(math.fsum(x.tolist()), abs=1e-15 * scale)
        squares = math.fsum((v - 2.5) ** 2 for v in x.tolist())
        assert squared_deviations(x, 2.5, lanes) == pytest.approx(squares, rel=1e-13)


def test_fold_is_the_sum_of_the_lanes() -> None:
    for width in (1, 2, 32, 64):
        assert fold(np.arange(float(width))) == sum(range(width))


@pytest.mark.once
@settings(max_examples=half(150))
@given(
    st.sampled_from(WIDTHS),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    st.sampled_from(["zero", "mean", "far", "first", "opposite"]),
    SEEDS,
)
def test_moments_do_not_depend_on_the_shift(
    width: int, samples: int, density: float, centre: float, shift: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (centre + rng.normal(0, 1, round(samples * density))).astype(f"f{width}")
    mean, deviation = exact_moments(values, samples)
    shifts = {
        "zero": 0.0,
        "mean": mean,
        "far": 1e9,
        "first": float(values[0]) if len(values) else 3.0,
        "opposite": -mean,
    }
    found = mean_and_deviation(values, samples, shifts[shift], np.zeros(layout.LANES))
    scale = max(1.0, abs(centre))
    assert found[0] == pytest.approx(mean, rel=1e-9, abs=1e-9 * scale if shift == "far" else 1e-12)
    assert found[1] == pytest.approx(deviation, rel=1e-7, abs=1e-10 * scale)


@pytest.mark.once
@pytest.mark.parametrize("shift", ["zero", "mean", "float32 mean", "first", "far"])
@pytest.mark.parametrize("spread", [1e-3, 1e-1, 1.0])
def test_deviations_survive_cancellation(shift: str, spread: float) -> None:
    rng = np.random.default_rng(2)
    values = 1e9 + spread * rng.random(1000)
    mean, deviation = exact_moments(values, 1000)
    shifts = {
        "zero": 0.0,
        "mean": mean,
        "float32 mean": float(np.float32(mean)),
        "first": float(values[0]),
        "far": -1e12,
    }
    found = mean_and_deviation(values, 1000, shifts[shift], np.zeros(layout.LANES))
    assert found[0] == pytest.approx(mean, rel=1e-15)
    assert found[1] == pytest.approx(deviation, rel=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("samples", [1, 2, 64, 1000])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, 1e-30])
def test_equal_values_do_not_deviate(samples: int, value: float) -> None:
    values = np.full(samples, value)
    for shift in (0.0, value, value * (1 + 1e-12), 2 * value):
        found = mean_and_deviation(values, samples, shift, np.zeros(layout.LANES))
        assert found[0] == pytest.approx(value, rel=1e-15)
        assert found[1] <= 1e-14 * value


@settings(max_examples=half(100))
@given(st.integers(1, 400), st.integers(0, 6), st.booleans(), SEEDS)
def test_totals_of_an_event(samples: int, blocks: int, negative: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pages = -(-samples // layout.LANES)
    totals = layout.Totals(np.zeros(pages * layout.LANES), np.zeros(pages, np.uint8))
    dense = np.zeros(samples)
    for _ in range(blocks):
        sidx = np.flatnonzero(rng.random(samples) < rng.choice([0.0, 0.01, 0.5, 1.0])) + 1
        losses = rng.exponential(10, len(sidx)) * (rng.random(len(sidx)) < 0.8)
        losses *= rng.choice([1, -1 if negative else 1], len(sidx))
        add_samples(sidx.astype(np.int32), losses, totals)
        dense[sidx - 1] += losses
    found = statistics(samples, totals, np.zeros(layout.LANES))
    mean, deviation = exact_moments(dense, samples)
    assert found[0] == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert found[1] == pytest.approx(deviation, rel=1e-12)
    assert found[2:4] == (dense.min(), dense.max())
    assert found[4] == np.count_nonzero(dense > 0) / samples
    assert not totals.sums.any()
    assert not totals.touched.any()


# -- ids -----------------------------------------------------------------------------


@settings(max_examples=examples(50))
@given(st.lists(st.one_of(st.integers(1, 9000), st.integers(1, INT_MAX)), max_size=60))
def test_the_bitmap_of_events_is_a_set(ids: list[int]) -> None:
    seen = SeenEvents()
    known: set[int] = set()
    for event in ids:
        state = has_event(event, seen.directory, seen.pages)
        if event in known:
            assert state == seen_kernels.SEEN
        else:
            assert state in {seen_kernels.NEW, seen_kernels.NO_PAGE}
        seen.add(event)
        known.add(event)
    for event in {neighbour for e in ids for neighbour in (e - 1, e, e + 1)}:
        if 1 <= event <= INT_MAX:
            state = has_event(event, seen.directory, seen.pages)
            assert (state == seen_kernels.SEEN) == (event in known)


@pytest.mark.parametrize("step", [1, 64, 128, 4096, 65536, 2**20 + 1])
def test_the_table_of_blocks_is_a_set(step: int) -> None:
    table = np.zeros(128, np.int64)
    for serial in (1, 2, 3, 2**31 - 1):
        ids = [1 + i * step % INT_MAX for i in range(64)]
        assert all(add_block(ident, serial, table) for ident in ids)
        assert not any(add_block(ident, serial, table) for ident in ids)
    log = np.array(ids, np.int32)
    larger = np.zeros(256, np.int64)
    seen_kernels.fill_table(log, 64, 7, larger)
    assert not any(add_block(ident, 7, larger) for ident in ids)
    assert add_block(INT_MAX, 7, larger)


def test_event_rates_are_found() -> None:
    for n in (0, 1, 2, 3, 50):
        ids = np.arange(10, 10 + 3 * n, 3, dtype=np.int32)
        rates = np.append(np.arange(n) / 8, -1.0)
        known = dict(zip(ids.tolist(), rates[:n].tolist(), strict=True))
        for event in range(1, 170):
            assert event_rate(event, ids, rates) == known.get(event, -1.0)


# -- ends of blocks ------------------------------------------------------------------


@pytest.mark.parametrize("stride", [2, 3])
def test_the_end_of_a_block_is_found_wherever_it_is(stride: int) -> None:
    rng = np.random.default_rng(stride)
    for pairs in (*range(40), 100):
        words = rng.integers(1, 5, (pairs + 3) * stride, dtype=np.int32)
        words[1::stride] = 0  # losses may be zero, only sidx counts
        words.flags.writeable = False
        for rest in range(stride):
            stop = pairs * stride + rest
            assert find_end(words, 0, stop, stride) == pairs * stride
        for end in range(pairs + 1):
            with_end = words.copy()
            with_end[end * stride] = 0
            with_end.flags.writeable = False
            for begin in {0, end // 2, end}:
                stop = (pairs + 1) * stride
                at = find_end(with_end, begin * stride, stop, stride)
                assert at == end * stride


@widths
def test_bit_patterns_come_through_unpacking(width: int) -> None:
    rng = np.random.default_rng(width)
    dtype = np.dtype([("sidx", "<i4"), ("bits", f"<i{width}")])
    for count in (0, 1, 7, 8, 9, 100):
        pairs = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
        words = np.frombuffer(pairs.tobytes(), np.int32)
        scratch = make_scratch(200, width)
        unpack(words, 0, len(words), width, scratch.sidx, scratch.bits)
        np.testing.assert_array_equal(scratch.sidx[:count], pairs["sidx"])
        np.testing.assert_array_equal(scratch.bits[:count], pairs["bits"])
