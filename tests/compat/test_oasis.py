"""The peer's own fixtures: equal to the last byte, as packed records and as csv."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.losses.analysis import aggregate
from core.losses.inputs import parse_event_rates, parse_quantiles

OASIS = Path(__file__).parents[2] / ".." / "shared" / "conformance" / "oasis"
RUN = OASIS.parent / "oasis-run"
ELT = OASIS / "elt"

pytestmark = pytest.mark.skipif(
    not OASIS.is_dir(), reason="the peer's conformance data are not here"
)

CASES = [
    ("selt", "py_selt", []),
    ("melt", "py_melt", []),
    ("melt", "py_melt_er", ["--event-rates", str(ELT / "input" / "er.csv")]),
    ("qelt", "py_qelt", ["--quantiles", str(ELT / "input" / "quantile.bin")]),
]


@pytest.mark.parametrize(("report", "expected", "inputs"), CASES, ids=[c[1] for c in CASES])
@pytest.mark.parametrize("form", ["csv", "bin"])
def test_event_loss_tables(
    tmp_path: Path, report: str, expected: str, inputs: list[str], form: str
) -> None:
    command = ["aggregate", str(ELT / "summarypy.bin"), "--reports", report, *inputs]
    assert main([*command, "--format", form, "--out", str(tmp_path)]) == 0
    got = (tmp_path / f"{report}.{form}").read_bytes()
    assert got == (ELT / f"{expected}.{form}").read_bytes()


def inputs_of(folder: Path) -> list[str]:
    """Options that name the inputs of period tables in a folder; weights if it has them."""
    names = {"occurrence": "occurrence", "periods": "periods", "quantiles": "quantile"}
    files = {option: folder / f"{name}.bin" for option, name in names.items()}
    return [a for name, file in files.items() if file.exists() for a in (f"--{name}", str(file))]


@pytest.mark.parametrize("case", ["plt_periods", "plt_no_periods"])
@pytest.mark.parametrize("form", ["csv", "bin"])
def test_period_loss_tables(tmp_path: Path, case: str, form: str) -> None:
    folder = OASIS / case
    command = ["aggregate", str(folder / "summarypy.bin"), "--reports", "splt,mplt,qplt"]
    command += inputs_of(folder / "input")
    assert main([*command, "--format", form, "--out", str(tmp_path)]) == 0
    for name in ("splt", "mplt", "qplt"):
        expected = (folder / f"py_{name}.{form}").read_bytes()
        assert (tmp_path / f"{name}.{form}").read_bytes() == expected


@pytest.mark.parametrize("perspective", ["gul", "il", "ri_IP1", "ri"])
@pytest.mark.parametrize("summary_set", [1, 2])
def test_period_loss_tables_of_a_run_of_two_processes(
    tmp_path: Path, perspective: str, summary_set: int
) -> None:
    name = f"{perspective}_S{summary_set}"
    streams = [str(RUN / f"streams/work/{name}_summary/P{i}.bin") for i in (1, 2)]
    command = ["aggregate", *streams, "--reports", "splt,mplt,qplt", "--order", "event"]
    assert main([*command, *inputs_of(RUN / "run/input"), "--out", str(tmp_path)]) == 0
    for report in ("splt", "mplt", "qplt"):
        expected = gzip.decompress((RUN / f"expected/{name}_{report}.csv.gz").read_bytes())
        assert (tmp_path / f"{report}.csv").read_bytes() == expected


def test_all_at_once_equal_each_alone() -> None:
    data = (ELT / "summarypy.bin").read_bytes()
    quantiles = parse_quantiles((ELT / "input" / "quantile.bin").read_bytes())
    rates = parse_event_rates((ELT / "input" / "er.csv").read_bytes())
    tables = aggregate(
        data, ["selt", "melt", "qelt", "events"], quantiles=quantiles, event_rates=rates
    )
    for report, expected in (("selt", "py_selt"), ("melt", "py_melt_er"), ("qelt", "py_qelt")):
        assert tables[report].tobytes() == (ELT / f"{expected}.bin").read_bytes()


@pytest.mark.parametrize("name", ["gul", "il", "ri"])
def test_item_streams_give_event_totals(name: str) -> None:
    data = (OASIS / "summary" / f"{name}.bin").read_bytes()
    events = aggregate(data, ["events"])["events"]
    assert len(np.unique(events["EventId"])) == len(events) > 0
    assert np.all(events["SampleMax"] >= events["SampleMean"])


def test_partitions_of_one_run(tmp_path: Path) -> None:
    parts = [str(OASIS / "lec_rp" / "work" / "gul" / f"summarypy{i}.bin") for i in (1, 2)]
    for order in ("received", "event"):
        command = ["aggregate", *parts, "--reports", "melt", "--order", order]
        assert main([*command, "--format", "bin", "--out", str(tmp_path / order)]) == 0
    merged = np.fromfile(tmp_path / "event" / "melt.bin", "<i4").reshape(-1, 11)
    assert np.all(np.diff(merged[:, 0]) >= 0)
    received = np.fromfile(tmp_path / "received" / "melt.bin", "<i4").reshape(-1, 11)
    assert sorted(map(tuple, received)) == sorted(map(tuple, merged))
