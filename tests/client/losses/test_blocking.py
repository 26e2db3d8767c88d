"""Whole tables of the real service: of one request, whatever is cut, and for other libraries."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from app.client import AsyncClient, Client, ProblemError, ProducerFailed, ReportTable
from app.client.losses.requests import WHOLE_STREAM_REPORTS, LossRequests
from core.losses.analysis import aggregate
from core.losses.inputs import (
    Occurrence,
    Periods,
    ReturnPeriods,
    encode_occurrence,
    encode_periods,
    encode_return_periods,
)
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

from ..conftest import Connect
from ..running import ROOT, cutting

needs_service = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

EVENTS = 30
STREAM = b"".join(generate_stream(SampleSpec(events=EVENTS, summaries=3, samples=9)))
IDS = np.arange(1, EVENTS + 1, dtype=np.int32)
GIVEN: dict[str, Any] = {
    "occurrence": Occurrence(9, IDS, IDS % 9 + 1, 730_000 + IDS.astype(np.int64)),
    "periods": Periods(np.full(9, 1 / 9)),
}
YEARS = (9, 5, 2)
QUANTILES = [0.25, 0.5]
FILES: dict[str, Any] = {
    "occurrence": encode_occurrence(GIVEN["occurrence"], "bin"),
    "periods": encode_periods(GIVEN["periods"], "csv"),
}
WITH_YEARS = ("ept", "psept")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()
    assert not process.failures()


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    names = [name for name, report in REPORTS.items() if "period" in report.scope]
    names += sorted(WHOLE_STREAM_REPORTS)
    tables = aggregate(
        STREAM,
        names,
        quantiles=np.array(QUANTILES, np.float32),
        return_periods=ReturnPeriods(np.array(YEARS, np.int32)),
        **GIVEN,
    )
    return {name: rows.tobytes() for name, rows in tables.items()}


def test_the_client_knows_which_reports_need_the_whole_stream() -> None:
    of_runs = {name for name, report in REPORTS.items() if report.scope == "run"}
    assert of_runs == WHOLE_STREAM_REPORTS
    assert LossRequests(["melt", "ept"], "frames", {}, None).need_whole_stream
    assert not LossRequests(["melt", "splt"], "frames", {}, None).need_whole_stream


# -- the service ---------------------------------------------------------------------------


@needs_service
def test_all_reports_are_those_computed_offline(
    server: ServerProcess, expected: dict[str, bytes]
) -> None:
    with Client(server.url) as client:
        tables = client.losses.read(
            list(expected), STREAM, quantiles=QUANTILES, return_periods=YEARS, **FILES
        )
        assert {name: table.rows.tobytes() for name, table in tables.items()} == expected
        assert tables["aal"].report == "aal"
        table = client.losses.read("ept", STREAM, return_periods=YEARS, **FILES)
        assert table.rows.tobytes() == expected["ept"]
        assert table.rows.dtype == REPORTS["ept"].dtype(4)


@needs_service
@pytest.mark.parametrize("mode", ["parts", "duplex", "whole"])
@pytest.mark.parametrize("comes_once", [True, False])
def test_cuts_leave_no_trace(
    connect: Connect,
    server: ServerProcess,
    expected: dict[str, bytes],
    mode: Any,  # noqa: ANN401 - a literal
    comes_once: bool,
) -> None:
    source: Any = iter([STREAM[:1000], STREAM[1000:]]) if comes_once else STREAM
    with (
        cutting(server, 4, cuts=5, limit=len(STREAM) // 2) as proxy,
        connect(proxy.url, retries=30) as client,
    ):
        tables = client.losses.read(["splt", "aal"], source, mode=mode, part_size=700, **FILES)
        assert proxy.cuts
    for name, table in tables.items():
        assert table.rows.tobytes() == expected[name]


@needs_service
def test_tables_without_rows_have_columns(server: ServerProcess) -> None:
    missing = pytest.warns(UserWarning, match="is a partition missing")
    with Client(server.url) as client, missing:
        tables = client.losses.read(["melt", "aal"], STREAM[:12], **FILES)
    for name, table in tables.items():
        assert len(table) == 0
        assert table.rows.dtype == REPORTS[name].dtype(4)


@needs_service
def test_a_command_that_fails_has_no_report_of_a_run(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(STREAM[:-40])
    command = ["sh", "-c", f"cat {tmp_path / 'in'}; exit 1"]
    with Client(server.url) as client, pytest.raises(ProducerFailed):
        client.losses.read("aal", exec=command, **FILES)


@needs_service
def test_a_refusal_says_what_is_missing(server: ServerProcess) -> None:
    with Client(server.url) as client, pytest.raises(ProblemError) as caught:
        client.losses.read("aal", STREAM)
    assert caught.value.code == "report"
    assert caught.value.hint == "Add occurrence=Path(…)"


@needs_service
def test_the_asynchronous_client_reads_the_same(
    server: ServerProcess, expected: dict[str, bytes]
) -> None:
    async def read() -> dict[str, ReportTable]:
        async with AsyncClient(server.url) as client:
            reports = ["splt", "alct"]
            tables: dict[str, ReportTable] = await client.losses.read(
                reports, STREAM, confidence=0.95, **FILES
            )
            return tables | {"aal": await client.losses.read("aal", STREAM, **FILES)}

    for name, table in asyncio.run(read()).items():
        assert table.rows.tobytes() == expected[name]


@needs_service
def test_the_command_takes_inputs_from_files(
    server: ServerProcess, expected: dict[str, bytes], tmp_path: Path
) -> None:
    files = FILES | {
        "in": STREAM,
        "return_periods": encode_return_periods(ReturnPeriods(np.array(YEARS, np.int32)), "csv"),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for years in (str(tmp_path / "return_periods"), "9,5,2"):
        command = [sys.executable, "-m", "app.client", "post", str(tmp_path / "in")]
        command += ["--url", server.url, "--report", "ept,psept", "--format", "bin"]
        command += ["--occurrence", str(tmp_path / "occurrence"), "--return-periods", years]
        command += ["--periods", str(tmp_path / "periods"), "-o", str(tmp_path / "out"), "--force"]
        subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
        for name in WITH_YEARS:
            assert (tmp_path / "out" / f"{name}.bin").read_bytes() == expected[name]


# -- libraries -----------------------------------------------------------------------------

TABLE = ReportTable("melt", np.array([(1, 0.5), (2, 1.5)], [("EventId", "<i4"), ("Mean", "<f4")]))


def test_a_table_becomes_an_arrow_table() -> None:
    table = TABLE.to_arrow()
    assert [str(kind) for kind in table.schema.types] == ["int32", "float"]
    assert table.to_pylist() == [{"EventId": 1, "Mean": 0.5}, {"EventId": 2, "Mean": 1.5}]


@pytest.mark.parametrize(("library", "method"), [("pandas", "to_pandas"), ("polars", "to_polars")])
def test_data_frames_are_made_of_contiguous_columns(
    monkeypatch: pytest.MonkeyPatch, library: str, method: str
) -> None:
    """By whichever library is there: here, a module that keeps what it is given."""
    module = ModuleType(library)
    monkeypatch.setattr(module, "DataFrame", dict, raising=False)
    monkeypatch.setitem(sys.modules, library, module)
    frame = getattr(TABLE, method)()
    assert {name: column.tolist() for name, column in frame.items()} == {
        "EventId": [1, 2],
        "Mean": [0.5, 1.5],
    }
    assert all(column.flags.c_contiguous for column in frame.values())


def test_a_library_that_is_missing_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError):
        TABLE.to_polars()
