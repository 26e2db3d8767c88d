"""The page for users of Oasis: its commands run where oasislmf is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.command.data_options import add_aggregate
from app.command.oasis_options import add_run_directory
from tests.oasis_runs import RUN, read_table
from tests.server_process import ROOT, ServerProcess

PAGE = (ROOT / "app" / "oasis" / "README.md").read_text()
PEER = os.environ.get("THALWEG_PEER_PYTHON")


def test_every_option_of_the_page_exists() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_aggregate(parser)
    own = argparse.ArgumentParser()
    add_run_directory(own)
    known = {option for action in parser._actions for option in action.option_strings}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    others = {"--faults", "--timeout", "--tolerance", "--rows"}
    others |= {option for option in named if option.startswith("--kernel-")}  # oasislmf's own
    assert named - others <= known
    documented = {option for action in own._actions for option in action.option_strings}
    assert {o for o in documented if o.startswith("--")} - {"--help", "--run-dir"} <= named


def test_every_test_that_the_page_names_exists() -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    for name in re.findall(r"`(test_[a-z_]+)`", PAGE):
        assert any(f"def {name}(" in text for text in texts), name
    for name in re.findall(r"`(tests/[a-z_/]+\.py)", PAGE):
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
@pytest.mark.skipif(PEER is None, reason="THALWEG_PEER_PYTHON names no python with oasislmf")
@pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")
def test_the_page_is_run(tmp_path: Path) -> None:
    """Install, one line, run: the outputs are those expected."""
    assert PEER is not None
    shutil.copytree(RUN / "model", tmp_path / "model")
    shutil.copytree(RUN / "run", tmp_path / "plain")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    commands = tmp_path / "bin"
    commands.mkdir()
    server = shutil.which("thalweg-server", path=str(ROOT / ".venv" / "bin"))
    assert server is not None
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    environ["PATH"] = os.pathsep.join(
        [str(Path(PEER).parent), str(Path(server).parent), os.environ["PATH"]]
    )
    install, run, with_service, _by_hand, _compare = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (config,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    settings = {
        "oasis_files_dir": "input",
        "analysis_settings_json": "plain/analysis_settings.json",
        "model_data_dir": "model/model_data",
    }
    (tmp_path / "oasislmf.json").write_text(json.dumps(settings | json.loads(config)))
    exposure = "-x location.csv -y account.csv -i ri_info.csv -s ri_scope.csv -z keys.csv"
    prepare = (
        f"(cd model && {PEER} gen.py && bash tobin.sh); cd model/exposure;"
        f" oasislmf model generate-oasis-files -o ../../input {exposure}"
    )
    service = ServerProcess(tmp_path / "service")
    with_service = with_service.replace("https://thalweg.example.com", service.url)
    try:
        for text in (prepare, install, run, with_service):
            done = subprocess.run(
                ["bash", "-ec", text], cwd=tmp_path, env=environ, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    finally:
        service.kill()
    for path in (RUN / "expected").glob("*_melt.csv.gz"):
        name = path.name.removesuffix(".gz")
        _, lines = read_table(tmp_path / "run_thalweg" / "output" / name)
        _, expected = read_table(path)
        assert [line[:3] for line in lines] == [line[:3] for line in expected]
    outputs = [tmp_path / f"run_{name}" / "output" for name in ("thalweg", "service")]
    for path in outputs[0].glob("*_S*_*.csv"):
        assert path.read_bytes() == (outputs[1] / path.name).read_bytes(), path.name
