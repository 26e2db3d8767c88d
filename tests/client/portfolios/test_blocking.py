"""Loss sets and questions about them, by both clients and the command, of the real service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, ProblemError
from app.client.command.main import main
from tests.app.portfolio.book import Book
from tests.scale import PURE_PYTHON
from tests.server_process import ServerProcess

from ..conftest import Connect

pytestmark = pytest.mark.skipif(PURE_PYTHON, reason="needs the service at its speed")

INFO = b"summary_id,Region\n1,N\n2,S\n4,N\n"
LAYER = {"ReinsNumber": 1, "ReinsName": "cat", "ReinsType": "CXL", "OccAttachment": 200}
TOWER = {"layers": [{**LAYER, "OccLimit": 500}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()
    assert not process.failures()


@pytest.fixture(scope="module")
def run(server: ServerProcess) -> str:
    book = Book()
    with Client(server.url) as client:
        made = client.runs.create(
            "gul", ["aal", "ept"], inputs={"occurrence": book.occurrence()}, no_of_periods=20
        )
        client.runs.upload(made, book.stream())
        with pytest.warns(UserWarning, match="never occur|in no stream"):
            client.runs.seal(made)
        return made.id


def test_a_loss_set_is_made_asked_and_deleted(
    server: ServerProcess, run: str, connect: Connect
) -> None:
    client = connect(server.url)
    made = client.portfolios.create(run, name="a", currency="EUR", summary_info=INFO)
    assert client.portfolios.create(run, name="a", currency="EUR", summary_info=INFO) == made
    assert made.id in [each.id for each in client.portfolios.list()]
    assert client.portfolios.get("a").document["dimensions"] == ["Region"]
    answer = client.portfolios.query(made, "averages", group_by=["Region"])
    rows = answer["aal"].rows
    assert rows["Region"].tolist() == ["N", "S", "N", "S"]
    assert rows.dtype["MeanLoss"] == np.float64
    assert answer.etag is not None
    assert answer.document["report"] == "averages"
    assert len(answer["aal"].to_pandas()) == 4
    high: dict[str, Any] = {
        "layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 1e12, "OccLimit": 1}]
    }
    ceded = client.portfolios.query(made, "recoveries", programme=high)["recoveries"].rows
    names = ["Layer", "Period", "SampleId", "CededLoss", "ReinstatementPremium"]
    assert (len(ceded), list(ceded.dtype.names or ())[:5]) == (0, names)
    assert [ceded.dtype[name].str for name in ("Layer", "CededLoss")] == ["<i8", "<f8"]
    half = client.portfolios.query([{"id": "a", "weight": 0.5}], "averages")
    whole = client.portfolios.query("a", "averages")
    assert half["aal"].rows["MeanLoss"] == pytest.approx(whole["aal"].rows["MeanLoss"] / 2)
    client.portfolios.delete("a")
    with pytest.raises(ProblemError, match="no loss set"):
        client.portfolios.get("a")


def test_answers_are_saved_in_the_format_of_their_ending(
    server: ServerProcess, run: str, connect: Connect, tmp_path: Path
) -> None:
    client = connect(server.url)
    client.portfolios.create(run, name="b")
    path = tmp_path / "curves.csv"
    size = client.portfolios.save("b", "curves", path, group_by=["SummaryId"])
    assert path.stat().st_size == size
    with pytest.warns(UserWarning, match="never occur|in no stream|not in the stream"):
        client.runs.report(run, "ept", tmp_path / "ept.csv")
    assert path.read_bytes() == (tmp_path / "ept.csv").read_bytes()


def test_what_is_no_question_is_refused_before_it_is_sent(connect: Connect) -> None:
    client = connect("http://127.0.0.1:1")
    with pytest.raises(TypeError, match="group_bye"):
        client.portfolios.query("a", "averages", group_bye=["Region"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="loss set"):
        client.portfolios.query([3], "averages")  # type: ignore[list-item]
    with pytest.raises(ValueError, match="format"):
        client.portfolios.fetch("a", "averages", "xls")


def test_the_command_makes_asks_prices_and_deletes(
    server: ServerProcess,
    run: str,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    info, tower = tmp_path / "info.csv", tmp_path / "tower.json"
    info.write_bytes(INFO)
    tower.write_text(json.dumps(TOWER))

    def thalweg(*words: str) -> str:
        assert main(["--url", server.url, "portfolio", *words]) == 0
        return capsysbinary.readouterr().out.decode()

    made = thalweg("create", run, "--name", "c", "--currency", "EUR", "--summary-info", str(info))
    assert made == "c\n"
    assert "c  EUR" in thalweg("list")
    assert json.loads(thalweg("show", "c"))["periods"] == 20
    table = thalweg(
        "query", "c", "--report", "averages", "--where", "Region=S", "--group-by", "Region"
    )
    assert table.splitlines()[0] == "SummaryId,SampleType,MeanLoss,SDLoss,Region"
    assert table.splitlines()[1].endswith(",S")
    without = thalweg(
        "query", "c", "--report", "averages", "--where", "Region!=N", "--group-by", "Region"
    )
    assert without == table
    keys = thalweg("query", "c", "--report", "contributions", "--table", "keys")
    assert keys.startswith("EPType,ReturnPeriod,Catalogue,Id")
    layers = thalweg("price", str(tower), "c").splitlines()
    assert layers[0].startswith("Layer,SampleType,ExpectedLoss")
    assert layers[1].endswith(",cat")
    out = tmp_path / "net.csv"
    asked = ["query", "c", "--report", "curves", "--of", "net", "--programme", str(tower)]
    assert thalweg(*asked, "--return-periods", "10,5", "-o", str(out)) == ""
    assert out.read_text().startswith("SummaryId,EPCalc")
    assert main(["--url", server.url, "portfolio", *asked, "-o", str(out)]) == 2
    assert b"--force" in capsysbinary.readouterr().err
    half = thalweg("query", "c*0.5")
    assert (json.loads(half)["report"], half[-2:]) == ("summary", "}\n")
    with pytest.raises(SystemExit):
        thalweg("price", str(tower), "c", "--format", "svg")
    thalweg("delete", "c")
    assert thalweg("list").find("c  EUR") < 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--where", "Region"], "NAME=VALUE"),
        (["x", "--group-by", "Region,Region"], "Region is asked for twice"),
        (["x", "--rate", "USD=0,9"], "--rate USD=0,9: '0,9' is not a number such as 0.9"),
        (["x", "--rate", "USD=1", "--rate", "USD=2"], "--rate has USD twice"),
        (["x", "--repeat", "y"], "--repeat y: it is none of the sets"),
        (["x*1_0"], "x*1_0: '1_0' is not a number such as 0.9"),
        (["x", "--return-periods", "0.5"], "whole years from 1 on, such as 250,100,50"),
        (["x", "--return-periods", "100,0"], "whole years from 1 on, such as 250,100,50"),
        (["x", "--months", "6-8,13"], "filter.months[3] must be at most 12"),
        (["x", "--months", "11-2,13"], "filter.months[4] must be at most 12"),
        (["x", "--months", "14-2"], "14-2 ends before it begins"),
        (
            ["x", "--programme", '{"layers": [{"OccLimit": 1, "OccLimit": 5}]}'],
            "'OccLimit' is given twice: give it once",
        ),
        (["x*50%"], "x*50%: '50%' is not a number such as 0.9"),
        (["x*1_0"], "'1_0' is not a number"),
        (["x", "--return-periods", "-100"], "are no return periods: whole years from 1 on"),
        (["x"], "thalweg portfolio list prints those there are"),
    ],
)
def test_a_mistake_in_the_command_says_what_is_meant(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["--url", server.url, "portfolio", "query", *words]) != 0
    assert said in capsys.readouterr().err
