"""What keeps the service from starting, and a service that keeps nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.command import serving
from app.command.main import main
from app.command.serving import check_exposure, is_loopback, look_into, run_server
from app.engine.warmup import WarmUp
from app.errors import BusyError
from app.main import create_app
from app.server.board import Board
from app.settings import Settings
from app.state.base import StorageError
from tests.app.harness import Service, wait_until
from tests.app.losses.posts import INPUTS, put_input
from tests.app.state.test_space import fill, small_disk
from tests.app.state.test_stores import unprivileged
from tests.forked import ForkedProcess
from tests.scale import PURE_PYTHON
from tests.server_process import ROOT

__all__ = ["small_disk"]

DIGEST = 64 * "a"
KEY = f"1:sign:{DIGEST}"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("THALWEG_"):
            monkeypatch.delenv(name)


def start(directory: Path, *flags: str) -> tuple[int, list[str]]:
    """Start a service that cannot, in a process of its own; its status and what it logs."""
    with (directory / "log").open("wb") as log:
        process = ForkedProcess(
            main, ["serve", "--port", "0", *flags], log=log, environment=os.environ, directory=ROOT
        )
    return process.wait(60), (directory / "log").read_text().splitlines()


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line that says why it does not start."""
    assert main(["serve", "--port", "0", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("thalweg-server: ")
    return line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_data_directory_that_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    line = refused(capsys, "--data-dir", str(tmp_path / "file" / "data"), "--workers", workers)
    assert str(tmp_path / "file" / "data") in line
    assert "THALWEG_DATA_DIR" in line
    assert "--ephemeral" in line


def test_a_data_directory_that_cannot_be_written() -> None:
    settings = Settings(data_dir=Path("/usr/thalweg-data"), port=0)
    with unprivileged(), pytest.raises(StorageError, match="not writable") as caught:
        run_server(settings)
    assert "--ephemeral" in str(caught.value)
    assert not settings.data_dir.exists()


def test_a_process_says_it_in_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    status, lines = start(tmp_path, "--data-dir", str(tmp_path / "file"))
    assert status == 2
    assert len(lines) == 1
    assert "THALWEG_DATA_DIR" in lines[0]


def test_a_first_start_on_a_full_disk(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(small_disk)
    line = refused(capsys, "--data-dir", str(small_disk / "data"))
    assert "is full" in line
    assert not [path for path in small_disk.rglob("*") if "token" in path.name]


def test_state_of_a_newer_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlite3

    from app.state.sqlite import SqliteStateStore
    from app.state.storage import STATE

    SqliteStateStore(tmp_path / STATE).close()
    connection = sqlite3.connect(tmp_path / STATE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    line = refused(capsys, "--data-dir", str(tmp_path))
    assert "version 99" in line
    assert "run the newer server" in line


def test_an_audit_log_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_AUDIT_LOG", str(tmp_path / "nowhere" / "audit"))
    line = refused(capsys, "--data-dir", str(tmp_path / "data"))
    assert "the audit log" in line


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("RUN_DAYS", "4000000", "it must be at most 36525"),
        ("INPUT_DAYS", "1e300", "it must be at most 36525"),
        ("DRAIN_SECONDS", "inf", "it must be at most"),
        ("WRITE_SECONDS", "0", "must be above 0"),
        ("API_KEYS", "alice:zz", "entry 1 is not"),
        ("PUBLIC_URL", "foo", "an absolute URL"),
        ("TOKEN_KEYS", "x", "id:use:secret"),
        ("TOKEN_KEYS", f"1:accept:{DIGEST}", "0 token keys sign"),
        ("TOKEN_KEYS", f"{KEY},2:sign:{DIGEST}", "2 token keys sign"),
        ("TOKEN_KEYS", f"{KEY},{KEY}", "the same id"),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setenv(f"THALWEG_{name}", value)
    line = refused(capsys, "--data-dir", str(tmp_path / "data"))
    assert f"THALWEG_{name}" in line
    assert reason in line
    assert DIGEST not in line


@pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")
@pytest.mark.parametrize("text", ["[a]\nfiles = 3", None])
def test_a_catalogue_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    catalogue = tmp_path / "catalogue.toml"
    if text is not None:
        catalogue.write_text(text)
    flags = "--data-dir", str(tmp_path / "data"), "--catalogue", str(catalogue)
    status, logged = start(tmp_path, *flags)
    assert status == 2
    lines = [line for line in logged if not line.startswith(("{", "20"))]
    assert len(lines) == 1
    assert lines[0].startswith("thalweg-server: [option] ")


@pytest.mark.parametrize("inside", ["data", "."])
def test_a_data_directory_in_a_dataset_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: str
) -> None:
    data = tmp_path / inside / "data"
    line = refused(capsys, "--data-dir", str(data), "--dataset-roots", str(tmp_path))
    assert "THALWEG_DATA_DIR" in line
    assert not data.exists()


def test_workers_get_the_settings_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever files of secrets hold by then, and with the one key that signs tokens."""
    served: list[partial[object]] = []

    def serve(app: partial[object], **_options: object) -> int:
        served.append(app)
        return 0

    monkeypatch.setattr(serving, "serve_application", serve)
    keys = tmp_path / "keys"
    keys.write_text(f"alice:{DIGEST}")
    monkeypatch.setenv("THALWEG_API_KEYS_FILE", str(keys))
    settings = Settings(data_dir=tmp_path / "data", workers=2, body_seconds=3.5, view_days=None)
    assert run_server(settings) == 0
    keys.unlink()
    (app,) = served
    given, board = app.args
    (token_key,) = given.token_keys
    assert given == settings.model_copy(update={"token_keys": (token_key,)})
    assert given.api_keys == (f"alice:{DIGEST}",)
    assert len(board.workers) == 4


def test_what_one_worker_holds_counts_for_all(tmp_path: Path) -> None:
    board = Board(["", ""])
    settings = Settings(data_dir=tmp_path, buffers=4)
    first, second = (create_app(settings, board, slot).parts for slot in board.workers)
    first.throttle.enter("alice")
    first.losses.buffers.take("bob", 2)
    assert second.throttle._tally.of("alice") == 1
    assert second.losses.ledger._tally.of("bob") == 2 * settings.buffer_bytes
    second.losses.buffers.take("carol", 2)
    with pytest.raises(BusyError):
        second.losses.buffers.take("dave", 1)
    board.workers[0].clear()
    assert (second.throttle.running, second.losses.ledger._tally.of("bob")) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "lanes"),
    [
        ({"lanes": "one"}, [""]),
        ({}, ["front", "quick", "long", "long", "long"]),
        ({"workers": 1}, ["front", "quick", "long"]),
        ({"lanes": "long=1, quick=2,front=1"}, ["front", "quick", "quick", "long"]),
        ({"lanes": "front=1,quick=1", "workers": 2}, ["front", "quick", "long", "long"]),
    ],
)
def test_processes_are_as_many_as_settings_and_cores_say(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], lanes: list[str]
) -> None:
    monkeypatch.setattr(serving, "count_cores", lambda: 3)
    board = serving._board(Settings(**settings))
    assert [slot.lane for slot in board.workers] == lanes


@pytest.mark.parametrize(
    "lanes",
    ["", "two", "front=1", "front=1,quick=1", "front=0,quick=1,long=1", "front=1,front=1,long=1"],
)
def test_lanes_that_cannot_be(
    lanes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THALWEG_LANES", lanes)
    assert "THALWEG_LANES" in refused(capsys, "--data-dir", str(tmp_path / "data"))


SPARED = """
import gc, math
from app.command.serving import spare_collections
garbage = []
garbage.append(garbage)
del garbage
loaded = [[] for _ in range(10_000)]
spare_collections()
seldom = math.prod(gc.get_threshold()) >= 700_000
print(len(gc.get_objects()) < 1000, gc.get_freeze_count() > 10_000, seldom)
"""


def test_collections_pass_over_what_workers_have_loaded_and_seldom_over_everything() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPARED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"] * 3


def test_workers_spare_collections_once_kernels_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up = WarmUp()
    app = SimpleNamespace(parts=SimpleNamespace(warm_up=warm_up))
    monkeypatch.setattr("app.main.create_app", lambda *_: app)
    board = Board()
    assert serving.create(Settings(data_dir=tmp_path), board, board.workers[0]) is app
    assert warm_up.on_loaded is serving.spare_collections


SMALL = """
import sys
import app.command.main as command
from app.command import serving
command.build_parser(["serve", "--port", "0"])
print(*sorted({"numba", "numpy", "fastapi", "uvicorn", "prometheus_client"} & sys.modules.keys()))
"""


THREADS = """
import os
from app.command import serving
before = dict(os.environ)
serving.import_all()
print(len(os.listdir("/proc/self/task")), dict(os.environ) == before)
"""


def test_everything_is_imported_in_one_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "True"]


def test_the_supervisor_imports_neither_the_engine_nor_the_web_framework() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")
def test_a_service_that_keeps_nothing(tmp_path: Path) -> None:
    service = Service(tmp_path / "service", "--ephemeral")
    try:
        stored = put_input(service, "quantiles", INPUTS["quantile.bin"])
        assert stored.status == 201
        assert put_input(service, "quantiles", INPUTS["quantile.bin"]).status == 200
        assert not service.data_dir.exists()
        assert service.stop() == 0
        service.start()
        assert put_input(service, "quantiles", INPUTS["quantile.bin"]).status == 201
        assert service.stop() == 0
        assert not service.failures()
    finally:
        service.kill()


@pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")
def test_a_service_of_several_workers_that_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one stores the others have, its limits are those of all, and nothing is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    limits = {"owner_rate": 0.001, "owner_burst": 20}
    service = Service(tmp_path / "service", "--ephemeral", "--workers", "2", **limits)
    try:
        content = INPUTS["quantile.bin"]
        statuses = [put_input(service, "quantiles", content).status for _ in range(25)]
        assert statuses == [201] + [200] * 19 + [429] * 5
        assert not service.data_dir.exists()
        assert len(list(temporary.iterdir())) == 2
        service.kill()
        service.start()
        assert put_input(service, "quantiles", content).status == 201
        assert len(list(temporary.iterdir())) == 2
        assert service.stop() == 0
        assert list(temporary.iterdir()) == []
    finally:
        service.kill()


@pytest.mark.skipif(PURE_PYTHON, reason="the server is a process of its own")
def test_a_service_on_a_disk_that_fills_up(small_disk: Path) -> None:
    """What is there is used; what is new is refused by name, and taken again with room."""
    service = Service(small_disk / "service")
    try:
        one = b"quantile\n0.5\n"
        assert put_input(service, "quantiles", one).status == 201
        (small_disk / "others").write_bytes(bytes(21 << 20))
        fill(small_disk)
        refusal = put_input(service, "quantiles", b"quantile\n0.25\n")
        assert (refusal.status, refusal.json()["code"]) == (503, "storage-full")
        assert put_input(service, "quantiles", one).status == 200
        (small_disk / "others").unlink()
        wait_until(lambda: put_input(service, "quantiles", b"quantile\n0.25\n").status == 201)
        assert service.stop() == 0
    finally:
        service.kill()


EVERYWHERE = "0.0.0.0"  # noqa: S104 - refused or not


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback(host: str, tmp_path: Path) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host, data_dir=tmp_path), has_stored_keys=False)


@pytest.mark.parametrize(
    "host", [EVERYWHERE, "::", "10.1.2.3", "", "no such host", "255.255.255.255"]
)
def test_elsewhere_strangers_could_come(host: str, tmp_path: Path) -> None:
    settings = Settings(host=host, data_dir=tmp_path)
    with pytest.raises(ValueError, match="THALWEG_ALLOW_ANONYMOUS=true"):
        check_exposure(settings, has_stored_keys=False)
    check_exposure(settings.model_copy(update={"allow_anonymous": True}), has_stored_keys=False)
    check_exposure(
        settings.model_copy(update={"api_keys": ("alice:" + "0" * 64,)}), has_stored_keys=False
    )


def test_a_stored_key_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_DATA_DIR", str(tmp_path))
    assert main(["keys", "add", "alice", "--scope", "losses"]) == 0
    settings = Settings(host=EVERYWHERE, data_dir=tmp_path)
    _, has_stored_keys = look_into(settings)
    check_exposure(settings, has_stored_keys=has_stored_keys)


def test_the_command_says_so_and_ends(tmp_path: Path) -> None:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("THALWEG_")}
    done = subprocess.run(
        [sys.executable, "-m", "app.command", "serve", "--host", EVERYWHERE, "--port", "0"],
        env={**environment, "PYTHONPATH": str(ROOT), "THALWEG_DATA_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert f"without API keys everybody who reaches {EVERYWHERE}" in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_that_cannot_be_read_may_exist(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="damaged"):
        run_server(Settings(data_dir=tmp_path, port=0))
