"""Random numbers and permutations: frozen values, exactness, and statistics against numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import OptionError, PositionError
from core.rng import MAX_LENGTH, MAX_SEED, SMALL, Key, Permutation, below, bits, derive, uniform
from core.rng.kernels import network
from tests.scale import PURE_PYTHON, examples, half

Order = npt.NDArray[np.int64]
KEY = derive(7, "stage", 3)


def indices(n: int) -> npt.NDArray[np.uint64]:
    return np.arange(n, dtype=np.uint64)


def test_keys_are_frozen() -> None:
    assert derive(7) == Key(0xF552FE48E296C080, 0xC4592111E3D1471F)
    assert Key(0xCDE85BB73F2DEFD4, 0x9574CA7B9E2181DF) == KEY
    assert KEY.nth(5) == Key(0x44BEB26B1C341484, 0xAFF1251E680E1439)


def test_numbers_are_frozen() -> None:
    assert bits(KEY, indices(4)).tolist() == [
        0xABBE8A8E7CA72719,
        0xEB184E6748E0CFAE,
        0x1CC08EC810FEB46B,
        0xE5988B70FD62AF66,
    ]
    assert uniform(KEY, indices(3)).tolist() == [
        0.6708761785381765,
        0.918339634147631,
        0.11231319794114358,
    ]
    assert below(KEY, indices(8), 1000).tolist() == [670, 918, 112, 896, 911, 152, 598, 713]
    assert below(KEY, indices(2), 2**63 - 1).tolist() == [6187740585321010059, 8470188101932705750]


@pytest.mark.parametrize(
    ("n", "images"),
    [
        (10, [5, 1, 0, 3, 6, 9, 9, 7]),
        (65536, [59857, 63359, 58057, 41125, 27004, 37583, 33947, 16718]),
        (65537, [6035, 34108, 46914, 15720, 61183, 22751, 7113, 48880]),
        (1000003, [743811, 195550, 238744, 502060, 17783, 261192, 900624, 16861]),
        (
            2**48,
            [
                106560796980717,
                86156999218985,
                173623227014769,
                266181829291409,
                151521664047024,
                40577149231201,
                271132406518990,
                247412345090978,
            ],
        ),
    ],
)
def test_permutations_are_frozen(n: int, images: list[int]) -> None:
    places = np.array([0, 1, 2, 3, 4, 5, n // 2, n - 1])
    assert Permutation(n, KEY).at(places).tolist() == images


@pytest.mark.parametrize(("place", "value"), [(6332, 143), (12490, 295), (34072, 64341)])
def test_what_leaves_the_range_goes_through_again(place: int, value: int) -> None:
    """Images of 65,537 places that come after one walk, and after two."""
    order = Permutation(SMALL + 1, KEY)
    assert order.at(np.array([place])).tolist() == [value]
    assert order.inverse(np.array([value])).tolist() == [place]


def mixed(index: int, key: Key) -> int:
    """The documented function, in unbounded integers."""
    word = 2**64 - 1
    z = (index * 0x9E3779B97F4A7C15 + key.first) & word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
    z = z ^ (z >> 31) ^ key.second
    z = ((z ^ (z >> 32)) * 0xD6E8FEB86659FD93) & word
    return z ^ (z >> 29)


words = st.integers(0, 2**64 - 1)


@given(words, words, words, st.integers(1, MAX_SEED))
def test_numbers_are_what_exact_arithmetic_gives(
    first: int, second: int, index: int, n: int
) -> None:
    key, at = Key(first, second), np.array([index], np.uint64)
    expected = mixed(index, key)
    assert bits(key, at)[0] == expected
    assert below(key, at, n)[0] == expected * n >> 64
    assert uniform(key, at)[0] == (expected >> 11) / 2**53


@given(st.integers(1, MAX_LENGTH), words, st.data())
def test_a_permutation_and_its_inverse_cancel(n: int, word: int, data: st.DataObject) -> None:
    order = Permutation(n, Key(word, word ^ 1))
    some = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
    places = np.array([*some, 0, n - 1])
    images = order.at(places)
    assert images.min() >= 0
    assert images.max() < n
    assert order.inverse(images).tolist() == places.tolist()
    assert order.at(order.inverse(places)).tolist() == places.tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100, SMALL, SMALL + 1, 2**18 + 1, 511 * 513])
def test_every_item_comes_once(n: int) -> None:
    if PURE_PYTHON and n > 1000:
        n = 1000
    assert np.array_equal(np.sort(Permutation(n, KEY).at(np.arange(n))), np.arange(n))


@pytest.mark.parametrize("n", [2**18, 512 * 513, 512 * 513 - 1])
def test_every_place_is_found_again(n: int) -> None:
    """Sizes at which the digits of the network fill up, or are one short of it."""
    places = np.arange(n) if not PURE_PYTHON else np.arange(n - 50, n)
    order = Permutation(n, KEY)
    assert np.array_equal(order.inverse(order.at(places)), places)


def test_a_network_counts_from_its_first_index() -> None:
    n, low = SMALL + 9, 1000
    order = Permutation(n, KEY)
    places = np.arange(low, low + n, 99)
    images = np.empty(len(places), np.int64)
    network(np.uint64(n), order._rounds, low, places, images)
    assert np.array_equal(images, order.at(places - low))


def test_read_only_and_strided_places() -> None:
    places = np.arange(100)[::3]
    places.flags.writeable = False
    order = Permutation(SMALL + 9, KEY)
    assert np.array_equal(order.inverse(order.at(places)), places)


def test_paths_are_one_step_at_a_time() -> None:
    assert derive(1, "a", 2).child("b") == derive(1, "a", 2, "b")
    paths = [(), ("a",), ("a", "b"), ("ab",), (1,), ("1",), (0,), (256,), ("a", 1), (1, "a")]
    assert len({derive(1, *path) for path in paths}) == len(paths)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**100])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(OptionError, match="seed"):
        derive(seed)


def test_what_cannot_be() -> None:
    with pytest.raises(OptionError):
        derive(1, -1)
    with pytest.raises(OptionError):
        derive(1, 2**64)
    for n in (0, -1, 2**63):
        with pytest.raises(OptionError):
            below(KEY, indices(1), n)
    for n in (-1, MAX_LENGTH + 1):
        with pytest.raises(OptionError):
            Permutation(n, KEY)
    for n in (10, SMALL + 1):
        for wrong in (-1, n):
            with pytest.raises(PositionError):
                Permutation(n, KEY).at(np.array([0, wrong]))
            with pytest.raises(PositionError):
                Permutation(n, KEY).inverse(np.array([0, wrong]))


def chi2_z(counts: npt.NDArray[np.int64]) -> float:
    """How many standard deviations a chi-square statistic of even counts is off."""
    mean = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - mean) ** 2 / mean).sum() - freedom) / np.sqrt(2 * freedom))


def test_all_orders_of_five_come_equally_often() -> None:
    count = Counter(
        tuple(Permutation(5, KEY.nth(k)).at(np.arange(5)).tolist()) for k in range(examples(24_000))
    )
    assert set(count) <= set(permutations(range(5)))
    seen = np.array([count[order] for order in permutations(range(5))])
    assert abs(chi2_z(seen)) < 4


def test_numbers_of_neighbouring_keys_and_indices_are_unrelated() -> None:
    """Every bit of a key's seed or of an index changes half of the bits it gives."""
    k = examples(600)
    flips = []
    for bit in range(62):
        one = np.array([derive(s).first for s in range(k // 8)], np.uint64)
        two = np.array([derive(s ^ (1 << bit)).first for s in range(k // 8)], np.uint64)
        flips.append(np.bitwise_count(one ^ two).mean())
        some = indices(k)
        other = some ^ np.uint64(1 << bit)
        flips.append(np.bitwise_count(bits(KEY, some) ^ bits(KEY, other)).mean())
    error = 4.5 * 4 / np.sqrt(k // 8)
    assert np.all(np.abs(np.array(flips) - 32) < error)


def test_numbers_are_even() -> None:
    n = examples(400_000)
    numbers = below(KEY, indices(n), 1024)
    assert abs(chi2_z(np.bincount(numbers, minlength=1024))) < 4
    pairs = np.bincount(numbers[:-1] // 32 * 32 + numbers[1:] // 32, minlength=1024)
    assert abs(chi2_z(pairs)) < 4
    assert abs(uniform(KEY, indices(n)).mean() - 0.5) < 4 / np.sqrt(12 * n)


@pytest.mark.parametrize("n", [1000, pytest.param(SMALL + 1, marks=pytest.mark.once)])
def test_neighbouring_seeds_and_epochs_are_unrelated(n: int) -> None:
    """As many items keep their places or neighbours as in unrelated orders: Poisson(1)."""
    some = min(n, examples(n))
    places = np.arange(some)
    orders = [Permutation(n, derive(s).nth(e)).at(places) for s, e in product(range(12), range(12))]
    same = [
        np.sum(orders[i] == orders[j])
        for i in range(0, 144, 3)
        for j in range(i + 1, min(i + 26, 144))
    ]
    expected = some / n
    assert abs(np.mean(same) - expected) < 5 * np.sqrt(expected / len(same))


def ascents(p: Order) -> float:
    return float(np.sum(p[1:] > p[:-1]))


def fixed_points(p: Order) -> float:
    return float(np.sum(p == np.arange(len(p))))


def successions(p: Order) -> float:
    return float(np.sum(p[1:] == p[:-1] + 1))


def antisuccessions(p: Order) -> float:
    return float(np.sum(p[1:] == p[:-1] - 1))


def near(p: Order) -> float:
    return float(np.sum(np.abs(np.diff(p)) <= 16))


def second_differences(p: Order) -> float:
    return float(np.sum(np.diff(p, 2) == 0))


def peaks(p: Order) -> float:
    return float(np.sum((p[1:-1] > p[:-2]) & (p[1:-1] > p[2:])))


def inversions(p: Order) -> float:
    """Out of random pairs."""
    pairs = np.sort(np.random.default_rng(5).integers(0, len(p), (2, 30_000)), axis=0)
    return float(np.sum(p[pairs[0]] > p[pairs[1]]))


def cycles(p: Order) -> float:
    """By the least member of each: 2**j steps are looked ahead at a time."""
    least, ahead = np.arange(len(p)), p
    for _ in range(len(p).bit_length()):
        least = np.minimum(least, least[ahead])
        ahead = ahead[ahead]
    return float(np.sum(least == np.arange(len(p))))


def involutions(p: Order) -> float:
    return float(np.sum(p[p] == np.arange(len(p))))


def correlation(lag: int) -> Callable[[Order], float]:
    def statistic(p: Order) -> float:
        x = p - (len(p) - 1) / 2
        return float(np.mean(x[lag:] * x[:-lag]) / np.mean(x * x))

    statistic.__name__ = f"lag_{lag}"
    return statistic


def drift(p: Order) -> float:
    return float(np.corrcoef(np.arange(len(p)), p)[0, 1])


def _cells(x: Order, y: Order, n: int, k: int = 16) -> float:
    return chi2_z(np.bincount(x * k // n * k + y * k // n, minlength=k * k))


def place_and_value(p: Order) -> float:
    return _cells(np.arange(len(p)), p, len(p))


def consecutive(p: Order) -> float:
    return _cells(p[:-1], p[1:], len(p))


def two_apart(p: Order) -> float:
    return _cells(p[:-2], p[2:], len(p))


def low_bits(p: Order) -> float:
    return chi2_z(np.bincount(np.arange(len(p)) % 16 * 16 + p % 16, minlength=256))


def place_and_low_bits(p: Order) -> float:
    return chi2_z(np.bincount(p % 16 * 16 + np.arange(len(p)) * 16 // len(p), minlength=256))


def classes_in_batches(p: Order) -> float:
    """Ten sorted classes in batches of 256."""
    whole = len(p) // 256 * 256
    batch = np.arange(whole) // 256
    kind = p[:whole] * 10 // len(p)
    counts = np.bincount(batch * 10 + kind, minlength=whole // 256 * 10)
    return float(((counts - 25.6) ** 2).sum() / 25.6)


def distances(p: Order) -> float:
    return float(np.mean(np.abs(np.diff(p))))


def displacement(p: Order) -> float:
    return float(np.mean(np.abs(p - np.arange(len(p)))))


STATISTICS: tuple[Callable[[Order], float], ...] = (
    ascents,
    fixed_points,
    successions,
    antisuccessions,
    near,
    second_differences,
    peaks,
    inversions,
    cycles,
    involutions,
    correlation(1),
    correlation(2),
    drift,
    place_and_value,
    consecutive,
    two_apart,
    low_bits,
    place_and_low_bits,
    classes_in_batches,
    distances,
    displacement,
)


def z_scores(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> list[float]:
    """Differences of means and of spreads in standard errors."""
    scores = []
    middle = theirs.mean()
    for a, b in ((ours, theirs), ((ours - middle) ** 2, (theirs - middle) ** 2)):
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        scores.append(float((a.mean() - b.mean()) / error) if error else 0.0)
    return scores


@pytest.mark.once
@pytest.mark.skipif(PURE_PYTHON, reason="needs more numbers than plain Python draws in seconds")
@pytest.mark.parametrize(("n", "seeds"), [(1_000, 400), (70_001, 80), (2**18 + 1, 16)])
def test_orders_are_as_random_as_those_of_numpy(n: int, seeds: int) -> None:
    rng = np.random.default_rng(2026)
    seeds = max(half(seeds), 16)
    ours = [Permutation(n, derive(seed, "statistics")).at(np.arange(n)) for seed in range(seeds)]
    theirs = [rng.permutation(n) for _ in range(seeds)]
    worst = {}
    for statistic in STATISTICS:
        a, b = (np.array([statistic(p) for p in orders]) for orders in (ours, theirs))
        worst[statistic.__name__] = max(map(abs, z_scores(a, b)))
    assert max(worst.values()) < 4.5, worst


@pytest.mark.skipif(PURE_PYTHON, reason="needs more numbers than plain Python draws in seconds")
def test_epochs_are_unrelated_to_each_other() -> None:
    """Value in one epoch against value in the next, over 16 x 16 cells."""
    n, key, rng = 70_001, derive(3), np.random.default_rng(9)
    ours = [Permutation(n, key.nth(e)).at(np.arange(n)) for e in range(examples(40))]
    theirs = [rng.permutation(n) for _ in ours]
    a, b = (np.array([_cells(*two, n) for two in pairwise(o)]) for o in (ours, theirs))
    assert max(map(abs, z_scores(a, b))) < 4.5


def test_the_statistics_find_what_is_not_random() -> None:
    """Too few rounds, here one addition of a digit, are seen at once."""
    n, side = 90_000, 300
    left, right = np.divmod(np.arange(n), side)
    poor = [(left + s) % side * side + (right + 7 * left) % side for s in range(8)]
    good = [np.random.default_rng(s).permutation(n) for s in range(8)]
    for statistic in (consecutive, place_and_value, near, displacement):
        a, b = (np.array([statistic(p) for p in orders]) for orders in (poor, good))
        assert max(map(abs, z_scores(a, b))) > 4.5
