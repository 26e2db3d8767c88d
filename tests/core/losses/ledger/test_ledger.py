"""The ledger: its sums are exact, and nothing printed depends on how they came about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import LimitError
from core.losses.analysis import Analysis
from core.losses.finishing import LedgerResources
from core.losses.ledger.batches import sums_of
from core.losses.ledger.calendar import ledger_bound, make_calendar
from core.losses.ledger.ledger import Ledger
from core.losses.ledger.memory import SharedArena
from core.losses.ledger.runs import HeldInMemory
from core.losses.merge import Partitions
from core.losses.policy import Policy
from tests.ledgers import ledger_of
from tests.run_oracle import nearest
from tests.runs import RUN_REPORTS, RunCase, compute, octets, random_run
from tests.streams import Block, Stream, random_cuts

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.sampled_from([4, 8])


class Spills:
    """Counts what it keeps."""

    def __init__(self) -> None:
        self.made: list[HeldInMemory] = []

    def create(self) -> HeldInMemory:
        self.made.append(HeldInMemory())
        return self.made[-1]


def parallel(function: Callable[[Any], Any], elements: Iterable[Any], /) -> Iterator[Any]:
    def call(element: Any) -> Any:  # noqa: ANN401
        with np.errstate(over="ignore", invalid="ignore"):
            return function(element)

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(call, elements)


def small_arena(monkeypatch: pytest.MonkeyPatch, words: int) -> None:
    """Make every arena hold no more than so many words, if a block fits."""
    monkeypatch.setattr(Ledger, "_capacity", lambda _self: words)
    monkeypatch.setattr("core.losses.ledger.ledger._FIRST_WORDS", words)


# -- exact sums ------------------------------------------------------------------------------


@given(SEEDS, WIDTHS, st.booleans())
def test_every_sum_is_the_exact_sum_correctly_rounded(seed: int, width: int, spilled: bool) -> None:
    case = random_run(np.random.default_rng(seed), width=width)
    with pytest.MonkeyPatch.context() as patch:
        if spilled:
            small_arena(patch, 64)
        with np.errstate(over="ignore", invalid="ignore"):
            ledger = ledger_of(case, spill=Spills())
            found = {cell[:3]: cell[3:] for cell in sums_of(ledger)}
    run = case.oracle
    assert found == {key: (nearest(run.sums[key]), run.largest[key]) for key in run.sums}


EXPONENTS = st.integers(-1074, 1023)


@given(
    st.lists(
        st.tuples(st.floats(0, 1, allow_subnormal=False), EXPONENTS, st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_sums_of_hostile_exponents_and_signs_are_exact(
    drawn: list[tuple[float, int, bool]],
) -> None:
    losses = [float(np.ldexp(m, e)) * (-1 if negative else 1) for m, e, negative in drawn]
    blocks = tuple(Block(e, 1, ((1, x),)) for e, x in enumerate(losses, 1))
    occurrences = tuple((e, 1) for e in range(1, len(losses) + 1))
    case = RunCase(Stream("summary", 1, 8, blocks), 1, occurrences)
    analysis = Analysis(
        ["aal"],
        lambda _name, _rows: None,
        policy=Policy(float_width=8, negative="keep"),
        **case.inputs,
    )
    analysis.receive(case.stream.encode())
    analysis.close(ends_run=False)
    assert analysis.ledger is not None
    with np.errstate(over="ignore", invalid="ignore"):
        (found,) = sums_of(analysis.ledger)
    assert found == (1, 1, 1, nearest(sum(map(Fraction, losses), Fraction(0))), max(*losses, 0.0))


@pytest.mark.parametrize(
    "losses",
    [
        [2.0**53, 1.0, 1.0],
        [2.0**53, 1.0, 2.0**-1000],
        [2.0**53, 3.0, -(2.0**-1000)],
        [1.7e308, 1.7e308, -1.7e308],
        [1.7e308, 1.7e308],
        [1.7976931348623157e308, 2.0**969, 2.0**969, 2.0**968],
        [5e-324, 5e-324, 1e300, -1e300],
        [0.1] * 10,
    ],
)
def test_sums_at_the_edges_of_float64(losses: list[float]) -> None:
    test_sums_of_hostile_exponents_and_signs_are_exact.hypothesis.inner_test(  # type: ignore[attr-defined]
        [(np.frexp(abs(x))[0], int(np.frexp(abs(x))[1]), x < 0) for x in losses]
    )


# -- whatever the way -------------------------------------------------------------------------


@given(SEEDS, WIDTHS, st.integers(1, 4))
def test_partitions_in_any_order_print_the_same_bytes(seed: int, width: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = octets(compute(case))
    parts = case.partitions(rng, count)
    assert octets(compute(case, parts)) == whole
    assert octets(compute(case, parts[::-1], resources=LedgerResources(map=parallel))) == whole


@given(SEEDS, WIDTHS, st.sampled_from([40, 1 << 20]))
def test_pieces_of_partitions_in_any_turn_print_the_same_bytes(
    seed: int, width: int, words: int
) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = octets(compute(case))
    rows: dict[str, bytes] = dict.fromkeys(RUN_REPORTS, b"")

    def sink(name: str, table: Any) -> None:  # noqa: ANN401
        rows[name] += table.tobytes()

    def make(name: str, sink: Any, seen: Any) -> Analysis:  # noqa: ANN401 - as Partitions wants
        policy = Policy(float_width=width)
        resources = LedgerResources(spill=Spills(), map=parallel)
        options = {"policy": policy, "resources": resources, "seen": seen, "name": name}
        return Analysis(RUN_REPORTS, sink, **options, **case.inputs)

    pieces = [random_cuts(rng, part.encode(), 5) for part in case.partitions(rng, 3)]
    turns = rng.permutation(np.repeat(np.arange(3), [len(of_part) for of_part in pieces]))
    with pytest.MonkeyPatch.context() as patch:
        small_arena(patch, words)
        partitions = Partitions(["a", "b", "c"], make, sink)
        with np.errstate(over="ignore", invalid="ignore"):
            for turn in turns.tolist():
                partitions.receive(turn, pieces[turn].pop(0))
            for index in rng.permutation(3).tolist():
                partitions.close(index)
    assert rows == whole


@given(SEEDS, WIDTHS, st.sampled_from([1, 40, 200, 1000]))
def test_spilled_runs_print_the_same_bytes(seed: int, width: int, words: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = octets(compute(case))
    with pytest.MonkeyPatch.context() as patch:
        small_arena(patch, words)
        spills = Spills()
        resources = LedgerResources(spill=spills, map=parallel)
        assert octets(compute(case, case.partitions(rng, 2), resources=resources)) == whole
    assert all(not spilled._parts for spilled in spills.made)


@given(SEEDS, WIDTHS)
def test_a_state_exported_at_any_byte_continues_to_the_same_bytes(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = octets(compute(case))
    rows: dict[str, bytes] = dict.fromkeys(RUN_REPORTS, b"")

    def sink(name: str, table: Any) -> None:  # noqa: ANN401
        rows[name] += table.tobytes()

    def make() -> Analysis:
        return Analysis(RUN_REPORTS, sink, policy=Policy(float_width=width), **case.inputs)

    data = case.stream.encode()
    analysis = make()
    for piece in random_cuts(rng, data, 3):
        analysis.receive(piece)
        with np.errstate(over="ignore", invalid="ignore"):
            state = json.loads(json.dumps(analysis.getstate()))
        offset = int(state["stream"]["offset"])
        rest = bytes(analysis.rest)
        analysis = make()
        analysis.setstate(state)
        analysis.receive(rest)
        assert analysis.offset >= offset
    with np.errstate(over="ignore", invalid="ignore"):
        analysis.close()
    assert rows == whole


def test_a_block_larger_than_the_first_arena_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    small_arena(monkeypatch, 8)
    losses = tuple((s, float(s)) for s in range(1, 501))
    case = RunCase(Stream("summary", 500, 4, (Block(1, 1, losses),)), 1, ((1, 1),))
    rows = compute(case, reports=["aal"], resources=LedgerResources(spill=Spills()))["aal"]
    assert rows["MeanLoss"].tolist() == [0.0, 250.5]


# -- bounds ------------------------------------------------------------------------------------


def _large_case() -> RunCase:
    losses = tuple((s, float(s)) for s in range(1, 101))
    blocks = tuple(Block(e, 1, losses) for e in range(1, 200))
    return RunCase(Stream("summary", 100, 4, blocks), 199, tuple((e, e) for e in range(1, 200)))


def test_a_budget_that_is_used_up_says_what_to_do() -> None:
    with pytest.raises(LimitError, match="budget of 20 KiB") as caught:
        compute(_large_case(), reports=["aal"], resources=LedgerResources(budget=20_000))
    assert caught.value.hint == "Raise memory_budget, or let it spill to a disk"


def test_a_budget_too_small_for_one_summary_names_it() -> None:
    """And what else is held; return periods are advised where they are wanted and help."""
    resources = LedgerResources(budget=20_000, spill=Spills())
    at_points = "Ask for ept at return_periods, which take a fraction of it, or raise memory_budget"
    few = replace(_large_case(), returns=(10,))
    for case, report, hint in (
        (_large_case(), "ept", at_points),
        (few, "ept", "Raise memory_budget to "),
        (few, "alct", "Raise memory_budget to "),
    ):
        with pytest.raises(LimitError, match=r"summary 1 need .* beside .* of what") as e:
            compute(case, reports=[report], resources=resources)
        assert str(e.value.hint).startswith(hint)


def test_the_bound_is_above_what_a_dense_run_takes() -> None:
    case = _large_case()
    bound = ledger_bound(make_calendar(case.inputs["occurrence"]), 100, 4)
    ledger = ledger_of(case, spill=Spills())
    ledger.write_run()
    assert bound.cells == 199 * 101
    assert 4 * sum(run.words for run in ledger.runs) <= bound.state_bytes


def test_memory_follows_the_losses_that_there_are() -> None:
    def words(samples: int, losses: int) -> int:
        pairs = tuple((s, 1.0) for s in range(1, losses + 1))
        case = RunCase(Stream("summary", samples, 4, (Block(1, 1, pairs),)), 1, ((1, 1),))
        return ledger_of(case).used

    assert words(1000, 10) < 30
    assert words(1000, 1000) < 1000 + 32 + 10


# -- partitions in one arena -----------------------------------------------------------------


@given(SEEDS, WIDTHS, st.integers(0, 4), st.sampled_from([64, 1 << 12]))
def test_reports_do_not_depend_on_which_partitions_share_an_arena(
    seed: int, width: int, slots: int, slot_words: int
) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = compute(case)
    shared = SharedArena(slots, 8 * slot_words)
    with pytest.MonkeyPatch.context() as patch:
        # The first arena holds hardly a block, so that every ledger soon needs more.
        patch.setattr("core.losses.ledger.ledger._FIRST_WORDS", 8)
        patch.setattr(Ledger, "_capacity", lambda _self: slot_words)
        parts = case.partitions(rng, 3)
        resources = LedgerResources(spill=Spills(), shared=shared)
        assert octets(compute(case, parts, resources=resources)) == octets(whole)


def test_partitions_that_share_an_arena_are_joined_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.losses.ledger.ledger._FIRST_WORDS", 8)
    blocks = tuple(Block(event, 1, ((1, 1.0), (2, 2.0))) for event in range(1, 9))
    occurrences = tuple((block.event, block.event % 3 + 1) for block in blocks)
    case = RunCase(Stream("summary", 3, 4, blocks), 3, occurrences)
    shared = SharedArena(2, 1 << 20)
    first, second = (ledger_of(case, shared=shared, budget=1 << 20) for _ in range(2))
    alone = ledger_of(case)
    first.absorb([second])
    assert first.memory is shared.whole
    assert not first.runs
    assert first.events().tolist() == alone.events().tolist()
    found = [(cell[:3], cell[4]) for cell in sums_of(first)]
    assert found == [(cell[:3], cell[4]) for cell in sums_of(alone)]
    keys, places = first.references()
    assert len(keys) == 2 * len(alone.references()[0])
    assert {int(place >= shared.slot_words) for place in places} == {0, 1}


# -- sums of periods -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "losses", "total"),
    [
        (8, (1e16, 1.0), 1e16),
        (8, (1e16, 1.0, 1.0), 1e16 + 2),
        (4, (2.0**100, 1.0, 2.0**46), float(np.float32(2.0**100))),
        (8, (2.0**53, 1.0, 2.0**-40), 2.0**53 + 2),
    ],
)
@pytest.mark.parametrize("samples", [1, 3])
def test_annual_means_are_of_sums_rounded_once(
    width: int, losses: tuple[float, ...], total: float, samples: int
) -> None:
    pairs = [tuple((s, x) for s in range(1, samples + 1)) for x in losses]
    blocks = tuple(Block(event, 1, of_event) for event, of_event in enumerate(pairs, 1))
    stream = Stream("summary", samples, width, blocks)
    case = RunCase(stream, 1, tuple((block.event, 1) for block in blocks))
    rows = compute(case, reports=("aal",))["aal"]
    sample = rows[rows["SampleType"] == 2]
    assert sample["MeanLoss"].tolist() == [total]
