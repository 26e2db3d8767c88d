"""Run directories that lack what their settings need are refused before a byte is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.command.main import main
from app.oasis.directory import RunDirectory
from core.errors import InputError
from tests.oasis_runs import RUN, copy_run, edit_settings, only_gul, streams
from tests.server_process import ROOT

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

Break = Callable[[Path], object]


def _keep_key(directory: Path, key: str) -> None:
    """Ask for one output of gul, so that one message is possible."""

    def change(document: dict[str, Any]) -> None:
        only_gul(document)
        keys = {key: True, "return_period_file": key.startswith("ept")}
        document["gul_summaries"] = [{"id": 1, "ord_output": keys}]

    edit_settings(directory, change)


def _without(directory: Path, *names: str) -> None:
    for folder in ("input", "static"):
        for name in names:
            (directory / folder / name).unlink(missing_ok=True)


def _lacks(key: str, *names: str) -> Break:
    def damage(directory: Path) -> None:
        _keep_key(directory, key)
        _without(directory, *names)

    return damage


def _set_without_xref(directory: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        only_gul(document)
        document["gul_summaries"].append({"id": 7, "ord_output": {"elt_moment": True}})

    edit_settings(directory, change)


def _priority(directory: Path) -> None:
    edit_settings(directory, lambda document: document.update(ri_inuring_priorities=[3]))


def _no_layer_folder(directory: Path) -> None:
    (directory / "input" / "RI_2").rename(directory / "input" / "elsewhere")


BREAKS: dict[str, tuple[Break, str]] = {
    "plt without occurrences": (
        _lacks("plt_moment", "occurrence.bin"),
        "mplt of gul set 1 need occurrence.bin",
    ),
    "qelt without quantiles": (
        _lacks("elt_quantile", "quantile.bin", "quantile.csv"),
        "qelt of gul set 1 need quantile.bin or quantile.csv",
    ),
    "ept without return periods": (
        _lacks("ept_full_uncertainty_aep", "returnperiods.bin", "returnperiods.csv"),
        "ept of gul set 1 need returnperiods.bin",
    ),
    "no xref": (
        _lacks("elt_moment", "gulsummaryxref.bin", "gulsummaryxref.csv"),
        "summary sets 1 of gul are asked for, but there is no xref",
    ),
    "a set without xref": (_set_without_xref, "there is no summary set 7"),
    "an inuring priority that does not exist": (_priority, "asks for 3, which does not exist"),
    "a layer without folder": (_no_layer_folder, "layer 2 is in RI_2, but there is no such folder"),
    "an unknown key": (
        lambda directory: _keep_key(directory, "elt_momment"),
        "ord_output has no key 'elt_momment'. Is it elt_moment?",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    damage, message = BREAKS[name]
    directory = copy_run(tmp_path / "run")
    damage(directory)
    before = sorted(path.name for path in (directory / "output").iterdir())
    names = (
        ("gul", "il", "ri_IP1", "ri") if name.startswith(("an inuring", "a layer")) else ("gul",)
    )
    assert main(["aggregate", "--run-dir", str(directory), *streams(names)]) == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in (directory / "output").iterdir()) == before


def test_paths_of_another_machine_count_by_their_last_part(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run")
    path = directory / "input" / "ri_layers.json"
    layers = json.loads(path.read_text())
    for number, layer in layers.items():
        layer["directory"] = f"/home/somebody/runs/77/input/RI_{number}"
    path.write_text(json.dumps(layers))
    run = RunDirectory(directory)
    assert [losses.name for losses in run.losses()] == ["gul", "il", "ri_IP1", "ri"]
    assert {run.sets(losses).summaries for losses in run.losses()} == {17}


def test_layers_may_be_beside_the_inputs(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run")
    for number in (1, 2):
        (directory / "input" / f"RI_{number}").rename(directory / f"RI_{number}")
    run = RunDirectory(directory)
    assert run.sets(run.losses(["ri"])[-1]).summaries == 17


def test_settings_as_given_serve_where_none_are_resolved(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run")
    (directory / "output" / "analysis_settings.json").unlink()
    run = RunDirectory(directory)
    assert run.settings.source == str(directory / "analysis_settings.json")
    (directory / "analysis_settings.json").unlink()
    (directory / "input" / "analysis_settings.json").unlink()
    with pytest.raises(InputError, match=r"has no analysis_settings\.json"):
        RunDirectory(directory)


def test_folders_that_are_no_run_directories(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run directory"):
        RunDirectory(tmp_path)


@pytest.mark.parametrize(("variable", "value"), [("OASIS_FLOAT", "f2"), ("OASIS_INT", "i8")])
def test_widths_that_are_not_supported_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, value)
    directory = copy_run(tmp_path / "run", only_gul)
    assert main(["aggregate", "--run-dir", str(directory), *streams(["gul"])]) == 1
    assert f"{variable}={value} is not supported" in capsys.readouterr().err


def test_events_that_do_not_ascend_are_noticed(tmp_path: Path) -> None:
    directory = copy_run(tmp_path / "run")
    assert RunDirectory(directory).ascends
    path = directory / "input" / "events.bin"
    np.fromfile(path, "<i4")[::-1].tofile(path)
    assert not RunDirectory(directory).ascends


def test_identity_is_that_of_settings_and_inputs_and_of_no_place(tmp_path: Path) -> None:
    first, second = (RunDirectory(copy_run(tmp_path / name)) for name in "ab")
    gul = first.losses(["gul"])[0]
    assert first.digest(gul) == second.digest(gul)
    changed = copy_run(tmp_path / "c")
    edit_settings(
        changed, lambda d: d["gul_summaries"][0]["ord_output"].update(alct_confidence=0.5)
    )
    assert RunDirectory(changed).digest(gul) != first.digest(gul)
    (second.path / "input" / "periods.bin").unlink()
    (second.path / "static" / "periods.bin").unlink()
    assert RunDirectory(second.path).digest(gul) != first.digest(gul)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a command as somebody else")
def test_read_only_directories_are_named(tmp_path: Path) -> None:
    output = copy_run(tmp_path / "run") / "output"
    # Everything is imported before: somebody else may not be able to read the libraries.
    code = (
        "import os, sys; from pathlib import Path; from app.oasis.directory import check_writable;"
        "os.setuid(65534); check_writable(Path(sys.argv[1]))"
    )
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", code, str(output)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert f"{output}: cannot be written: it is read-only" in done.stderr
