"""Reports of whole runs against the peer's: its fixture, and a run of a small model.

Compared as the README of the run says. Under period weights, the peer's curves and ours differ by
the order of ties and by the periods that count as unused. Both are compared with one reference that
is told so, point by point.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.arrays import Rows
from core.losses.reports import REPORTS
from tests import oasis_curves

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


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_every_point_with_weights(tmp_path: Path, perspective: str, number: int) -> None:
    out = _aggregate(
        tmp_path,
        _summary_streams(perspective, number),
        "ept,psept",
        *_options(number, weighted=True)[:-2],
        *_returns(number),
    )
    name = f"{perspective}_S{number}"
    for report in ("ept", "psept"):
        sides: dict[oasis_curves.Source, Path] = {
            "peer": RUN / "expected" / f"{name}_{report}.csv.gz",
            "summaries": out / f"{report}.csv",
        }
        for source, path in sides.items():
            rows = np.array(_rows(path, report).tolist(), np.float64)
            oasis_curves.assert_curves(rows, name, report, source)


@pytest.mark.parametrize("report", ["ept", "psept"])
def test_other_summaries_decide_the_peers_tvar_beyond_the_last_loss(report: str) -> None:
    """Without an index, as in a run, it takes periods that another summary uses for used.

    With one it does not. Nothing else differs, and we never do: a summary is by itself.
    """
    lowest = np.fromfile(RUN / "run" / "input" / "returnperiods.bin", "<i4").min()
    for perspective in PERSPECTIVES:
        with_index, without = (
            {tuple(row[:4]): row[4] for row in oasis_curves.curves(name, source)[report].tolist()}
            for name, source in ((f"{perspective}_S1", s) for s in ("indexed", "peer"))
        )
        missing = with_index.keys() - without.keys()
        assert missing
        assert without.keys() < with_index.keys()
        assert all(kind in {2, 4} and period == lowest for _, _, kind, period in missing)
        for key, loss in without.items():
            if key[2] % 2 or key[3] != lowest:
                assert loss == with_index[key]
