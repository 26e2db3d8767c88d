"""Reports of whole runs, against the oracle and at the edges of what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import sorting
from core.arrays import Rows
from core.budget import installed
from core.errors import LimitError, OptionError, ReportError
from core.losses.analysis import Analysis
from core.losses.ledger import batches, ledger, runs
from core.losses.policy import Policy
from core.losses.reports import drawing
from core.losses.reports.annual import standard_normal_quantile, subset_starts
from core.losses.reports.report import RunOptions
from core.slices import grouped, slices
from tests import run_oracle
from tests.core.test_slices import WHOLE, Counting
from tests.runs import RunCase, compute, octets, random_run
from tests.scale import examples
from tests.streams import Block, Stream

SEEDS = st.integers(0, 2**32 - 1)


def same(rows: Rows, expected: Sequence[tuple[float, ...]], keys: int) -> None:
    """Equal ids and counts; numbers to the rounding of a sum."""
    assert len(rows) == len(expected)
    names = rows.dtype.names or ()
    kind = rows.dtype[names[-1]].type
    finite = [x for row in expected for x in row[keys:] if np.isfinite(x)]
    # A deviation of equal numbers is the rounding of their sum, here or in the oracle.
    noise = 1e-15 * max(map(abs, finite), default=0.0)
    for i, name in enumerate(names):
        with np.errstate(over="ignore"):
            wanted = np.array([row[i] for row in expected]).astype(kind)
        if i < keys:
            np.testing.assert_array_equal(rows[name], wanted, err_msg=name)
            continue
        scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)
        np.testing.assert_allclose(
            rows[name], wanted, rtol=2e-6, atol=max(1e-7 * float(scale), noise), err_msg=name
        )


@given(SEEDS, st.sampled_from([4, 8]))
def test_curves_equal_the_oracle(seed: int, width: int) -> None:
    case = random_run(np.random.default_rng(seed), width=width)
    tables = compute(case, reports=("ept", "psept"))
    ept, psept = run_oracle.exceedance(case.oracle)
    same(tables["ept"], ept, 3)
    same(tables["psept"], psept, 3)


@given(SEEDS)
def test_annual_losses_equal_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=8)
    # Squares of losses from 1e154 on, and below 1e-154, are beyond float64.
    blocks = [
        Block(b.event, b.ident, tuple((s, x if 1e-9 < x < 1e9 else 1.0) for s, x in b.pairs))
        for b in case.stream.blocks
    ]
    case = RunCase(case.stream.with_blocks(blocks), case.periods, case.occurrences, case.weights)
    tables = compute(case, reports=("aal", "aal_mean", "alct"))
    same(tables["aal"], run_oracle.aal(case.oracle), 2)
    by_summary = sorted(run_oracle.aal(case.oracle), key=lambda row: row[0])
    same(tables["aal_mean"], [row[:3] for row in by_summary], 2)
    if case.periods > 1:
        expected = run_oracle.alct(case.oracle, standard_normal_quantile(0.95))
        assert_convergence(tables["alct"], expected)


def assert_convergence(rows: Rows, expected: list[tuple[float, ...]]) -> None:
    """Compare ALCT; errors are roots of differences, which may be of the size of rounding."""
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        size = max(abs(wanted[1]), wanted[2] if np.isfinite(wanted[2]) else 0.0)
        for name, value in zip(rows.dtype.names or (), wanted, strict=True):
            if name.startswith("Relative") or name.endswith("CI"):
                continue
            tolerance = size**2 * 1e-12 if name.startswith("VarElement") else size * 1e-6
            if name.startswith("StandardError") and not value > 1e-6 * size:
                # The root of a difference that is zero but for rounding.
                assert not row[name] > 2e-6 * size, name
                continue
            np.testing.assert_allclose(row[name], value, rtol=1e-6, atol=tolerance, err_msg=name)


@given(SEEDS, st.sets(st.sampled_from("FfSsMmWw"), min_size=1))
def test_letters_choose_curves(seed: int, letters: set[str]) -> None:
    case = random_run(np.random.default_rng(seed))
    curves = "".join(sorted(letters))
    tables = compute(case, reports=("ept", "psept"), options=RunOptions(curves=curves))
    ept, psept = run_oracle.exceedance(case.oracle, curves)
    same(tables["ept"], ept, 3)
    same(tables["psept"], psept, 3)


@pytest.mark.parametrize("seed", range(12))
def test_minus_zero_is_zero(seed: int) -> None:
    case = random_run(np.random.default_rng(seed))
    tables = []
    for zero in (0.0, -0.0):
        rng = np.random.default_rng(seed)
        blocks = [
            Block(
                b.event, b.ident, tuple((s, zero if rng.random() < 0.5 else x) for s, x in b.pairs)
            )
            for b in case.stream.blocks
        ]
        tables.append(compute(replace(case, stream=case.stream.with_blocks(blocks))))
    for name, rows in tables[0].items():
        for column in rows.dtype.names or ():
            np.testing.assert_array_equal(tables[1][name][column], rows[column], err_msg=name)


def test_each_report_alone_equals_all_together() -> None:
    case = random_run(np.random.default_rng(12))
    together = compute(case)
    for name, rows in together.items():
        assert compute(case, reports=[name])[name].tobytes() == rows.tobytes()


# -- subsets and intervals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "starts"),
    [(1, []), (2, [1]), (3, [1, 2]), (6, [1, 2]), (7, [1, 2, 4]), (8, [1, 2, 4]), (10, [1, 2, 4])],
)
def test_subsets_double_and_end_within_the_samples(samples: int, starts: list[int]) -> None:
    assert subset_starts(samples) == starts


@pytest.mark.parametrize("samples", [1, 3, 7, 15, 63])
def test_samples_that_fill_all_subsets_have_a_last_row_of_all(samples: int) -> None:
    losses = tuple((s, float(s)) for s in range(1, samples + 1))
    case = RunCase(Stream("summary", samples, 4, (Block(1, 1, losses),)), 2, ((1, 1),))
    rows = compute(case, reports=["alct"])["alct"]
    assert rows["SampleSize"][-1] == samples
    assert rows["MeanLoss"][-1] == np.float32((samples + 1) / 4)


def test_confidence_widens_the_interval() -> None:
    assert standard_normal_quantile(0.95) == pytest.approx(1.959964, abs=4.5e-4)
    assert standard_normal_quantile(0.99) == pytest.approx(2.575829, abs=4.5e-4)
    losses = tuple((s, float(s)) for s in range(1, 11))
    case = RunCase(Stream("summary", 10, 4, (Block(1, 1, losses),)), 3, ((1, 1),))
    widths = []
    for confidence in (0.5, 0.9, 0.99):
        options = RunOptions(confidence=confidence)
        row = compute(case, reports=["alct"], options=options)["alct"][-1]
        widths.append(row["UpperCI"] - row["LowerCI"])
    assert widths == sorted(widths)
    assert widths[0] > 0


@pytest.mark.parametrize(
    ("report", "said", "large", "width"),
    [
        ("aal", "SDLoss of SummaryId 1, SampleType 1", 3e38, 4),
        ("alct", "SDLoss of SummaryId 1", 3e38, 4),
        ("alct", "VarElementHaz of SummaryId 1", 1e20, 4),
        ("ept", "Loss of SummaryId 1, EPCalc 1", 3e38, 4),
        ("psept", "Loss of SummaryId 1, SampleId 1", 3e38, 4),
        ("aal", "SDLoss of SummaryId 1, SampleType 1", 1e200, 8),
        ("ept", "Loss of SummaryId 1, EPCalc 1", 1.7e308, 8),
    ],
)
def test_a_number_beyond_the_width_of_a_loss_is_refused(
    report: str, said: str, large: float, width: int
) -> None:
    blocks = tuple(Block(e, 1, ((-1, large), (1, large), (2, large))) for e in (1, 2))
    case = RunCase(Stream("summary", 2, width, blocks), 2, ((1, 1), (2, 1)))
    # Squares of periods that all have a loss are infinite, too, not times nothing.
    everywhere = replace(case, occurrences=((1, 1), (2, 2)))
    for each in (case, everywhere) if large == 1e200 else (case,):
        with pytest.raises(
            LimitError, match=f"{said}.* is more than a loss of {width} b"
        ) as caught:
            compute(each, reports=[report])
    assert ("of 8 bytes" in str(caught.value.hint)) == (width == 4)


@pytest.mark.parametrize("report", ["ept", "psept"])
def test_a_tail_whose_sum_is_beyond_float64_is_refused(report: str) -> None:
    blocks = tuple(Block(e, 1, ((1, 1.6e308), (2, 1.6e308))) for e in range(1, 6))
    occurrences = tuple((e, e) for e in range(1, 6))
    case = RunCase(Stream("summary", 2, 8, blocks), 5, occurrences, returns=(2,))
    with pytest.raises(LimitError, match="Loss of SummaryId 1"):
        compute(case, reports=[report], options=RunOptions(curves="fw"))


def test_one_period_tells_no_error_of_its_mean() -> None:
    case = RunCase(Stream("summary", 2, 4, (Block(1, 1, ((1, 1.0), (2, 3.0))),)), 1, ((1, 1),))
    for row in compute(case, reports=["alct"])["alct"]:
        assert (row["LowerCI"], row["UpperCI"]) == (0.0, 0.0)
        assert not np.isfinite([row["StandardError"], row["RelativeErrorHaz"]]).any()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"confidence": -0.1}, "confidence is -0.1"),
        ({"confidence": float("nan")}, "confidence is nan"),
        ({"curves": ""}, "curves are ''"),
        ({"curves": "FX"}, "curves are 'FX'"),
        ({"tvar": "median"}, "tvar is 'median'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        RunOptions(**options)  # type: ignore[arg-type]


# -- TVaR and ties -------------------------------------------------------------------------


def _one_sample(losses: list[float], **inputs: object) -> RunCase:
    """One summary and one sample, with a loss in each period."""
    blocks = tuple(Block(e, 1, ((1, x),)) for e, x in enumerate(losses, 1))
    occurrences = tuple((e, e) for e in range(1, len(losses) + 1))
    return RunCase(Stream("summary", 1, 8, blocks), len(losses), occurrences, **inputs)  # type: ignore[arg-type]


def test_tvar_by_weight_is_the_mean_of_the_worst_years_by_their_weight() -> None:
    case = _one_sample([10.0, 40.0, 20.0, 30.0], weights=(0.4, 0.1, 0.3, 0.2), returns=(4, 2, 1))
    options = RunOptions(curves="F", tvar="weight")
    rows = compute(case, reports=["ept"], options=options)["ept"]
    tails = rows[(rows["EPCalc"] == 2) & (rows["EPType"] == 4)]
    # The worst quarter: 0.1 of 40 and 0.15 of 30; the worst half: all of them, 0.2 of 20 too.
    assert tails["Loss"].tolist() == pytest.approx([8.5 / 0.25, 14.0 / 0.5, 20.0])


def test_a_level_is_not_missed_by_the_rounding_of_a_sum_of_weights() -> None:
    # Ten times 0.05 are less than 0.5 by the last bit, and by count the peer has no loss there.
    case = _one_sample([100.0] * 10 + [0.0], weights=(0.05,) * 10 + (0.5,), returns=(3, 2))
    for options, loss in ((RunOptions(tvar="weight"), 100.0), (RunOptions(tvar="count"), 0.0)):
        rows = compute(case, reports=["ept"], options=options)["ept"]
        rows = rows[rows["EPCalc"] == 2]
        assert rows[rows["EPType"] % 2 == 1]["Loss"].tolist() == [100.0, loss] * 2


def test_equal_losses_are_ordered_by_period_whatever_the_order_of_the_stream() -> None:
    weights = (0.1, 0.2, 0.3, 0.4)
    case = _one_sample([7.0, 7.0, 7.0, 7.0], weights=weights)
    rows = compute(case, reports=["ept"], options=RunOptions(curves="F"))["ept"]
    points = rows[(rows["EPCalc"] == 2) & (rows["EPType"] == 3)]
    assert points["ReturnPeriod"].tolist() == pytest.approx((1 / np.cumsum(weights)).tolist())
    backwards = RunCase(
        case.stream.with_blocks(case.stream.blocks[::-1]), 4, case.occurrences, weights
    )
    assert compute(backwards, reports=["ept"])["ept"].tobytes() == (
        compute(case, reports=["ept"])["ept"].tobytes()
    )


def test_ties_are_in_the_order_of_periods() -> None:
    """The documented example; the peer has no rows at 50 and 20, and 95.68, 56.80 and 43.84."""
    case = _one_sample(
        [100.0, 100.0, 40.0, 40.0, 0.0],
        weights=(0.02, 0.10, 0.05, 0.15, 0.68),
        returns=(100, 50, 20, 10, 8, 5, 4, 3),
    )
    rows = compute(case, reports=["psept"], options=RunOptions(curves="w"))["psept"]
    losses = rows[rows["EPType"] == 1]
    assert losses["ReturnPeriod"].tolist() == [50, 20, 10, 8, 5, 4, 3]
    assert losses["Loss"].tolist() == pytest.approx([100, 100, 100, 91.84, 40, 40, 0])


def test_mean_of_samples_curves_with_weights_needs_no_table_of_samples() -> None:
    case = _one_sample([1.0, 2.0], weights=(0.5, 0.5), returns=(2, 1))
    rows = compute(case, reports=["ept"], options=RunOptions(curves="M"))["ept"]
    assert rows[rows["EPCalc"] == 3]["Loss"].tolist() == [2.0, 1.0]


# -- what is refused -----------------------------------------------------------------------


def test_reports_of_runs_name_the_input_they_lack() -> None:
    with pytest.raises(ReportError, match="AAL needs occurrences"):
        Analysis(["aal"], lambda _name, _rows: None)


def test_deviation_and_insured_value_are_no_samples() -> None:
    """The peer takes sidx -2 and -3 for samples, in MPLT too."""
    reports = ("mplt", "aal", "alct", "ept", "psept")
    blocks = tuple(Block(e, 1, ((-1, 5.0), (1, 4.0 + e), (2, 6.0))) for e in (1, 2))
    more = tuple(Block(b.event, 1, ((-3, 100.0), (-2, 7.0), *b.pairs)) for b in blocks)
    tables = [
        octets(compute(RunCase(Stream("summary", 2, 4, b), 5, ((1, 1), (2, 4))), reports=reports))
        for b in (blocks, more)
    ]
    assert tables[0] == tables[1]


def test_a_year_of_a_sample_is_not_below_0_before_curve_4_takes_the_mean() -> None:
    stream = Stream("summary", 2, 4, (Block(1, 1, ((1, -10.0), (2, 4.0))),))
    rows: dict[str, Rows] = {}
    analysis = Analysis(
        ["aal_mean", "ept"],
        lambda name, found: rows.update({name: found.copy()}),
        policy=Policy(negative="keep"),
        **RunCase(stream, 1, ((1, 1),), returns=(1,)).inputs,
    )
    analysis.receive(stream.encode())
    analysis.close()
    assert rows["aal_mean"]["MeanLoss"].tolist() == [0.0, -3.0]
    ept = rows["ept"]
    assert set(ept["Loss"][ept["EPCalc"] == 4].tolist()) == {2.0}


def test_events_that_never_occur_are_counted() -> None:
    case = RunCase(
        Stream("summary", 1, 4, tuple(Block(e, 1, ((1, 5.0),)) for e in (1, 2, 3))), 2, ((2, 1),)
    )
    analysis = Analysis(["aal"], lambda _name, _rows: None, **case.inputs)
    analysis.receive(case.stream.encode())
    assert analysis.close().events_without_occurrence == 2


def in_slices(case: RunCase, size: int) -> tuple[dict[str, bytes], int]:
    """The reports of a run, computed in slices of a size, and how often the budget is asked."""
    budget = Counting()
    with pytest.MonkeyPatch.context() as patch, installed(budget):
        for function in (slices, grouped):
            patch.setattr(function, "__defaults__", (size,))
        for module in (sorting, batches, ledger, runs, drawing):
            patch.setattr(module, "SLICE", size)
        return octets(compute(case)), budget.asked


@pytest.mark.parametrize("seed", range(examples(6)))
def test_work_in_slices_of_any_size_gives_the_same_rows(seed: int) -> None:
    case = random_run(np.random.default_rng(seed))
    whole, asked = in_slices(case, WHOLE)
    pieces, asked_often = in_slices(case, 8)
    assert pieces == whole
    # References are made, counted, moved and added up in slices of their own.
    assert asked_often - asked >= 4 * references_of(case)


def references_of(case: RunCase) -> int:
    """How many sums of a block in a period there are."""
    events = [event for event, _ in case.occurrences]
    return sum(events.count(block.event) for block in case.stream.blocks)
