"""The peer's files that other modules leave, and that no file is left.

``COMPARED`` tells for every file of the two fixtures which test compares it, and how; the last
test fails if a file is in no row.
"""

from __future__ import annotations

import csv
import fnmatch
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from core.losses.reports import REPORTS
from tests.compat.test_oasis import inputs_of

SHARED = Path(__file__).parents[2] / ".." / "shared" / "conformance"
RUN = SHARED / "oasis-run"
INPUT = RUN / "run" / "input"

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

PERSPECTIVES = ("gul", "il", "ri_IP1", "ri")
NOT_OUTPUT = "no output of a calculator: what the run was made from and with"

COMPARED = {
    # pattern: test, and how equal
    "oasis/elt/py_*": "test_oasis.test_event_loss_tables: bytes",
    "oasis/plt_*/py_*": "test_oasis.test_period_loss_tables: bytes",
    "oasis/lec_rp/py_*": "test_oasis_run.test_curves_of_the_fixture: 1e-5",
    "oasis/summary/*_summary.*": (
        "test_oasis_summaries: bytes, but for float32 sums (4 ulp) and one count of risks"
    ),
    "oasis/summary/*": "test_oasis_summaries reads them",
    "oasis/aux_files/occurrence*": "core: inputs/test_occurrence, test_inputs: bytes",
    "oasis/aux_files/periods*": "core: inputs/test_periods: bytes",
    "oasis/aux_files/returnperiods*": "core: inputs/test_return_periods: bytes",
    "oasis/aux_files/quantile*": "core: test_inputs: bytes",
    "oasis/aux_files/event_rates.csv": "core: test_inputs: numbers",
    "oasis/aux_files/co*": "of items and their correlation, which no report reads",
    "oasis/*/input/*": "read by the tests of the folder; csv and packed: test_pairs_of_inputs",
    "oasis/*/summarypy*.bin": "read by the tests of the folder",
    "oasis/lec_rp/work/gul/*": "read by test_oasis_run and test_oasis",
    "oasis/LICENSE": NOT_OUTPUT,
    "oasis-run/expected/*_[smq]elt.csv.gz": "test_event_loss_tables_of_a_run: bytes",
    "oasis-run/expected/*_[smq]plt.csv.gz": (
        "test_oasis.test_period_loss_tables_of_a_run_of_two_processes: bytes"
    ),
    "oasis-run/expected/*_palt.csv.gz": "test_oasis_run.test_annual_losses_with_weights: 1e-5",
    "oasis-run/expected/*_alct.csv.gz": "test_oasis_run.test_annual_losses_with_weights: 1e-5",
    "oasis-run/expected/*_altmeanonly.csv.gz": "test_means_only_are_those_of_the_aal: 1e-5",
    "oasis-run/expected/*_S1_*ept.csv.gz": (
        "test_oasis_run.test_return_periods_with_weights: 1e-5 outside ties"
    ),
    "oasis-run/expected/*_S2_*ept.csv.gz": (
        "test_oasis_run.test_every_point_with_weights: 1e-5 but for the order within ties"
    ),
    "oasis-run/expected_unweighted/*ept.csv.gz": (
        "test_oasis_run.test_curves_without_weights: 1e-5"
    ),
    "oasis-run/expected_unweighted/*_alct.csv.gz": (
        "test_oasis_run.test_annual_losses_without_weights: 1e-5"
    ),
    "oasis-run/expected_unweighted/*_palt.csv.gz": (
        "test_oasis_run.test_annual_losses_without_weights: 1e-5"
    ),
    "oasis-run/expected_unweighted/*_aalmeanonly.csv.gz": (
        "test_oasis_run.test_annual_losses_without_weights: 1e-5"
    ),
    "oasis-run/expected_unweighted/*_mplt.csv.gz": "test_moments_without_weights: bytes",
    "oasis-run/expected_parquet/*_summary-info.parquet": "test_tables_as_parquet: joined columns",
    "oasis-run/expected_parquet/*.parquet": (
        "test_tables_as_parquet: 1e-5; ALCT where not NaN; curves are those of the csv"
    ),
    "oasis-run/streams/*": "test_oasis_summaries: bytes, but for float32 sums (4 ulp)",
    "oasis-run/seam/output/*": "test_the_tables_of_the_seam: bytes, AAL 1e-5",
    "oasis-run/run/output/*summary-info.csv": "core: inputs/test_summary_info: values",
    "oasis-run/run/input/*": "read by the tests of the run",
    "oasis-run/run/*": NOT_OUTPUT,
    "oasis-run/model/*": NOT_OUTPUT,
    "oasis-run/log_sample/*": NOT_OUTPUT,
    "oasis-run/seam/*": NOT_OUTPUT,
    "oasis-run/*.*": NOT_OUTPUT,
}


def _streams(perspective: str, number: int) -> list[str]:
    folder = RUN / "streams" / "work" / f"{perspective}_S{number}_summary"
    return [str(folder / "P1.bin"), str(folder / "P2.bin")]


def _aggregate(out: Path, streams: list[str], reports: str, *options: str) -> Path:
    command = ["aggregate", *streams, "--reports", reports, "--no-progress", "--out", str(out)]
    assert main([*command, *options]) == 0
    return out


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_event_loss_tables_of_a_run(tmp_path: Path, perspective: str, number: int) -> None:
    options = ["--event-rates", str(INPUT / "event_rates.csv"), "--order", "event"]
    options += ["--quantiles", str(INPUT / "quantile.bin")]
    _aggregate(tmp_path, _streams(perspective, number), "selt,melt,qelt", *options)
    for report in ("selt", "melt", "qelt"):
        path = RUN / "expected" / f"{perspective}_S{number}_{report}.csv.gz"
        assert (tmp_path / f"{report}.csv").read_bytes() == gzip.decompress(path.read_bytes())


def _numbers(octets: bytes) -> npt.NDArray[np.float64]:
    lines = list(csv.reader(io.StringIO(octets.decode())))
    return np.array(lines[1:], np.float64)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_means_only_are_those_of_the_aal(tmp_path: Path, perspective: str, number: int) -> None:
    # The peer was not told -M: it wrote the table with standard deviations again.
    options = inputs_of(INPUT)[:4]
    _aggregate(tmp_path, _streams(perspective, number), "aal,aal_mean", *options)
    path = RUN / "expected" / f"{perspective}_S{number}_altmeanonly.csv.gz"
    expected = _numbers(gzip.decompress(path.read_bytes()))
    aal = _numbers((tmp_path / "aal.csv").read_bytes())
    np.testing.assert_allclose(aal, expected, rtol=1e-5)
    means = _numbers((tmp_path / "aal_mean.csv").read_bytes())
    by_summary = expected[np.argsort(expected[:, 0], kind="stable"), :3]
    np.testing.assert_allclose(means, by_summary, rtol=1e-5)


def test_moments_without_weights(tmp_path: Path) -> None:
    options = ["--occurrence", str(INPUT / "occurrence.bin"), "--order", "event"]
    _aggregate(tmp_path, _streams("gul", 2), "mplt", *options)
    expected = gzip.decompress((RUN / "expected_unweighted/gul_S2_mplt.csv.gz").read_bytes())
    assert (tmp_path / "mplt.csv").read_bytes() == expected


def test_the_tables_of_the_seam(tmp_path: Path) -> None:
    # Its set 1 is all that is set 2 of the other run.
    options = [*inputs_of(INPUT)[:4], "--event-rates", str(INPUT / "event_rates.csv")]
    _aggregate(tmp_path, _streams("gul", 2), "melt,aal", *options, "--order", "event")
    seam = RUN / "seam" / "output"
    assert (tmp_path / "melt.csv").read_bytes() == (seam / "gul_S1_melt.csv").read_bytes()
    aal = _numbers((tmp_path / "aal.csv").read_bytes())
    np.testing.assert_allclose(aal, _numbers((seam / "gul_S1_palt.csv").read_bytes()), rtol=1e-5)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("perspective", ["gul", "il"])
def test_tables_as_parquet(tmp_path: Path, perspective: str, number: int) -> None:
    reports = ("selt", "melt", "qelt", "splt", "mplt", "qplt", "aal", "alct", "ept", "psept")
    info = RUN / "run" / "output" / f"{perspective}_S{number}_summary-info.csv"
    options = [*inputs_of(INPUT), "--event-rates", str(INPUT / "event_rates.csv")]
    options += ["--confidence", "0.95" if number == 1 else "0.9", "--order", "event"]
    options += ["--summary-info", str(info), "--format", "parquet"]
    if number == 1:
        options += ["--return-periods", str(INPUT / "returnperiods.bin")]
    _aggregate(tmp_path, _streams(perspective, number), ",".join(reports), *options)
    infos = pq.read_table(
        RUN / "expected_parquet" / f"{perspective}_S{number}_summary-info.parquet"
    )
    for report in reports:
        name = "palt" if report == "aal" else report
        peers = pq.read_table(RUN / "expected_parquet" / f"{perspective}_S{number}_{name}.parquet")
        ours = pq.read_table(tmp_path / f"{report}.parquet")
        _assert_joined(ours, infos)
        _assert_joined(peers, infos)
        columns = [column.name for column in REPORTS[report].columns]
        text = RUN / "expected" / f"{perspective}_S{number}_{name}.csv.gz"
        _assert_same_columns(report, ours.select(columns), peers.select(columns), text)


def _assert_joined(table: pa.Table, infos: pa.Table) -> None:
    """Every row has the texts of its summary; the peer turns numbers into texts, too."""
    ids = infos["summary_id"].to_pylist()
    summaries = table["SummaryId"].to_pylist()
    for name in infos.column_names[1:]:
        values = dict(zip(ids, infos[name].to_pylist(), strict=True))
        joined = table[name].to_pylist()
        assert [_text(x) for x in joined] == [_text(values[s]) for s in summaries], name


def _text(value: Any) -> str:  # noqa: ANN401 - of a table
    try:
        return str(float(value))
    except ValueError:
        return str(value)


def _assert_same_columns(report: str, ours: pa.Table, peers: pa.Table, text: Path) -> None:
    assert ours.schema.types == peers.schema.types
    mine, theirs = ({n: t[n].to_numpy() for n in t.column_names} for t in (ours, peers))
    if report in {"ept", "psept"}:
        # Which rows there are depends on ties; the csv, which other tests compare, has the same.
        printed = _numbers(gzip.decompress(text.read_bytes())).T
        for column, expected in zip(theirs.values(), printed, strict=True):
            np.testing.assert_allclose(column, expected, 1e-5, 1e-5, err_msg=report)
        return
    for name, column in theirs.items():
        whole = np.ones(len(column), np.bool_)
        if report == "alct" and ("Vuln" in name or name in _OF_VULNERABILITY):
            # The peer's variance is negative here or the rest of a cancellation.
            size = np.maximum(theirs["SDLoss"], theirs["MeanLoss"])
            whole = np.abs(theirs["VarElementVuln"]) > 1e-9 * size**2
        np.testing.assert_allclose(mine[name][whole], column[whole], 1e-5, 1e-5, err_msg=name)


_OF_VULNERABILITY = {"StandardError", "RelativeError", "LowerCI", "UpperCI"}


def test_pairs_of_inputs_are_equal(tmp_path: Path) -> None:
    folder = SHARED / "oasis" / "lec_rp"
    streams = [str(folder / "work" / "gul" / f"summarypy{i}.bin") for i in (1, 2)]
    tables = []
    for form, more in (("bin", []), ("csv", ["--no-of-periods", "1000"])):
        options = ["--occurrence", str(folder / "input" / f"occurrence.{form}"), *more]
        options += ["--return-periods", str(folder / "input" / f"returnperiods.{form}")]
        _aggregate(tmp_path / form, streams, "ept,psept", *options)
        tables.append([(tmp_path / form / f"{r}.csv").read_bytes() for r in ("ept", "psept")])
    assert tables[0] == tables[1]


def test_every_file_of_the_fixtures_is_compared_or_told_of() -> None:
    for name in ("oasis", "oasis-run"):
        for path in sorted((SHARED / name).rglob("*")):
            relative = str(path.relative_to(SHARED))
            found = any(fnmatch.fnmatch(relative, pattern) for pattern in COMPARED)
            assert found or path.is_dir(), relative
