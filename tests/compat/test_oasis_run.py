"""Reports of whole runs against the peer's: its fixture, and a run of a small model.

Compared as the README of the run says. Within ties under period weights the peer's order is that
of an unstable sort, so points there are compared as sets; ours are ordered by period.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.arrays import Rows
from core.losses.inputs import parse_occurrence, parse_periods
from core.losses.reports import REPORTS
from tests import run_oracle

SHARED = Path(__file__).parents[2] / ".." / "shared" / "conformance"
LEC = SHARED / "oasis" / "lec_rp"
RUN = SHARED / "oasis-run"

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

PERSPECTIVES = ("gul", "il", "ri_IP1", "ri")
UNWEIGHTED = (("gul", 1), ("gul", 2), ("il", 1), ("il", 2), ("ri", 2))


def _aggregate(out: Path, streams: list[Path], reports: str, *options: str) -> Path:
    names = [str(path) for path in streams]
    command = ["aggregate", *names, "--reports", reports, "--no-progress", "--out", str(out)]
    assert main([*command, *options]) == 0
    return out


def _rows(path: Path, report: str) -> Rows:
    """Rows of a csv, plain or compressed."""
    octets = path.read_bytes()
    text = (gzip.decompress(octets) if path.suffix == ".gz" else octets).decode()
    lines = list(csv.reader(text.splitlines()))
    assert tuple(lines[0]) == tuple(column.name for column in REPORTS[report].columns)
    dtype = np.dtype(
        [(c.name, "i8" if c.decimals is None else "f8") for c in REPORTS[report].columns]
    )
    return np.array([tuple(line) for line in lines[1:]], dtype)


def _assert_close(actual: Rows, expected: Rows, *, rtol: float = 1e-5) -> None:
    assert len(actual) == len(expected)
    for name in expected.dtype.names or ():
        atol = 0 if expected.dtype[name].kind == "i" else 1e-5
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=rtol, atol=atol, err_msg=name, equal_nan=True
        )


def _summary_streams(perspective: str, number: int) -> list[Path]:
    folder = RUN / "streams" / "work" / f"{perspective}_S{number}_summary"
    return [folder / "P1.bin", folder / "P2.bin"]


def _options(number: int, *, weighted: bool) -> list[str]:
    options = ["--occurrence", str(RUN / "run" / "input" / "occurrence.bin")]
    if weighted:
        options += ["--periods", str(RUN / "run" / "input" / "periods.bin")]
    return [*options, "--confidence", "0.95" if number == 1 else "0.9"]


def _returns(number: int) -> list[str]:
    """The peer was given return periods for set 1 only."""
    path = RUN / "run" / "input" / "returnperiods.bin"
    return ["--return-periods", str(path)] if number == 1 else []


@pytest.mark.parametrize("form", ["csv", "bin"])
def test_curves_of_the_fixture(tmp_path: Path, form: str) -> None:
    inputs = LEC / "input"
    out = _aggregate(
        tmp_path,
        [LEC / "work" / "gul" / f"summarypy{i}.bin" for i in (1, 2)],
        "ept,psept",
        *("--occurrence", str(inputs / "occurrence.bin")),
        *("--return-periods", str(inputs / "returnperiods.bin"), "--format", form),
    )
    for name in ("ept", "psept"):
        if form == "csv":
            _assert_close(_rows(out / f"{name}.csv", name), _rows(LEC / f"py_{name}.csv", name))
        else:
            dtype = REPORTS[name].dtype(4)
            actual, expected = (
                np.fromfile(path, dtype) for path in (out / f"{name}.bin", LEC / f"py_{name}.bin")
            )
            _assert_close(actual, expected)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_annual_losses_with_weights(tmp_path: Path, perspective: str, number: int) -> None:
    streams = _summary_streams(perspective, number)
    out = _aggregate(tmp_path, streams, "aal,alct", *_options(number, weighted=True))
    expected = RUN / "expected" / f"{perspective}_S{number}"
    _assert_close(_rows(out / "aal.csv", "aal"), _rows(Path(f"{expected}_palt.csv.gz"), "aal"))
    _assert_convergence(out, Path(f"{expected}_alct.csv.gz"))


@pytest.mark.parametrize(("perspective", "number"), UNWEIGHTED)
def test_annual_losses_without_weights(tmp_path: Path, perspective: str, number: int) -> None:
    streams = _summary_streams(perspective, number)
    out = _aggregate(tmp_path, streams, "aal,aal_mean,alct", *_options(number, weighted=False))
    expected = RUN / "expected_unweighted" / f"{perspective}_S{number}"
    _assert_close(_rows(out / "aal.csv", "aal"), _rows(Path(f"{expected}_palt.csv.gz"), "aal"))
    _assert_convergence(out, Path(f"{expected}_alct.csv.gz"))
    means = Path(f"{expected}_aalmeanonly.csv.gz")
    if means.exists():
        _assert_close(_rows(out / "aal_mean.csv", "aal_mean"), _rows(means, "aal_mean"))


def _assert_convergence(out: Path, path: Path) -> None:
    """Compare ALCT; where the peer's variance is the rest of a cancellation, only its size."""
    actual, expected = _rows(out / "alct.csv", "alct"), _rows(path, "alct")
    assert len(actual) == len(expected)
    noise = 1e-9 * np.maximum(expected["SDLoss"], expected["MeanLoss"]) ** 2
    for name in expected.dtype.names or ():
        kept = np.ones(len(actual), bool)
        if name not in {"SummaryId", "SampleSize", "MeanLoss", "SDLoss"} and "Haz" not in name:
            kept = np.abs(expected["VarElementVuln"]) > noise
        np.testing.assert_allclose(
            actual[name][kept], expected[name][kept], rtol=1e-5, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize(("perspective", "number"), UNWEIGHTED)
def test_curves_without_weights(tmp_path: Path, perspective: str, number: int) -> None:
    returns = _returns(number)
    out = _aggregate(
        tmp_path,
        _summary_streams(perspective, number),
        "ept,psept",
        *_options(number, weighted=False)[:-2],
        *returns,
    )
    for name in ("ept", "psept"):
        path = RUN / "expected_unweighted" / f"{perspective}_S{number}_{name}.csv.gz"
        actual, expected = _rows(out / f"{name}.csv", name), _rows(path, name)
        # Without an index of its input the peer goes by EPCalc first, not by summary.
        _assert_close(actual, expected[np.argsort(expected["SummaryId"], kind="stable")])


@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_every_point_with_weights(tmp_path: Path, perspective: str) -> None:
    out = _aggregate(
        tmp_path,
        _summary_streams(perspective, 2),
        "ept,psept",
        *_options(2, weighted=True)[:-2],
    )
    for name, label in (("ept", "EPCalc"), ("psept", "SampleId")):
        path = RUN / "expected" / f"{perspective}_S2_{name}.csv.gz"
        actual, expected = _rows(out / f"{name}.csv", name), _rows(path, name)
        assert len(actual) == len(expected)
        np.testing.assert_array_equal(actual[label], expected[label])
        np.testing.assert_array_equal(actual["EPType"], expected["EPType"])
        np.testing.assert_allclose(actual["Loss"], expected["Loss"], rtol=1e-5)
        # The last point of a tie is well defined; those before depend on the order within.
        last = np.append(~np.isclose(expected["Loss"][1:], expected["Loss"][:-1], rtol=3e-7), True)
        last &= np.isin(expected["EPType"], [1, 3])
        np.testing.assert_allclose(
            actual["ReturnPeriod"][last], expected["ReturnPeriod"][last], rtol=1e-5
        )


@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_return_periods_with_weights(tmp_path: Path, perspective: str) -> None:
    streams = _summary_streams(perspective, 1)
    out = _aggregate(
        tmp_path,
        streams,
        "ept,psept",
        *_options(1, weighted=True)[:-2],
        *_returns(1),
    )
    undefined = _Undefined(streams)
    for name, label in (("ept", "EPCalc"), ("psept", "SampleId")):
        path = RUN / "expected" / f"{perspective}_S1_{name}.csv.gz"
        sides: list[dict[tuple[int, int, int, float], float]] = []
        for rows in (_rows(out / f"{name}.csv", name), _rows(path, name)):
            keys = rows[["SummaryId", label, "EPType", "ReturnPeriod"]].tolist()
            sides.append(dict(zip(keys, rows["Loss"], strict=True)))
        compared = 0
        for key in sides[0].keys() | sides[1].keys():
            if not undefined.at(name, *key):
                compared += 1
                np.testing.assert_allclose(
                    sides[0][key], sides[1][key], 1e-5, 1e-5, err_msg=str(key)
                )
        assert compared > len(sides[1]) // 2


class _Undefined:
    """Where the peer's result follows from the order of an unstable sort, or from other summaries.

    The first is read in or beside a tie of losses with different weights. The second is TVaR
    beyond the last loss: the peer takes the weights of periods that no summary uses.
    """

    def __init__(self, streams: list[Path]) -> None:
        inputs = RUN / "run" / "input"
        occurrence = parse_occurrence((inputs / "occurrence.bin").read_bytes())
        self._weights = parse_periods((inputs / "periods.bin").read_bytes()).weights
        numbers = occurrence.period_numbers.tolist()
        run = run_oracle.Run(10, occurrence.periods, self._weights)
        for path in streams:
            run.add(path.read_bytes(), 4, zip(occurrence.event_ids.tolist(), numbers, strict=True))
        self._run = run

    def _years(self, summary: int, sample: int | None, aep: bool) -> list[tuple[float, float]]:
        """(loss as the peer has it, weight) of one sample, or of all of them."""
        table = self._run.sums if aep else self._run.largest
        share = 1.0 if sample is not None else 0.1
        return [
            (float(np.float32(float(loss))), self._weights[p - 1] * share)
            for (ident, p, s), loss in table.items()
            if ident == summary and (s == sample or (sample is None and s > 0)) and loss > 0
        ]

    def _means(self, summary: int, aep: bool) -> list[tuple[float, float]]:
        totals: dict[int, float] = defaultdict(float)
        table = self._run.sums if aep else self._run.largest
        for (ident, p, s), loss in table.items():
            if ident == summary and s > 0:
                totals[p] += float(loss) / 10
        return [(float(np.float32(x)), self._weights[p - 1]) for p, x in totals.items() if x > 0]

    def at(self, report: str, summary: int, label: int, kind: int, period: float) -> bool:
        """Whether a row is so."""
        aep, tail = kind > 2, kind % 2 == 0
        if report == "psept":
            return _is_tied(self._years(summary, label, aep), period, tail=tail)
        if label == 3:
            samples = range(1, 11)
            years = [self._years(summary, s, aep) for s in samples]
            return any(_is_tied(of_one, period, tail=tail) for of_one in years)
        if label == 4:
            return _is_tied(self._means(summary, aep), period, tail=tail)
        return _is_tied(self._years(summary, 0 if label == 1 else None, aep), period, tail=tail)


def _is_tied(years: list[tuple[float, float]], period: float, *, tail: bool) -> bool:
    years = sorted(((x, w) for x, w in years if w > 0), reverse=True)
    if not years:
        return True
    losses, weights = np.array(years).T
    periods = 1 / np.cumsum(weights)
    same = np.isclose(losses[1:], losses[:-1], rtol=1e-6)
    tied = np.append(same, False) | np.append(False, same)
    i = int(np.searchsorted(-periods, -period))
    if i == len(losses):
        return tail or bool(tied[-1] and len(losses) == 1)
    return bool(tied[max(i - 1, 0) : i + 2].any())
