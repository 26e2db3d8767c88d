"""Where the peer (oasislmf 2.5.8) is wrong, ours is right: shown with plain references.

The live comparison, ``python -m tests.compat.oasis``, explains differences by these faults alone.
What the peer answers was measured with it; here ours is compared with what is right.

=====================================================  ==========================================
fault of the peer                                      test
=====================================================  ==========================================
``summarypy`` of some sets, or of sets out of order,   a_set_alone_has_its_own_losses
writes the losses of other sets
ALCT, and AAL beside it, of 2^k - 1 samples reads      the_last_row_of_alct_is_of_all_samples
one beyond the array: 5.6e14, or infinite
dates with a time of day on a last of a month: day 0   the_last_of_a_month_has_a_time_of_day
of the next
a stream that is cut passes, with numbers of a part    a_cut_stream_has_no_numbers
MELT without event rates: NaN                          rates_are_those_of_the_occurrences
EPT depends on partitions in the 7th digit             partitions_change_no_digit
EPCalc 3 with weights needs ``-W`` too                 means_of_samples_need_no_psept
affected risks count in one summary alone              risks_count_in_every_summary
``summarypy`` cannot write to standard output          a_set_goes_to_standard_output
sidx beyond len_sample: chance 1.5, bus error          a_sample_beyond_the_last_is_refused
NaN spreads (MELT, AAL), is dropped (EPT) or is 0      not_a_number_is_refused_or_read_as_told
an event that comes again: two rows, or added twice    an_event_that_comes_again_is_refused
equal losses with other weights: unstable order        equal_losses_are_in_order_of_periods
weights of periods that another summary uses are       unused_weights_are_those_of_the_summary
lost without indices
ALCT has rows of NaN for summaries that never occur    alct_has_rows_of_summaries_that_occur_alone
EPCalc 3 of a summary without samples: crash           a_summary_without_samples_has_a_mean_curve
an index is wrong after a block that the buffer of     an_index_names_every_block_however_long_its
64 KiB splits: AAL and EPT of other bytes              _event
deviations are differences of sums of squares          deviations_survive_cancellation
=====================================================  ==========================================
"""

from __future__ import annotations

import calendar
import csv
import datetime as dt
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.errors import CoreError, EventReopenedError, TruncatedError
from core.losses.analysis import Analysis, aggregate
from core.losses.policy import Policy
from core.losses.reports.annual import standard_normal_quantile
from core.losses.reports.report import RunOptions
from tests import run_oracle
from tests.period_oracle import Happening, encode
from tests.runs import RunCase, compute, octets
from tests.streams import Block, Stream
from tests.summary_oracle import Sets, of_stream, summarised


def _run(samples: int, *blocks: Block, periods: int = 4, **inputs: object) -> RunCase:
    """A run in which event e happens once, in period e."""
    events = sorted({block.event for block in blocks})
    occurrences = tuple((event, event) for event in events)
    return RunCase(Stream("summary", samples, 4, blocks), periods, occurrences, **inputs)  # type: ignore[arg-type]


def _losses(*values: float, mean: float | None = None) -> tuple[tuple[int, float], ...]:
    """Samples 1, 2, ... of a block."""
    pairs = tuple(enumerate(values, 1))
    return pairs if mean is None else ((-1, mean), *pairs)


# -- summaries -------------------------------------------------------------------------------

ITEMS = Stream(
    "loss",
    3,
    4,
    tuple(
        Block(event, item, ((-5, 9.0 * item), (-3, 10.0 * item), (-1, 2.0), (1, 1.0 * item)))
        for event in (1, 2)
        for item in (1, 2, 3)
    ),
)
SETS = Sets(((1, 1, 1), (2, 2, 1), (3, 3, 1), (1, 7, 2), (2, 7, 2), (3, 8, 2)))


def _summarise(tmp_path: Path, sets: Sets, stream: Stream, *options: str) -> None:
    (tmp_path / "items.bin").write_bytes(stream.encode())
    (tmp_path / "xref.bin").write_bytes(np.array(sets.rows, "<i4").tobytes())
    if sets.risks is not None:
        lines = [f"{location},{item},1" for item, location in sets.risks.items()]
        (tmp_path / "map.csv").write_text("\n".join(["loc_id,item_id,building_id", *lines, ""]))
        options = (*options, "--summary-map", str(tmp_path / "map.csv"))
    command = ["summarise", str(tmp_path / "items.bin"), "--no-progress", *options]
    assert main([*command, "--summary-xref", str(tmp_path / "xref.bin")]) == 0


@pytest.mark.parametrize("chosen", ["2", "2,1"])
def test_a_set_alone_has_its_own_losses(tmp_path: Path, chosen: str) -> None:
    _summarise(tmp_path, SETS, ITEMS, "--sets", chosen, "--out", str(tmp_path / "out"))
    for number in map(int, chosen.split(",")):
        expected = summarised(of_stream(ITEMS), 3, 4, SETS, number)
        folder = tmp_path / "out"
        assert (folder / f"S{number}_summary.bin").read_bytes() == expected[0]
        assert (folder / f"S{number}_summary.idx").read_bytes() == expected[1]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_risks_count_in_every_summary(tmp_path: Path, order: tuple[int, ...]) -> None:
    # Items 1 and 3 are of one location, in two summaries of set 1.
    sets = Sets(SETS.rows, {1: 5, 2: 6, 3: 5})
    blocks = sorted(ITEMS.blocks, key=lambda block: (block.event, order.index(block.ident)))
    stream = ITEMS.with_blocks(blocks)
    _summarise(tmp_path, sets, stream, "--out", str(tmp_path / "out"))
    for number in (1, 2):
        expected = summarised(of_stream(stream), 3, 4, sets, number)[0]
        assert (tmp_path / "out" / f"S{number}_summary.bin").read_bytes() == expected
    counts = aggregate((tmp_path / "out" / "S1_summary.bin").read_bytes(), ["selt"])["selt"]
    assert counts[counts["SampleId"] == -4]["Loss"].tolist() == [1, 1, 1] * 2


def test_a_set_goes_to_standard_output(tmp_path: Path) -> None:
    (tmp_path / "xref.bin").write_bytes(np.array(SETS.rows, "<i4").tobytes())
    command = [sys.executable, "-m", "app.command", "summarise", "--sets", "2", "--no-progress"]
    done = subprocess.run(
        [*command, "--summary-xref", str(tmp_path / "xref.bin")],
        input=ITEMS.encode(),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == summarised(of_stream(ITEMS), 3, 4, SETS, 2)[0]


# -- streams ---------------------------------------------------------------------------------

ONE = _run(3, *(Block(e, 1, _losses(1.0, 2.0, 3.0, mean=2.0)) for e in (1, 2)))
EVERY = ("selt", "melt", "splt", "mplt", "aal", "alct", "ept", "psept")


@pytest.mark.parametrize("report", EVERY)
def test_a_cut_stream_has_no_numbers(report: str) -> None:
    data = ONE.stream.encode()
    for cut in range(len(ONE.stream.header) + 1, len(data)):
        if cut in ONE.stream.boundaries():
            continue
        with pytest.raises(TruncatedError):
            _fed(data[:cut], report)


def _fed(data: bytes, report: str, **policy: object) -> list[str]:
    """Reports with rows of a stream, to its end."""
    rows: list[str] = []
    inputs = ONE.inputs if report not in {"selt", "melt"} else {}
    analysis = Analysis(
        [report],
        lambda name, _rows: rows.append(name),
        policy=Policy(**policy),  # type: ignore[arg-type]
        **inputs,
    )
    analysis.receive(data)
    analysis.close()
    return rows


@pytest.mark.parametrize("report", EVERY)
def test_a_sample_beyond_the_last_is_refused(report: str) -> None:
    stream = ONE.stream.with_blocks([Block(1, 1, ((1, 5.0), (4, 5.0)))])
    with pytest.raises(CoreError, match="4"):
        _fed(stream.encode(), report)


@pytest.mark.parametrize("report", EVERY)
def test_not_a_number_is_refused_or_read_as_told(report: str) -> None:
    stream = ONE.stream.with_blocks([Block(1, 1, _losses(1.0, float("nan"), 3.0))])
    with pytest.raises(CoreError, match=r"(?i)nan"):
        _fed(stream.encode(), report)
    _fed(stream.encode(), report, nan="zero")
    zero = replace(ONE, stream=ONE.stream.with_blocks([Block(1, 1, _losses(1.0, 0.0, 3.0))]))
    rows = compute(zero, reports=["aal"])["aal"]
    assert rows["MeanLoss"].tolist() == [0.0, np.float32(4 / 12)]


@pytest.mark.parametrize("report", EVERY)
def test_an_event_that_comes_again_is_refused(report: str) -> None:
    blocks = [*ONE.stream.blocks, ONE.stream.blocks[0]]
    with pytest.raises(EventReopenedError):
        _fed(ONE.stream.with_blocks(blocks).encode(), report)


# -- events and periods ----------------------------------------------------------------------


def test_rates_are_those_of_the_occurrences() -> None:
    case = RunCase(ONE.stream, 4, ((1, 1), (1, 3), (1, 3), (2, 4)))
    rows = compute(case, reports=["melt"])["melt"]
    assert rows["EventRate"].tolist() == [0.75, 0.75, 0.25, 0.25]


def test_the_last_of_a_month_has_a_time_of_day(tmp_path: Path) -> None:
    months = [(year, month) for year in (2063, 2064) for month in range(1, 13)]
    days = [dt.date(*month, calendar.monthrange(*month)[1]) for month in months]
    times = [dt.datetime.combine(day, dt.time(23, 59)) for day in days]
    happenings = [Happening(1, 1, when) for when in times]
    (tmp_path / "occurrence.bin").write_bytes(encode(happenings, 1, granular=True))
    stream = ONE.stream.with_blocks(ONE.stream.blocks[:1])
    (tmp_path / "stream.bin").write_bytes(stream.encode())
    command = ["aggregate", str(tmp_path / "stream.bin"), "--reports", "splt,mplt,qplt"]
    command += ["--quantiles", "0.5", "--occurrence", str(tmp_path / "occurrence.bin")]
    assert main([*command, "--no-progress", "--out", str(tmp_path)]) == 0
    for report in ("splt", "mplt", "qplt"):
        rows = list(csv.DictReader((tmp_path / f"{report}.csv").read_text().splitlines()))
        dates = ("Year", "Month", "Day", "Hour", "Minute")
        found = {tuple(int(row[name]) for name in dates) for row in rows}
        assert found == {when.timetuple()[:5] for when in times}


# -- runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [3, 7, 15, 63, 127])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_last_row_of_alct_is_of_all_samples(samples: int, weighted: bool) -> None:
    rng = np.random.default_rng(samples)
    blocks = [Block(e, 1, _losses(*rng.random(samples).tolist(), mean=0.5)) for e in (1, 2, 3)]
    weights = (0.1, 0.2, 0.3, 0.4) if weighted else None
    case = _run(samples, *blocks, weights=weights)
    tables = compute(case, reports=["aal", "alct"])
    expected = run_oracle.alct(case.oracle, standard_normal_quantile(0.95))
    np.testing.assert_allclose(
        tables["alct"].tolist(), np.array(expected, "f4"), rtol=1e-5, equal_nan=True
    )
    np.testing.assert_allclose(tables["aal"].tolist(), run_oracle.aal(case.oracle), rtol=1e-6)


def test_alct_has_rows_of_summaries_that_occur_alone() -> None:
    blocks = (Block(1, 3, _losses(1.0, 2.0)), Block(2, 5, _losses(1.0, 2.0)))
    case = RunCase(Stream("summary", 2, 4, blocks), 4, ((1, 1),))
    assert compute(case, reports=["alct"])["alct"]["SummaryId"].tolist() == [3, 3]


def test_deviations_survive_cancellation() -> None:
    # 2^23 and the float32 above it, in turn, in all periods.
    losses = [(float(2**23), float(2**23 + 1))] * 4
    case = _run(2, *(Block(e, 1, _losses(*x, mean=1.0)) for e, x in enumerate(losses, 1)))
    rows = compute(case, reports=["aal"])["aal"]
    assert rows["SDLoss"][1] == np.float32(np.std(np.array(losses), ddof=1))


def test_partitions_change_no_digit() -> None:
    rng = np.random.default_rng(5)
    blocks = [Block(e, 1, _losses(*rng.random(20).tolist(), mean=0.5)) for e in range(1, 31)]
    case = RunCase(
        Stream("summary", 20, 4, tuple(blocks)), 2, tuple((e, 1 + e % 2) for e in range(1, 31))
    )
    whole = octets(compute(case))
    for count in (2, 3, 4):
        assert octets(compute(case, case.partitions(rng, count))) == whole


WEIGHTS = (0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize("curves", ["M", "m", "Mm"])
def test_means_of_samples_need_no_psept(curves: str) -> None:
    blocks = [Block(e, 1, _losses(1.0 * e, 3.0 * e, mean=2.0 * e)) for e in (1, 2, 3, 4)]
    case = _run(2, *blocks, weights=WEIGHTS, returns=(3, 2, 1))
    options = RunOptions(curves=curves)
    rows = compute(case, reports=["ept"], options=options)["ept"]
    expected = run_oracle.exceedance(case.oracle, curves)[0]
    assert (rows["EPCalc"] == 3).any()
    np.testing.assert_allclose(rows.tolist(), expected, rtol=1e-6)


@pytest.mark.parametrize("returns", [(), (4, 2)])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_summary_without_samples_has_a_mean_curve(
    returns: tuple[int, ...], weights: tuple[float, ...] | None
) -> None:
    blocks = [Block(1, 1, _losses(mean=2.0)), Block(2, 2, _losses(1.0, 3.0, mean=2.0))]
    case = _run(2, *blocks, weights=weights, returns=returns)
    tables = compute(case, reports=["ept", "psept"])
    for name, expected in zip(("ept", "psept"), run_oracle.exceedance(case.oracle), strict=True):
        np.testing.assert_allclose(tables[name].tolist(), expected, rtol=1e-6)
    of_first = tables["ept"]["SummaryId"] == 1
    assert set(tables["ept"]["EPCalc"][of_first].tolist()) == {1}


@pytest.mark.parametrize("returns", [(), (9, 5, 3, 2, 1)])
def test_equal_losses_are_in_order_of_periods(returns: tuple[int, ...]) -> None:
    blocks = [Block(e, 1, _losses(5.0, 5.0, mean=5.0)) for e in (4, 2, 3, 1)]
    case = _run(2, *blocks, weights=WEIGHTS, returns=returns)
    tables = compute(case, reports=["ept", "psept"])
    for name, expected in zip(("ept", "psept"), run_oracle.exceedance(case.oracle), strict=True):
        np.testing.assert_allclose(tables[name].tolist(), expected, rtol=1e-6)
    backwards = replace(case, stream=case.stream.with_blocks(case.stream.blocks[::-1]))
    assert octets(compute(backwards, reports=["ept", "psept"])) == octets(tables)


def test_unused_weights_are_those_of_the_summary() -> None:
    blocks = [Block(e, 1, _losses(1.0 * e, mean=1.0)) for e in (1, 2)]
    alone = _run(1, *blocks, weights=WEIGHTS, returns=(9, 3, 2, 1))
    # Another summary uses periods 3 and 4.
    others = [Block(e, 2, _losses(7.0, mean=7.0)) for e in (3, 4)]
    beside = _run(1, *blocks, *others, weights=WEIGHTS, returns=(9, 3, 2, 1))
    for name in ("ept", "psept"):
        rows = compute(beside, reports=[name])[name]
        of_first = rows[rows["SummaryId"] == 1]
        assert of_first.tobytes() == compute(alone, reports=[name])[name].tobytes()
    expected = run_oracle.exceedance(beside.oracle)[0]
    np.testing.assert_allclose(compute(beside)["ept"].tolist(), expected, rtol=1e-6)


def test_an_index_names_every_block_however_long_its_event(tmp_path: Path) -> None:
    # The events are longer than the buffer of 64 KiB that the peer writes.
    losses = tuple((s, float(s)) for s in range(1, 2001))
    blocks = tuple(
        Block(e, item, ((-3, 1.0), (-1, 1.0), *losses)) for e in (1, 2) for item in range(1, 13)
    )
    stream = Stream("loss", 2000, 4, blocks)
    sets = Sets(tuple((item, item, 1) for item in range(1, 13)))
    _summarise(tmp_path, sets, stream, "--out", str(tmp_path))
    data = (tmp_path / "S1_summary.bin").read_bytes()
    index = (tmp_path / "S1_summary.idx").read_bytes()
    assert len(index) == 12 * 24
    for i in range(24):
        summary, offset = struct.unpack_from("<iq", index, 12 * i)
        assert struct.unpack_from("<ii", data, offset) == (1 + i // 12, summary)
