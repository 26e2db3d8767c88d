"""The peer's own fixtures: equal to the last byte, as packed records and as csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.losses.analysis import aggregate
from core.losses.inputs import parse_event_rates, parse_quantiles

OASIS = Path(__file__).parents[2] / ".." / "shared" / "conformance" / "oasis"
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
