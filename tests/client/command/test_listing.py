"""What one list shows, what shells complete, and the examples of help texts."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.client.command.completion import EXAMPLES, leaves
from app.client.command.main import _parsed, build_parser, main
from app.client.errors import ProblemError
from app.client.runs.requests import Run

from ..fakes.service import FakeService

RUN = {"id": "r7", "state": "open", "perspective": "gul", "reports": ["melt", "ept"]}


@pytest.fixture
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of runs and no pipelines, beside the datasets of the small service."""
    runs = [Run.parse({**RUN, "id": f"r{k}"}) for k in range(3)]
    monkeypatch.setattr("app.client.runs.blocking.Runs.list", lambda _: iter(runs))
    monkeypatch.setattr("app.client.client.Client.pipelines", lambda _: ["p1"])
    spec = {"stages": [{"op": "source"}, {"op": "batch"}]}
    monkeypatch.setattr("app.client.client.Client.pipeline_info", lambda *_: {"spec": spec})


@pytest.mark.usefixtures("_runs")
def test_one_list_of_all_pages(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--url", service.url]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    runs = [["run", f"r{k}"] for k in range(3)]
    assert lines == [*runs, *[["dataset", k] for k in ("a", "b", "scan")], ["pipeline", "p1"]]


@pytest.mark.usefixtures("_runs")
def test_long_lines_and_json(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "runs", "-l", "--url", service.url]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "run",
        "r0",
        "open",
        "gul",
        "melt,ept",
    ]
    assert main(["ls", "pipelines", "-l", "--url", service.url]) == 0
    assert capsys.readouterr().out.split()[2:] == ["source", "|", "batch"]
    assert main(["ls", "--json", "--url", service.url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in found["runs"]] == ["r0", "r1", "r2"]
    assert found["datasets"][2] == {"id": "scan"}


@pytest.mark.usefixtures("_runs")
def test_datasets_say_their_shape(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.datasets.blocking.Datasets.list", lambda _: ["scan"])
    assert main(["ls", "datasets", "-l", "--url", service.url]) == 0
    assert "scan" in (line := capsys.readouterr().out)
    assert line.endswith("(2, 3) frames of (4, 3) <u2, stored as >u2\n")


def test_a_broken_dataset_hides_no_other(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.datasets.blocking.Datasets.list", lambda _: ["gone", "scan"])
    assert main(["ls", "datasets", "-l", "--url", service.url]) == 0
    broken, whole = capsys.readouterr().out.splitlines()
    assert broken.split()[:3] == ["dataset", "gone", "[not-found]"]
    assert whole.endswith("(2, 3) frames of (4, 3) <u2, stored as >u2")
    assert main(["ls", "datasets", "-l", "--json", "--url", service.url]) == 0
    found = json.loads(capsys.readouterr().out)["datasets"]
    assert [(row["id"], row.get("problem", {}).get("code")) for row in found] == [
        ("gone", "not-found"),
        ("scan", None),
    ]


def test_a_key_for_one_kind_lists_that(
    service: FakeService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> Any:  # noqa: ANN401
        raise ProblemError(403, {"code": "forbidden", "detail": "the key has no scope for it"})

    monkeypatch.setattr("app.client.runs.blocking.Runs.list", refuse)
    monkeypatch.setattr("app.client.client.Client.pipelines", refuse)
    assert main(["ls", "--url", service.url]) == 0
    told = capsys.readouterr()
    assert told.out.split()[1::2] == ["a", "b", "scan"]
    assert "runs are not listed: the key has no scope for it" in told.err
    assert main(["ls", "runs", "--url", service.url]) == 1


COMMANDS = list(leaves(build_parser()))


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog)
def test_the_example_of_a_command_is_one_of_it(parser: argparse.ArgumentParser) -> None:
    text = " ".join(parser.format_help().split("example: ")[1].split())
    program, *words = shlex.split(text.partition(" > ")[0])
    args = _parsed(words)
    assert program == "thalweg"
    assert args.parser.prog == parser.prog


def test_no_example_is_of_no_command() -> None:
    assert {parser.prog.removeprefix("thalweg ") for parser in COMMANDS} == set(EXAMPLES)


def test_completion_without_its_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "needs shtab: pip install 'thalweg[completion]'" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "--summary-xref" in script
    if shell == "bash":
        (tmp_path / "script").write_text(script)
        asked = "COMP_WORDS=(thalweg run up); COMP_CWORD=2; _shtab_thalweg thalweg up run"
        command = f"source {tmp_path}/script; {asked}; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout == "upload\n"
