"""A run directory gives every output of its settings, as Oasis names and writes it.

Values are compared as the README of the run says. Points of ept and psept under period weights
are compared with a reference, which ``tests/compat`` shows to be the peer's but for the order of
ties and for periods that are not used.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.command.main import main
from tests import oasis_runs
from tests.oasis_curves import assert_curves
from tests.oasis_runs import NAMES, RUN, copy_run, numbers, read_table, streams

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

ROW_TABLES = ("selt", "melt", "qelt", "splt", "mplt", "qplt")
AVERAGES = ("palt", "altmeanonly", "alct")
KEYS = {"selt": 3, "melt": 3, "qelt": 3, "splt": 10, "mplt": 10, "qplt": 10}


def _run(directory: Path, *options: str) -> Path:
    assert main(["aggregate", "--run-dir", str(directory), *options]) == 0
    return directory / "output"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = copy_run(tmp_path_factory.mktemp("run") / "run")
    return _run(directory, *streams())


def test_every_expected_file_is_there_and_no_other(outputs: Path) -> None:
    expected = {path.name.removesuffix(".gz") for path in (RUN / "expected").iterdir()}
    before = {path.name for path in (RUN / "run" / "output").iterdir()}
    assert {path.name for path in outputs.iterdir()} == expected | before


@pytest.mark.parametrize("name", ROW_TABLES)
@pytest.mark.parametrize("stem", [f"{losses}_S{n}" for losses in NAMES for n in (1, 2)])
def test_rows_by_event_are_those_of_oasis(outputs: Path, stem: str, name: str) -> None:
    header, lines = read_table(outputs / f"{stem}_{name}.csv")
    expected_header, expected = read_table(RUN / "expected" / f"{stem}_{name}.csv.gz")
    assert header == expected_header
    keys = KEYS[name]
    assert [line[:keys] for line in lines] == [line[:keys] for line in expected]
    # Sums of items are exact here and float32 there: they print differently in the last digit.
    np.testing.assert_allclose(numbers(lines), numbers(expected), rtol=5e-6, atol=0.0101)


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("stem", [f"{losses}_S{n}" for losses in NAMES for n in (1, 2)])
def test_averages_are_those_of_oasis(outputs: Path, stem: str, name: str) -> None:
    _assert_averages(outputs, RUN / "expected" / f"{stem}_{name}.csv.gz", stem, name)


def _assert_averages(outputs: Path, path: Path, stem: str, name: str) -> None:
    header, lines = read_table(outputs / f"{stem}_{name}.csv")
    expected_header, expected = read_table(path)
    assert header == expected_header
    np.testing.assert_allclose(numbers(lines), numbers(expected), rtol=1e-5)


@pytest.mark.parametrize("name", ["ept", "psept"])
@pytest.mark.parametrize("stem", [f"{losses}_S{n}" for losses in NAMES for n in (1, 2)])
def test_every_point_of_curves_is_that_of_the_reference(
    outputs: Path, stem: str, name: str
) -> None:
    header, lines = read_table(outputs / f"{stem}_{name}.csv")
    expected_header, _ = read_table(RUN / "expected" / f"{stem}_{name}.csv.gz")
    assert header == expected_header
    assert_curves(numbers(lines), stem, name, "items")


def test_without_weights_everything_is_that_of_oasis(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run")
    for folder in ("input", "static"):
        (directory / folder / "periods.bin").unlink()
    outputs = _run(directory, *streams())
    for path in sorted((RUN / "expected_unweighted").iterdir()):
        stem, _, name = path.name.removesuffix(".csv.gz").rpartition("_")
        if name == "aalmeanonly":
            continue  # no setting asks for it
        _, lines = read_table(outputs / f"{stem}_{name}.csv")
        _, expected = read_table(path)
        values, expected_values = numbers(lines), numbers(expected)
        if name in {"ept", "psept"}:
            # Without an index of its input the peer goes by curve first, not by summary.
            order = np.argsort(expected_values[:, 0], kind="stable")
            expected_values = expected_values[order]
        if name == "alct":
            values, expected_values = values[:, :9], expected_values[:, :9]
        np.testing.assert_allclose(
            values, expected_values, rtol=1e-4, atol=0.0101, err_msg=path.name
        )


def test_parquet_with_joined_columns(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["ri_output"] = False
        document["join_summary_info"] = True
        for name in ("gul", "il"):
            for summary in document[f"{name}_summaries"]:
                summary["ord_output"]["parquet_format"] = True

    outputs = _run(copy_run(tmp_path / "run", change), *streams(("gul", "il")))
    for path in sorted((RUN / "expected_parquet").glob("*elt.parquet")):
        actual = oasis_runs.parquet_columns(outputs / path.name)
        expected = oasis_runs.parquet_columns(path)
        assert list(actual) == list(expected)
        for name, values in expected.items():
            if values.dtype == object:
                # The peer makes every joined column one of strings, numbers too.
                assert [str(value) for value in actual[name]] == values.tolist()
            else:
                np.testing.assert_allclose(actual[name], values, rtol=5e-6, atol=1e-4)
    names = {path.stem for path in (RUN / "expected_parquet").glob("*.parquet")}
    missing = {n for n in names if "summary-info" not in n} - {p.stem for p in outputs.iterdir()}
    assert not missing


def test_altmeanonly_in_parquet_is_written_too(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        oasis_runs.only_gul(document)
        keys = {"alt_meanonly": True, "parquet_format": True}
        document["gul_summaries"] = [{"id": 2, "ord_output": keys}]

    outputs = _run(copy_run(tmp_path / "run", change), *streams(["gul"]))
    columns = oasis_runs.parquet_columns(outputs / "gul_S2_altmeanonly.parquet")
    assert list(columns) == ["SummaryId", "SampleType", "MeanLoss", "SDLoss"]


def test_summary_streams_give_the_tables_of_aggregate(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run", oasis_runs.only_gul)
    for xref in (directory / "input").glob("gulsummaryxref.*"):
        xref.unlink()
    work = RUN / "streams" / "work"
    named = [
        f"--stream=gul_S{n}={work / f'gul_S{n}_summary' / f'P{p}.bin'}"
        for n in (1, 2)
        for p in (1, 2)
    ]
    outputs = _run(directory, *named)
    inputs = RUN / "run" / "input"
    for number, returns in ((1, [f"--return-periods={inputs / 'returnperiods.bin'}"]), (2, [])):
        summaries = [str(work / f"gul_S{number}_summary" / f"P{p}.bin") for p in (1, 2)]
        command = [
            *("aggregate", *summaries, "--reports", "ept,psept,aal"),
            *("--out", str(tmp_path / str(number))),
            *("--occurrence", str(inputs / "occurrence.bin")),
            *("--periods", str(inputs / "periods.bin"), *returns),
        ]
        assert main(command) == 0
        for report, name in (("ept", "ept"), ("psept", "psept"), ("aal", "palt")):
            expected = (tmp_path / str(number) / f"{report}.csv").read_bytes()
            assert (outputs / f"gul_S{number}_{name}.csv").read_bytes() == expected


def test_fifos_of_the_run_directory_are_found(tmp_path: Path, outputs: Path) -> None:
    directory = copy_run(tmp_path / "run")
    folder = directory / "fifo"
    folder.mkdir()
    writers = []
    for name in NAMES:
        for part in (1, 2):
            path = folder / f"{name}_P{part}"
            os.mkfifo(path)
            octets = (RUN / "streams" / f"{path.name}.bin").read_bytes()
            writers.append(threading.Thread(target=path.write_bytes, args=(octets,), daemon=True))
    for writer in writers:
        writer.start()
    found = _run(directory)
    for writer in writers:
        writer.join()
    assert _tables(found) == _tables(outputs)


def _tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*_S?_*t.csv")}


def test_gross_losses_before_each_reinsurance(tmp_path: Path, outputs: Path) -> None:
    """Sets and summaries are those of the reinsurance itself."""

    def change(document: dict[str, Any]) -> None:
        document["rl_output"], document["rl_summaries"] = True, document["ri_summaries"]
        for name in ("gul", "il", "ri"):
            document[f"{name}_output"] = False

    net = {"rl_IP1": "ri_IP1", "rl_IP2": "ri"}
    named = [
        f"--stream={gross}={RUN / 'streams' / f'{name}_P{part}.bin'}"
        for gross, name in net.items()
        for part in (1, 2)
    ]
    found = _tables(_run(copy_run(tmp_path / "run", change), *named))
    of_net = _tables(outputs)
    assert found == {
        gross + name.removeprefix(of): octets
        for gross, of in net.items()
        for name, octets in of_net.items()
        if name.startswith(f"{of}_S")
    }


def test_packed_outputs_on_demand(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run", oasis_runs.only_gul)
    outputs = _run(directory, *streams(["gul"]), "--format", "bin")
    _, lines = read_table(RUN / "expected" / "gul_S2_melt.csv.gz")
    rows = np.fromfile(outputs / "gul_S2_melt.bin", "<i4").reshape(len(lines), 11)
    assert rows[:, 0].tolist() == [int(line[0]) for line in lines]


def test_convergence_alone_is_written(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        oasis_runs.only_gul(document)
        document["gul_summaries"] = [{"id": 2, "ord_output": {"alct_convergence": True}}]

    outputs = _run(copy_run(tmp_path / "run", change), *streams(["gul"]))
    assert (outputs / "gul_S2_alct.csv").exists()
    assert not (outputs / "gul_S2_palt.csv").exists()
