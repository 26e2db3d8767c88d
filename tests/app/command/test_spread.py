"""``aggregate --engine`` and ``worker``: what they refuse before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.command import spread
from app.command.main import main
from core.errors import InputError
from tests.app.runs.uploaded import occurrence_csv
from tests.dask_cluster import free_port
from tests.runs import random_run

CASE = random_run(np.random.default_rng(8))
Refusal = Callable[..., str]


@pytest.fixture
def refusal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Refusal:
    (tmp_path / "part.bin").write_bytes(CASE.stream.encode())
    (tmp_path / "occurrence.csv").write_bytes(occurrence_csv(CASE))

    def aggregate(*options: str, stream: str = "part.bin", code: int = 2) -> str:
        begin = ["aggregate", str(tmp_path / stream), "--engine", "dask:tcp://127.0.0.1:1"]
        assert main([*begin, "--no-progress", *options]) == code
        return capfd.readouterr().err

    return aggregate


@pytest.fixture
def whole(tmp_path: Path) -> list[str]:
    periods = ["--no-of-periods", str(CASE.periods)]
    occurrence = ["--occurrence", str(tmp_path / "occurrence.csv"), *periods]
    return ["--reports", "aal", "--engine-dir", str(tmp_path), *occurrence]


def test_rows_are_computed_without_a_cluster(refusal: Refusal) -> None:
    assert "MELT has rows of events, and workers add up whole runs" in refusal("--reports", "melt")


def test_what_workers_need_is_named(refusal: Refusal, whole: list[str], tmp_path: Path) -> None:
    assert "--engine needs --occurrence" in refusal("--reports", "aal")
    assert "leave out --summary-xref" in refusal(*whole, "--summary-xref", "xref.csv")
    without = [option for option in whole if option not in {"--engine-dir", str(tmp_path)}]
    assert "Name a directory that workers see, too" in refusal(*without)
    os.mkfifo(tmp_path / "fifo")
    assert "--engine takes only files" in refusal(*whole, stream="fifo", code=1)


def test_the_directory_of_a_run_is_written_without_a_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["aggregate", "--run-dir", str(tmp_path), "--engine", "dask:tcp://h:1"]) == 2
    assert "--engine does not apply to --run-dir" in capfd.readouterr().err


def test_a_cluster_that_is_not_there_is_named(
    refusal: Refusal, whole: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_ENGINE_WAIT_SECONDS", "0.2")
    assert "the scheduler tcp://127.0.0.1:1 cannot be reached" in refusal(*whole)
    assert "it must be local, dask:tcp://host:port" in refusal(*whole, "--engine", "dask:nowhere")


def test_a_file_that_is_another_one_on_the_worker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part.bin").write_bytes(b"1234")
    path = str(tmp_path / "part.bin")
    for seen in ([4, 1], [5, (tmp_path / "part.bin").stat().st_mtime_ns]):
        with pytest.raises(InputError, match="is another file here"):
            spread.add_up({"files": {path: seen}, "options": {}, "out": ""})
    with pytest.raises(InputError, match="is another file here"):
        spread.add_up({"files": {f"{path}.absent": [4, 1]}, "options": {}, "out": ""})


def test_a_worker_needs_a_scheduler(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["worker"]) == 2
    assert "name a scheduler, as tcp://host:port" in capfd.readouterr().err
    assert main(["worker", "--scheduler", f"127.0.0.1:{free_port()}"]) == 2
    assert "name a scheduler, as tcp://host:port" in capfd.readouterr().err
