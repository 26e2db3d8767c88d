from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.losses.reports import EVENTS, MELT, QELT, REPORTS, SELT, Report
from core.losses.tables import BinEncoder, CsvEncoder

ELT = Path(__file__).parents[3] / ".." / "shared" / "conformance" / "oasis" / "elt"
PLAIN_PYTHON = os.environ.get("NUMBA_DISABLE_JIT") == "1"

Rows = npt.NDArray[np.void]


def expected(report: Report, rows: Rows) -> bytes:
    forms = ["%d" if c.decimals is None else f"%.{c.decimals}f" for c in report.columns]
    form = ",".join(forms) + "\n"
    return "".join(form % tuple(row) for row in rows.tolist()).encode()


def made(report: Report, width: int, columns: dict[str, Any]) -> Rows:
    rows = np.zeros(len(next(iter(columns.values()))), report.dtype(width))
    for name, values in columns.items():
        rows[name] = values
    return rows


def check(report: Report, width: int, rows: Rows) -> None:
    assert bytes(CsvEncoder(report, width).encode(rows)) == expected(report, rows)


def floats(width: int) -> st.SearchStrategy[float]:
    """Any float, and those near a tie of the rounding digit."""
    near = st.builds(
        lambda n, d, u: float(np.dtype(f"f{width}").type((2 * n + 1) / (2 * 10**d) + u)),
        st.integers(-(10**9), 10**9),
        st.integers(0, 6),
        st.sampled_from([0.0, 1e-12, -1e-12, 5e-324]),
    )
    widths: dict[int, st.SearchStrategy[float]] = {4: st.floats(width=32), 8: st.floats()}
    return widths[width] | near | st.sampled_from([0.0, -0.0, 1e15, 9.9999995])


@pytest.mark.parametrize("width", [4, 8])
@given(data=st.data())
def test_floats_are_printed_as_c_prints_them(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(floats(width), min_size=1, max_size=40))
    check(QELT, width, made(QELT, width, {"Quantile": values, "Loss": values[::-1]}))
    check(SELT, width, made(SELT, width, {"Loss": values, "ImpactedExposure": values[::-1]}))


@given(ids=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
def test_integers_are_printed_as_c_prints_them(ids: list[int]) -> None:
    columns = {"EventId": ids, "SummaryId": ids[::-1], "SampleId": ids}
    check(SELT, 4, made(SELT, 4, columns))
    check(SELT, 8, made(SELT, 8, columns))


@pytest.mark.parametrize("width", [4, 8])
def test_many_magnitudes(width: int) -> None:
    rng = np.random.default_rng(width)
    count = 2_000 if PLAIN_PYTHON else 100_000
    bits = rng.integers(0, 2 ** (8 * width), count, dtype=f"u{width}")
    values = bits.view(f"f{width}")
    sizes = rng.integers(-8, 20, count)
    amounts = (rng.random(count) * 10.0**sizes).astype(f"f{width}")
    check(QELT, width, made(QELT, width, {"Quantile": values, "Loss": amounts}))
    ties = (rng.integers(0, 10**6, count) / 8).astype(f"f{width}")
    check(SELT, width, made(SELT, width, {"Loss": ties, "ImpactedExposure": amounts}))


def test_ties_that_only_the_product_makes() -> None:
    """The float64 nearest to a tie is above or below it, but its product is the tie."""
    values = (2 * np.arange(500) + 1) / 2e6
    values = values[values * 1e6 % 1 == 0.5]
    assert len(values) > 300
    check(QELT, 8, made(QELT, 8, {"Quantile": values, "Loss": -values}))


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
@pytest.mark.parametrize("width", [4, 8])
def test_every_report(report: Report, width: int) -> None:
    rng = np.random.default_rng(1)
    rows = np.zeros(300, report.dtype(width))
    for column in report.columns:
        low, high = (1, 5) if column.decimals is None else (0, 3)
        rows[column.name] = rng.integers(low, high, len(rows)) * 1234.5678
    check(report, width, rows)
    encoder = CsvEncoder(report, width)
    assert encoder.header().decode() == ",".join(c.name for c in report.columns) + "\n"
    assert bytes(encoder.encode(rows[:0])) == b""


def test_repeated_calls_and_kinds_of_memory() -> None:
    rows = made(SELT, 4, {"EventId": range(1, 1001), "Loss": np.arange(1000) / 7})
    encoder = CsvEncoder(SELT, 4)
    for part in (rows, rows[10:500], rows[::3], rows[5:5], rows):
        assert bytes(encoder.encode(part)) == expected(SELT, part)
    frozen = np.frombuffer(rows.tobytes(), rows.dtype)
    assert bytes(encoder.encode(frozen)) == expected(SELT, rows)


def test_rows_of_nothing_but_the_longest_numbers() -> None:
    huge = np.finfo(np.float64).max
    rows = made(EVENTS, 4, {c.name: [-(2**31)] * 50 for c in EVENTS.columns[:2]})
    for column in EVENTS.columns[2:]:
        rows[column.name] = -huge
    check(EVENTS, 4, rows)
    almost = made(MELT, 8, {c.name: [-(2**31)] * 5000 for c in MELT.columns[:3]})
    for column in MELT.columns[3:]:
        almost[column.name] = -999_999_999_999_999_872.0
    check(MELT, 8, almost)


@pytest.mark.parametrize("name", ["selt", "melt", "qelt"])
def test_the_peers_tables(name: str) -> None:
    if not ELT.is_dir():
        pytest.skip("the peer's conformance data are not here")
    report = REPORTS[name]
    rows = np.fromfile(ELT / f"py_{name}.bin", report.dtype(4))
    encoder = CsvEncoder(report, 4)
    text = encoder.header() + bytes(encoder.encode(rows))
    assert text == (ELT / f"py_{name}.csv").read_bytes()
    assert bytes(BinEncoder().encode(rows)) == (ELT / f"py_{name}.bin").read_bytes()


def test_packed_records_are_not_copied() -> None:
    rows = made(SELT, 4, {"EventId": [1, 2]})
    view = BinEncoder().encode(rows)
    rows["EventId"] = 7
    assert np.frombuffer(view, rows.dtype)["EventId"].tolist() == [7, 7]
    assert bytes(BinEncoder().encode(rows[::2])) == rows[::2].tobytes()
    assert BinEncoder().header() == b""
