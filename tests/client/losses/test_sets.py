"""Reports of summary sets through the client: tables, rows and files of each set."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import AsyncClient, Client, ProblemError
from app.client.losses.requests import LossRequests
from core.losses.inputs import (
    encode_occurrence,
    encode_summary_map,
    encode_summary_xref,
)
from core.losses.reports import REPORTS
from core.losses.summaries import SummarySets
from tests.app.losses.test_posted_sets import (
    EVENTS,
    INFO,
    NUMBERS,
    OCCURRENCE,
    SETS,
    encoded,
    offline,
    stream,
)
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess
from tests.streams import Stream

from ..running import ROOT

pytestmark = [
    pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed"),
    pytest.mark.filterwarnings("ignore:.* have exposure 0"),
]

assert SETS.map is not None
XREF = encode_summary_xref(SETS.xref, "bin")
MAP = encode_summary_map(SETS.map)
TIMES = encode_occurrence(OCCURRENCE, "bin")
STREAM = stream()
BOTH = SummarySets(SETS.xref, None, SETS.map)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()
    assert not process.failures()


@pytest.mark.filterwarnings("ignore:. events of the")
def test_tables_come_by_set(server: ServerProcess) -> None:
    expected = offline(["melt", "aal"], BOTH, STREAM)
    with Client(server.url) as client:
        tables = client.losses.read(
            ["melt", "aal"], STREAM, summary_xref=XREF, summary_map=MAP, occurrence=TIMES
        )
        melt = client.losses.read(
            "melt", STREAM, summary_xref=XREF, summary_map=MAP, sets=[4], part_size=300
        )
    assert {name: sorted(of_sets) for name, of_sets in tables.items()} == {
        "melt": [1, 4],
        "aal": [1, 4],
    }
    # Rates of MELT are those of the occurrences, as offline where these are given.
    for set_id in (1, 4):
        table = tables["aal"][set_id]
        assert (table.report, table.summary_set) == ("aal", set_id)
        assert table.rows.tobytes() == expected[set_id, "aal"].tobytes()
        assert table.to_arrow().num_rows == len(table)
        assert tables["melt"][set_id].rows.tobytes() == expected[set_id, "melt"].tobytes()
    alone = offline(["melt"], SummarySets(SETS.xref, [4], SETS.map), STREAM)
    assert {k: t.rows.tobytes() for k, t in melt.items()} == {4: alone[4, "melt"].tobytes()}


def test_a_set_without_rows_has_an_empty_table(server: ServerProcess) -> None:
    with Client(server.url) as client:
        tables = client.losses.read("melt", STREAM[:8], summary_xref=XREF)
    assert {k: len(t) for k, t in tables.items()} == {1: 0, 4: 0}
    assert tables[1].rows.dtype == REPORTS["melt"].dtype(4)


@pytest.mark.parametrize("mode", ["parts", "whole", "duplex"])
def test_rows_name_their_set(server: ServerProcess, mode: Any) -> None:  # noqa: ANN401 - a mode
    expected = offline(["melt", "events"], SummarySets(SETS.xref), STREAM)
    found: dict[tuple[int, str], bytes] = {}
    with Client(server.url) as client:
        answer = client.losses.post(
            ("melt", "events"), STREAM, summary_xref=XREF, mode=mode, part_size=500
        )
        for report, set_id, rows in answer:
            found[set_id, report] = found.get((set_id, report), b"") + rows.tobytes()
        pairs = client.losses.post("melt", STREAM, summary_xref=XREF, sets="1")
        assert {set_id for set_id, _ in pairs} == {1}
    assert found == {key: rows.tobytes() for key, rows in expected.items()}


def test_the_asynchronous_client_has_the_same_tables(server: ServerProcess) -> None:
    async def read() -> dict[int, bytes]:
        async with AsyncClient(server.url) as client:
            tables = await client.losses.read("melt", STREAM, summary_xref=XREF)
            return {set_id: table.rows.tobytes() for set_id, table in tables.items()}

    expected = offline(["melt"], SummarySets(SETS.xref), STREAM)
    assert asyncio.run(read()) == {k: rows.tobytes() for (k, _), rows in expected.items()}


@pytest.mark.filterwarnings("ignore:. events of the")
def test_the_end_tells_the_bound_and_events_of_one_side(server: ServerProcess) -> None:
    with Client(server.url) as client:
        answer = client.losses.post("aal", STREAM, summary_xref=XREF, occurrence=TIMES)
        assert list(answer)
    end = answer.end
    assert end is not None
    assert end.events_without_occurrence == 2
    assert end.events_only_in_occurrence == len(NUMBERS) - (EVENTS - 2)
    assert end.ledger_bound is not None
    assert end.ledger_bound["summaries"] == 3


def test_bin_is_saved_by_set_in_one_pass(server: ServerProcess, tmp_path: Path) -> None:
    reports = ["selt", "melt"]
    expected = offline(reports, SummarySets(SETS.xref), STREAM)
    with Client(server.url) as client:
        end = client.losses.save(
            reports, STREAM, tmp_path, "bin", summary_xref=XREF, sets=[1, 4], part_size=700
        )
    assert end.events == EVENTS
    names = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert names == {f"S{k}_{name}.bin": rows.tobytes() for (k, name), rows in expected.items()}


def test_bin_needs_to_know_its_sets(server: ServerProcess, tmp_path: Path) -> None:
    with Client(server.url) as client, pytest.raises(ValueError, match="needs the sets"):
        client.losses.save("melt", STREAM, tmp_path / "m.bin", "bin", summary_xref=XREF)
    with pytest.raises(ValueError, match="sets must look like"):
        LossRequests(("melt",), "frames", {"sets": "1-2"}, None)


def test_several_sets_in_one_table_are_refused(server: ServerProcess, tmp_path: Path) -> None:
    with Client(server.url) as client, pytest.raises(ProblemError) as caught:
        client.losses.save("melt", STREAM, tmp_path / "m.csv", "csv", summary_xref=XREF)
    assert caught.value.code == "option"
    assert not list(tmp_path.iterdir())


def test_a_hundred_thousand_summaries(server: ServerProcess) -> None:
    count = 100_000
    rows = np.ones((count, 3), "<i4")
    rows[:, 0] = rows[:, 1] = np.arange(1, count + 1)
    block = np.array([1, 0, -3, 0, -1, 0, 1, 0, 0, 0], "<i4")
    block[[3, 5, 7]] = np.array([1.0, 2.0, 2.0], "<f4").view("<i4")
    blocks = np.tile(block, (count, 1))
    blocks[:, 1] = rows[:, 0]
    data = Stream("loss", 1, 4, ()).encode() + blocks.tobytes()
    with Client(server.url) as client:
        tables = client.losses.read("melt", data, summary_xref=rows.tobytes())
    assert np.unique(tables[1].rows["SummaryId"]).tolist() == rows[:, 1].tolist()


# -- the command ---------------------------------------------------------------------------


def post(server: ServerProcess, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.client", "post", *args, "--url", server.url]
    return subprocess.run(
        [*command, "--no-progress"], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"items": STREAM, "xref": XREF, "map": MAP, "info": INFO, "times": TIMES}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return {name: str(tmp_path / name) for name in contents}


def test_the_command_saves_a_file_for_each_set(
    server: ServerProcess, files: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--summary-xref", files["xref"], "--summary-map", files["map"], "--sets", "1,4"]
    options += ["--occurrence", files["times"], "--report", "melt,aal", "-o", str(out)]
    done = post(server, files["items"], *options, "--format", "csv")
    assert done.returncode == 0, done.stderr
    expected = offline(["melt", "aal"], BOTH, STREAM)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        f"S{k}_{name}.csv": encoded("csv", name, rows) for (k, name), rows in expected.items()
    }
    assert "3 events of the occurrences are not in the stream" in done.stderr


def test_the_command_joins_descriptions(
    server: ServerProcess, files: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "selt.csv"
    options = ["--summary-xref", files["xref"], "--sets", "1", "--summary-info", files["info"]]
    done = post(server, files["items"], *options, "--report", "selt", "-o", str(out))
    assert done.returncode == 0, done.stderr
    rows = offline(["selt"], SummarySets(SETS.xref, [1]), STREAM)[1, "selt"]
    assert out.read_bytes() == encoded("csv", "selt", rows, 4, INFO)


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_command_saves_a_picture(
    server: ServerProcess, files: dict[str, str], tmp_path: Path, form: str
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"ept.{form}"
    options = ["--summary-xref", files["xref"], "--sets", "4", "--occurrence", files["times"]]
    options += ["--theme", "dark", "--currency", "EUR", "--perspective", "il", "--plot-tvar"]
    done = post(server, files["items"], *options, "--report", "ept", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().startswith(b"<?xml" if form == "svg" else b"\x89PNG")


def test_a_report_without_a_picture_is_refused(
    server: ServerProcess, files: dict[str, str], tmp_path: Path
) -> None:
    options = ["--summary-xref", files["xref"], "--sets", "4", "--report", "melt"]
    done = post(server, files["items"], *options, "-o", str(tmp_path / "melt.svg"))
    assert done.returncode == 2
    assert "no picture of MELT" in done.stderr
