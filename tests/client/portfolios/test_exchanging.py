"""Tables that become loss sets, and loss sets as files, by both clients and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.client import ProblemError, SourceError
from app.client.command.main import main
from tests.fault_proxy import GOOD, Cut, FaultProxy, Faults
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

from ..conftest import Connect

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

YLT = b"Period,Loss,Region\n1,5.5,N\n1,2,S\n7,3,N\n"
SELT = b"event_id,summary_id,sample_id,loss\n1,1,1,400\n2,1,1,900\n"
OCCURRENCE = b"event_id,period_no,occ_year,occ_month,occ_day\n1,1,2000,3,1\n2,2,2000,3,1\n"
INFO = b"summary_id,Region\n1,N\n"
LAYER = {"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 100, "ReinsPeril": "EQ"}
TOWER = {"layers": [{**LAYER, "OccLimit": 500}]}
PERILS: dict[str, str | list[int]] = {"EQ": [2], "WW1": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()
    assert not process.failures()


def test_a_table_is_put_with_its_inputs_and_written_back(
    server: ServerProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect(server.url)
    table, info = tmp_path / "in.csv", tmp_path / "info.csv"
    table.write_bytes(SELT)
    info.write_bytes(INFO)
    digest = client.inputs.put("occurrence", OCCURRENCE)
    options: dict[str, Any] = {
        "no_of_periods": 4,
        "samples": 1,
        "currency": "EUR",
        "summary_info": info,
    }
    made = client.portfolios.put("s", table, form="selt", occurrence=digest, **options)
    assert (made.document["periods"], made.document["dimensions"]) == (4, ["Region"])
    again = client.portfolios.put("s", SELT, form="selt", occurrence=OCCURRENCE, **options)
    assert again == made
    out = tmp_path / "out.csv"
    size = client.portfolios.export(made, out)
    assert out.stat().st_size == size
    back = client.portfolios.put("t", out, form="selt", occurrence=OCCURRENCE, **options)
    means = [client.portfolios.query(name, "averages")["aal"].rows for name in ("s", back)]
    assert means[0].tolist() == means[1].tolist()
    client.portfolios.export("s", tmp_path / "ylt.parquet", "ylt")
    assert pq.read_table(tmp_path / "ylt.parquet")["Loss"].to_pylist() == [400, 900]
    client.portfolios.export("s", tmp_path / "years.csv", "climada", sample=1)
    assert (tmp_path / "years.csv").read_text().splitlines()[0] == "year,event_id,at_event"
    client.portfolios.export("s", tmp_path / "stored.arrow", "blocks")
    with pa.ipc.open_stream((tmp_path / "stored.arrow").read_bytes()) as reader:
        assert reader.read_all().num_rows == 2
    client.portfolios.export("s", tmp_path / "when.txt", "occurrence", "csv")
    assert (tmp_path / "when.txt").read_bytes().splitlines()[1].startswith(b"1,1,2000,3,1")


@pytest.mark.parametrize(
    ("form", "ending"), [("selt", "csv"), ("blocks", "arrow"), ("question", "csv")]
)
def test_a_file_that_is_cut_ends_up_whole(
    server: ServerProcess, connect: Connect, tmp_path: Path, form: str, ending: str
) -> None:
    def save(url: str, path: Path) -> None:
        portfolios = connect(url).portfolios
        if form == "question":
            with pytest.warns(UserWarning, match="large has no numerical means"):
                portfolios.save("large", "periods", path)
        else:
            portfolios.export("large", path, form)

    rows = "".join(f"{n},{n % 97 + 1}\n" for n in range(1, 150_001))
    table = f"Period,Loss\n{rows}".encode()
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    client = connect(server.url)
    client.portfolios.put("large", table, form="ylt", no_of_periods=150_000)
    save(server.url, whole)

    def plan(number: int) -> Faults:
        return Faults(cut=Cut("down", 1_900_000, "close")) if number == 0 else GOOD

    with FaultProxy([server.port], plan) as proxy:
        save(proxy.url, cut)
        assert proxy.cuts == 1
        assert proxy.down < whole.stat().st_size + (1 << 20)
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == [cut, whole]


def test_options_of_tables_reach_the_service(server: ServerProcess, connect: Connect) -> None:
    put = connect(server.url).portfolios.put
    twice = YLT + b"7,3,N\n"
    with pytest.raises(ValueError, match="'a/b' is not the name of a loss set"):
        put("a/b", YLT, form="ylt", no_of_periods=9)
    with pytest.raises(ProblemError, match="already in line 4"):
        put("none", twice, form="ylt", no_of_periods=9)
    made = put("y", twice, form="ylt", no_of_periods=9, repeated=True, apart=True)
    assert made.document["rows"] == 4
    header = b"EventId,rate,mean,sd_independent,sd_correlated,exposed_value\n"
    elt: dict[str, Any] = {"form": "elt", "no_of_periods": 50, "samples": 2}
    row = header + b"1,0.5,100,20,10,1000\n"
    one, two = (put(f"e{seed}", row, **elt, seed=seed) for seed in (1, 2))
    assert one.document["digest"] != two.document["digest"]
    with pytest.raises(ProblemError, match="dispersion"):
        put("none", row, **elt, frequency="negative-binomial")
    put("e3", row, **elt, frequency="negative-binomial", dispersion=1.5)


def test_what_is_no_table_is_refused_and_leaves_nothing(
    server: ServerProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect(server.url)
    with pytest.raises(TypeError, match="Did you mean currency"):
        client.portfolios.put("z", YLT, form="ylt", curency="EUR")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="table must be a Path"):
        client.portfolios.put("z", 3, form="ylt")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="absent"):
        client.portfolios.put("z", tmp_path / "absent.csv", form="ylt")
    with pytest.raises(ProblemError, match="Los"):
        client.portfolios.put("z", b"Period,Los\n1,2\n", form="ylt", no_of_periods=9)
    with pytest.raises(ProblemError, match="form"):
        client.portfolios.put("z", YLT, form="xlt", no_of_periods=9)
    with pytest.raises(ProblemError, match="no loss set"):
        client.portfolios.export("z", tmp_path / "z.csv")
    with pytest.raises(ProblemError, match="format"):
        client.portfolios.export("z", tmp_path / "z.txt")
    assert list(tmp_path.iterdir()) == []


def test_perils_are_asked_with_the_programme(server: ServerProcess, connect: Connect) -> None:
    client = connect(server.url)
    options: dict[str, Any] = {"no_of_periods": 4, "samples": 1, "occurrence": OCCURRENCE}
    client.portfolios.put("p", SELT, form="selt", **options)
    answer = client.portfolios.query("p", "recoveries", programme=TOWER, perils=PERILS)
    assert answer["recoveries"].rows["CededLoss"].tolist() == [500]
    assert answer["recoveries"].rows["Period"].tolist() == [2]


def test_the_command_imports_exports_and_asks_of_perils(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in ("in.csv", "occurrence.csv", "t.json", "p.json")}
    for path, data in zip(files.values(), (SELT, OCCURRENCE), strict=False):
        path.write_bytes(data + (b"3,1,1,5\n" if data is SELT else b""))
    files["t.json"].write_text(json.dumps(TOWER))
    files["p.json"].write_text(json.dumps(PERILS))

    def thalweg(*words: str | Path) -> tuple[str, str]:
        assert main(["--url", server.url, "portfolio", *map(str, words)]) == 0
        return capsys.readouterr()

    words = ("--form", "selt", "--occurrence", files["occurrence.csv"], "--no-of-periods", "4")
    made, told = thalweg("import", files["in.csv"], "--name", "c", *words, "--currency", "EUR")
    assert made == "c\n"
    assert told.count("left out") == 1
    assert "left out: 1 events that never happen" in told
    out = tmp_path / "out.csv"
    thalweg("export", "c", "--form", "splt", "-o", out)
    assert len(out.read_text().splitlines()) == 3
    assert main(["--url", server.url, "portfolio", "export", "c", "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    thalweg("export", "c", "--form", "openquake", "--sample", "1", "-o", out, "--force")
    assert out.read_text().splitlines()[0] == "event_id,year,loss,SummaryId"
    thalweg("export", "c", "-o", out, "--force", "--format", "ndjson")
    assert json.loads(out.read_text().splitlines()[0])["EventId"] == 1
    layers, _ = thalweg("price", files["t.json"], "c", "--perils", files["p.json"])
    assert layers.splitlines()[1].startswith("1,2,125.0")
    files["p.json"].write_text("[")
    wrong = ["price", str(files["t.json"]), "c", "--perils", str(files["p.json"])]
    assert main(["--url", server.url, "portfolio", *wrong]) == 2
    assert "p.json is not JSON" in capsys.readouterr().err
