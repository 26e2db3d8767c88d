"""Runs whose losses are uploaded to a service: the same outputs, and faults as loud."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.client import Client
from app.command.main import main
from app.oasis.runner import write_runner
from app.state.api_keys import digest_key
from tests.app.harness import wait_until
from tests.oasis_runs import RUN, copy_run, edit_settings, only_gul, streams
from tests.server_process import ROOT, ServerProcess

from .oasislmf_standin import load_runner

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

KEY = "a-key-of-the-modeller-0123456789"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(
        tmp_path_factory.mktemp("server"), api_keys=f"modeller:{digest_key(KEY)}"
    )
    yield process
    process.kill()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner whose commands are those of this tree."""
    folder = tmp_path_factory.mktemp("package")
    commands = {}
    for name, module in (("thalweg-server", "app.command"), ("thalweg", "app.client")):
        commands[name] = folder / name
        commands[name].write_text(
            f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n'
        )
        commands[name].chmod(0o755)
    server, client = commands["thalweg-server"], commands["thalweg"]
    return write_runner(folder / "model_of_test", server=server, client=client)


@pytest.fixture
def runner(package: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    monkeypatch.setenv("THALWEG_OASIS_URL", server.url)
    monkeypatch.setenv("THALWEG_KEY", KEY)
    return load_runner(package, monkeypatch)


def small(document: dict[str, Any]) -> None:
    """Two sets of gul with options of their own, one of all kinds of tables, joined."""
    only_gul(document)
    document["join_summary_info"] = True
    first, second = document["gul_summaries"]
    wanted = ("elt_sample", "elt_quantile", "alt_meanonly", "return_period_file")
    curves = ("ept_full_uncertainty_aep", "alct_convergence", "alt_period")
    first["ord_output"] = dict.fromkeys([*wanted, *curves], True)
    second["ord_output"] = dict.fromkeys(["plt_moment", "ept_mean_sample_oep", *curves], True)
    second["ord_output"] |= {"alct_confidence": 0.9, "parquet_format": True}


def outputs(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (directory / "output").iterdir()
        if path.suffix in {".csv", ".parquet"} and "summary-info" not in path.name
    }


def expected(tmp_path: Path, change: Callable[[dict[str, Any]], None] | None) -> dict[str, bytes]:
    """Outputs that are computed here, from the same streams."""
    local = copy_run(tmp_path / "local", change)
    document = json.loads((local / "output" / "analysis_settings.json").read_text())
    names = ["gul"] if not document["ri_output"] else ["gul", "il", "ri_IP1", "ri"]
    assert main(["aggregate", "--run-dir", str(local), *streams(names)]) == 0
    return outputs(local)


def start(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(directory)
    (directory / "work").mkdir(exist_ok=True)
    settings: dict[str, Any] = json.loads(Path("output/analysis_settings.json").read_text())
    return settings


def runs_of(server: ServerProcess) -> dict[str, Mapping[str, Any]]:
    with Client(server.url, KEY) as client:
        return {run.id: run.document for run in client.runs.list()}


@pytest.mark.parametrize("change", [small, pytest.param(None, marks=pytest.mark.slow)])
def test_outputs_are_those_of_a_run_here(
    runner: Any,  # noqa: ANN401 - a module
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], None] | None,
) -> None:
    settings = start(copy_run(tmp_path / "run", change), monkeypatch)
    before = runs_of(server)
    runner.run(settings, number_of_processes=2)
    assert outputs(tmp_path / "run") == expected(tmp_path, change)
    new = {ident: run for ident, run in runs_of(server).items() if ident not in before}
    assert {run["state"] for run in new.values()} == {"done"}
    assert not list(Path("work").iterdir())


def light(document: dict[str, Any]) -> None:
    """One table of gul."""
    only_gul(document)
    document["gul_summaries"] = document["gul_summaries"][1:]
    document["gul_summaries"][0]["ord_output"] = {"elt_moment": True, "alt_period": True}


def chunk_params(runner: Any, directory: Path, number: int | None = None) -> dict[str, Any]:  # noqa: ANN401
    settings = json.loads((directory / "output" / "analysis_settings.json").read_text())
    params: dict[str, Any] = runner.bash.bash_params(settings, "chunk.sh", 2)
    work = "work/" if number is None else f"{number}.work/"
    return params | {"process_number": number, "work_dir": work}


def description(directory: Path, chunk: int) -> dict[str, Any]:
    path = directory / f"{chunk}.work" / f"thalweg_service_P{chunk}.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def merge_work(machines: list[Path], target: Path) -> None:
    for chunk, machine in enumerate(machines, 1):
        shutil.copytree(machine / f"{chunk}.work", target / "work", dirs_exist_ok=True)


def test_chunks_of_several_machines_go_to_one_run(
    runner: Any,  # noqa: ANN401 - a module
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = [copy_run(tmp_path / f"machine{number}", light) for number in (1, 2, 3)]
    monkeypatch.chdir(machines[0])
    # The first attempt at a chunk has uploaded part of its stream, which must not count.
    monkeypatch.setattr(runner.bash, "losses", "head -c 20000 {stream}; exit 3")
    with pytest.raises(subprocess.CalledProcessError):
        runner.run_analysis(**chunk_params(runner, machines[0], 1))
    assert not (machines[0] / "1.work" / "thalweg_service_P1.json").exists()
    monkeypatch.setattr(runner.bash, "losses", "cat {stream}")
    for chunk in (2, 1):
        monkeypatch.chdir(machines[chunk - 1])
        runner.run_analysis(**chunk_params(runner, machines[chunk - 1], chunk))
    uploads = [description(machines[chunk - 1], chunk)["uploads"]["gul"] for chunk in (1, 2)]
    assert uploads[0]["run"] == uploads[1]["run"]
    assert uploads[0]["stream"] != uploads[1]["stream"]

    merge_work(machines[:2], machines[2])
    monkeypatch.chdir(machines[2])
    params = chunk_params(runner, machines[2])
    second = Path("work/thalweg_service_P2.json")
    text = second.read_text()
    second.write_text(text.replace(uploads[1]["stream"], "000002-of-another"))
    with pytest.raises(RuntimeError, match="another analysis uses it"):
        runner.run_outputs(**params)
    second.unlink()
    with pytest.raises(RuntimeError, match="chunk 2 of 2 is missing"):
        runner.run_outputs(**params)
    second.write_text(text)
    runner.run_outputs(**params)
    assert outputs(machines[2]) == expected(tmp_path, light)

    # An equal analysis later: its run is another one, as the first is sealed.
    monkeypatch.chdir(machines[0])
    runner.run_analysis(**chunk_params(runner, machines[0], 1))
    again = description(machines[0], 1)["uploads"]["gul"]
    assert again["run"] != uploads[0]["run"]
    merge_work(machines[:2], machines[2])
    monkeypatch.chdir(machines[2])
    with pytest.raises(RuntimeError, match="the chunks of gul are of several runs"):
        runner.run_outputs(**chunk_params(runner, machines[2]))


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        # All blocks that came are whole: only the status of the process tells.
        ("cat {stream}; kill -9 $BASHPID", "cat was killed by signal 9 (SIGKILL)"),
        ("head -c 1001 {stream}", "thalweg ended with status 1"),
    ],
)
def test_losses_that_fail_leave_no_run_and_no_output(
    runner: Any,  # noqa: ANN401 - a module
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: str,
    message: str,
) -> None:
    settings = start(copy_run(tmp_path / "run", light), monkeypatch)
    before = runs_of(server)
    monkeypatch.setattr(runner.bash, "losses", losses)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        runner.run(settings, number_of_processes=1)
    assert message in raised.value.output.decode()
    if "1001" in losses:
        assert "truncated" in Path("log/stderror.err").read_text()
    assert runs_of(server).keys() == before.keys()
    assert not outputs(tmp_path / "run")


def test_a_service_that_is_away_for_a_while_costs_no_loss(
    runner: Any,  # noqa: ANN401 - a module
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = start(copy_run(tmp_path / "run", light), monkeypatch)
    wait = "until [ -e go ]; do sleep 0.05; done"
    halves = f"head -c 20000 {{stream}}; touch half; {wait}; tail -c +20001 {{stream}}"
    monkeypatch.setattr(runner.bash, "losses", halves)
    thread = threading.Thread(
        target=runner.run, args=(settings,), kwargs={"number_of_processes": 2}
    )
    thread.start()
    wait_until(lambda: Path("half").exists() and _has_bytes(server))
    server.kill()
    (tmp_path / "run" / "go").touch()
    server.start()
    thread.join()
    assert outputs(tmp_path / "run") == expected(tmp_path, light)


def _has_bytes(server: ServerProcess) -> bool:
    """Whether a run that is not done has some."""
    with Client(server.url, KEY) as client:
        open_runs = [run for run in client.runs.list() if run.state == "uploading"]
        return any(client.runs.status(run).document["bytes"] for run in open_runs)


def test_whatever_a_service_cannot_do_is_refused_before_losses_are_computed(
    runner: Any,  # noqa: ANN401 - a module
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = start(copy_run(tmp_path / "run", light), monkeypatch)

    def refused(**environ: str) -> str:
        with monkeypatch.context() as changed:
            for name, value in environ.items():
                changed.setenv(name, value)
            with pytest.raises(subprocess.CalledProcessError) as raised:
                runner.run(settings, number_of_processes=2)
        assert not Path("run_kernel.sh").exists()
        output = raised.value.output
        assert isinstance(output, bytes)
        return output.decode()

    assert "the API key is unknown" in refused(THALWEG_KEY="another-key-0123456789abcdef")
    assert "--memory-budget" in refused(THALWEG_AGGREGATE_OPTIONS="--memory-budget 4GB")
    assert "--max-samples" in refused(THALWEG_AGGREGATE_OPTIONS="--max-samples 7")
    options = {"THALWEG_AGGREGATE_OPTIONS": "--format bin --join-summary-info"}
    assert "columns of text" in refused(**options)
    away = {"THALWEG_OASIS_URL": "http://127.0.0.1:1", "THALWEG_OASIS_OPTIONS": "--retries 0"}
    assert "127.0.0.1:1" in refused(**away)
    edit_settings(tmp_path / "run", lambda document: document.update(ri_output=True))
    Path("input/ri_layers.json").unlink()
    assert "no layers of reinsurance" in refused()
    params = chunk_params(runner, tmp_path / "run") | {"full_correlation": True}
    with pytest.raises(RuntimeError, match="full_correlation"):
        runner.run_analysis(**params)
    monkeypatch.setattr(runner, "CLIENT", None)
    with pytest.raises(RuntimeError, match="there is no thalweg command"):
        runner.run(settings, number_of_processes=2)


class SaidCommands:
    """Answers of a service with a run of gul and one of il, whose numbers of events are given."""

    def __init__(self, **events: int) -> None:
        self._events = events

    def aggregate(self, *_arguments: str) -> str:
        runs = [{"name": n, "perspective": n, "create": [n], "digest": n} for n in self._events]
        return json.dumps({"sorted": True, "ignored": [], "runs": runs})

    def run(self, action: str, *arguments: str) -> str:
        if action == "create":
            return arguments[0]
        assert action == "status", "nothing is sealed"
        return json.dumps({"events": self._events[arguments[0]]})


def test_a_perspective_that_lacks_events_of_another_fails_the_run(
    runner: Any,  # noqa: ANN401 - a module
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = chunk_params(runner, copy_run(tmp_path / "run"))

    def finish() -> None:
        runs = runner.ServiceRuns(SaidCommands(gul=120, il=71), params)
        runs.create(runner.script.Streams(params, params["analysis_settings"]))
        runs.finish(str(tmp_path))

    with pytest.raises(RuntimeError, match="numbers of events: gul 120, il 71"):
        finish()
    monkeypatch.setenv("THALWEG_AGGREGATE_OPTIONS", "--differing-events")
    with pytest.raises(AssertionError, match="nothing is sealed"):
        finish()
