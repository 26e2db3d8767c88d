"""The command ``doctor``: what it finds, how it says so, and what it leaves as it was."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from app.command import doctor
from app.command.doctor import CHECKS, run_check
from app.command.finding import Finding
from app.command.main import main
from app.decoding.process import DecoderProcess, StartError
from app.settings import MIB, Settings
from app.state import object_service
from app.state.api_keys import ApiKeys
from app.state.base import StoreError
from app.state.space import Room, Space
from app.state.sqlite_schema import VERSION
from app.state.storage import open_storage
from app.state.token_keys import load_keys
from core._jit import CACHE_VARIABLE
from tests.postgres_server import PostgresServer, running_server

Output = pytest.CaptureFixture[str]
GIB = 1024 * MIB
SECRET = "5e" * 32
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens
LANES = {"lanes": "front=1,quick=1,long=2"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("THALWEG_") and name != CACHE_VARIABLE:
            monkeypatch.delenv(name)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The path of a data directory that is not there."""
    return tmp_path / "data"


def look(check: str, data_dir: Path, **settings: Any) -> Finding:  # noqa: ANN401 - any setting
    """Run a check with some settings."""
    return run_check(CHECKS[check], Settings(data_dir=data_dir, **settings))


def test_a_line_for_each_check_and_nothing_is_made(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(doctor, "count_memory", lambda: 64 * GIB)
    assert main(["doctor", "--data-dir", str(data_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[6:22].strip() for line in lines] == list(CHECKS)
    assert {line[:6].strip() for line in lines} <= {"ok", "warn"}
    assert lines[2].startswith("ok    state           SQLite: a commit takes ")
    assert list(data_dir.parent.iterdir()) == []


def test_beside_a_service_as_json(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("THALWEG_DATA_DIR", str(data_dir))
    monkeypatch.setenv("THALWEG_DATADIR", SECRET)
    with closing(open_storage(data_dir, 0)):
        load_keys(data_dir)
        before = sorted(data_dir.rglob("*"))
        assert main(["doctor", "--json", "--host", EVERYWHERE]) == 1
        assert sorted(data_dir.rglob("*")) == before
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    document = json.loads(printed.out)
    found = {each["check"]: each for each in document["checks"]}
    assert document["wrong"]
    assert found["state"]["verdict"] == found["blobs"]["verdict"] == "ok"
    assert found["settings"] == {
        "check": "settings",
        "verdict": "warn",
        "found": "not settings, and ignored: THALWEG_DATADIR",
        "mend": "Did you mean THALWEG_DATA_DIR by THALWEG_DATADIR?",
    }
    assert found["API keys"]["verdict"] == "wrong"
    assert EVERYWHERE in found["API keys"]["found"]
    assert "1 signs" in found["token keys"]["found"]


def test_settings_that_cannot_be(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("THALWEG_PORT", "tcp://10.0.0.1:8000")
    monkeypatch.setenv("THALWEG_TOKEN_KEYS_FILE", "/nowhere")
    assert main(["doctor"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("wrong settings        token_keys_file cannot be read")


def test_a_check_that_fails_stops_no_other(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def fail(_: Settings) -> Finding:
        raise RuntimeError("no\nreason")

    for check in CHECKS:
        monkeypatch.setitem(CHECKS, check, fail)
    monkeypatch.setitem(CHECKS, "clock", lambda _: Finding("ok", "well"))
    assert main(["doctor", "--data-dir", str(data_dir)]) == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert len(lines) == len(CHECKS)
    assert lines[0] == "wrong settings        the check failed: RuntimeError: no reason"
    assert lines[-1] == "ok    clock           well"
    assert printed.err == ""


Patch = Callable[[pytest.MonkeyPatch], None]


def patched(target: object, name: str, value: object) -> Patch:
    """Return what has a function return a value."""
    return lambda monkeypatch: monkeypatch.setattr(target, name, lambda *_, **__: value)


def untouched(_: pytest.MonkeyPatch) -> None:
    """Leave the machine as it is."""


KEY = "a:" + "0" * 64
SIGN, ACCEPT = f"1:sign:{SECRET}", f"2:accept:{SECRET}"


@pytest.mark.parametrize(
    ("check", "settings", "patch", "verdict", "said"),
    [
        ("data directory", {}, untouched, "ok", "yet to be made, is on"),
        ("data directory", {}, patched(doctor, "is_local", value=False), "warn", "Use a local d"),
        ("data directory", {}, patched(os, "access", value=False), "wrong", "cannot write to"),
        ("data directory", {}, patched(Space, "room", Room(99, 5, 6)), "wrong", "Make room"),
        ("API keys", {}, untouched, "ok", "127.0.0.1 is the one user"),
        ("API keys", {"host": EVERYWHERE}, untouched, "wrong", "thalweg-server keys add"),
        ("API keys", {"host": EVERYWHERE, "allow_anonymous": True}, untouched, "warn", "Add keys"),
        ("API keys", {"host": EVERYWHERE, "api_keys": (KEY,)}, untouched, "ok", "1 set, 0 stored"),
        ("token keys", {}, untouched, "ok", "none: the service will create one in "),
        ("token keys", {"token_keys": (SIGN, ACCEPT)}, untouched, "ok", "2 (accept) in THALWEG_T"),
        ("token keys", {"token_keys": (ACCEPT,)}, untouched, "wrong", "0 token keys sign"),
        ("token keys", {"token_keys": ("1:sign:5e",)}, untouched, "wrong", "at least 16 bytes"),
        ("kernels", {}, patched(doctor, "find_published", "/there"), "ok", "compiled for this"),
        ("kernels", {}, patched(doctor, "find_published", None), "warn", "warmup"),
        ("memory", LANES, patched(doctor, "count_memory", 64 * GIB), "ok", "64 GiB; the service"),
        ("memory", LANES, patched(doctor, "count_memory", 5 * GIB), "warn", "Lower THALWEG_MEM"),
        ("memory", LANES, patched(doctor, "count_memory", 3 * GIB), "wrong", "Lower THALWEG_MEM"),
        ("memory", {"lanes": "many"}, untouched, "wrong", "THALWEG_LANES: 'many' is not"),
        ("CPUs", LANES, patched(doctor, "count_cores", 2), "ok", "workers: 4, 2 of them"),
        ("CPUs", LANES, patched(doctor, "count_cores", 1), "warn", "Set THALWEG_WORKERS"),
        ("open files", {}, patched(resource, "getrlimit", (9, 1024)), "warn", "LimitNOFILE"),
        ("open files", {}, patched(resource, "getrlimit", (9, -1)), "ok", "any number of"),
        ("sandbox", {"decoder_sandbox": "off"}, untouched, "warn", "THALWEG_DECODER_SANDBOX"),
        ("dataset roots", {}, untouched, "ok", "none"),
        ("dataset roots", {"dataset_roots": "/nowhere"}, untouched, "warn", "mount /nowhere"),
        ("dataset roots", {"dataset_roots": "/"}, untouched, "wrong", "other than /"),
        ("catalogue", {}, untouched, "ok", "none"),
        ("catalogue", {"catalogue": "/nowhere.toml"}, untouched, "wrong", "cannot be read"),
        ("audit log", {}, untouched, "ok", "log"),
        ("audit log", {"audit_log": "/nowhere/log"}, untouched, "wrong", "set THALWEG_AUDIT_LOG"),
        ("audit log", {"audit_log": "/dev/null"}, untouched, "ok", "can be written"),
        ("traces", {}, untouched, "ok", "none are sent"),
        ("clock", {}, patched(time, "time", 0.0), "wrong", "before this program was installed"),
    ],
)
def test_findings(
    check: str,
    settings: dict[str, Any],
    patch: Patch,
    verdict: str,
    said: str,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patches:
        patch(patches)
        finding = look(check, data_dir, **settings)
    assert finding.verdict == verdict, finding
    assert said in f"{finding.found}. {finding.mend}"
    assert SECRET not in repr(finding)
    assert not data_dir.exists()


def test_a_decoder_that_does_not_start(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: DecoderProcess) -> None:
        raise StartError("this kernel has no Landlock")

    monkeypatch.setattr(DecoderProcess, "wait_until_ready", fail)
    assert look("sandbox", data_dir) == Finding("wrong", "this kernel has no Landlock")


def test_nowhere_for_kernels(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_published", lambda: None)
    monkeypatch.setattr(doctor, "cache_roots", lambda: iter([tmp_path / "cache"]))
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = look("kernels", data_dir)
    assert finding.verdict == "warn"
    assert str(finding.mend).startswith("Set THALWEG_KERNEL_CACHE to")


def test_keys_of_which_none_is_valid(data_dir: Path) -> None:
    with closing(open_storage(data_dir, 0)) as storage:
        keys = ApiKeys(storage.records)
        keys.add("alice", ["losses"], time.time())
        assert look("API keys", data_dir, host=EVERYWHERE).verdict == "ok"
        keys.revoke("alice", time.time())
    finding = look("API keys", data_dir, host=EVERYWHERE)
    assert finding.verdict == "warn"
    assert "0 stored and valid, 1 revoked" in finding.found
    assert look("API keys", data_dir, api_keys=(KEY,)).verdict == "ok"


def test_a_state_that_cannot_be_opened(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "state.sqlite").write_bytes(b"no database" * 100)
    for check in ("state", "API keys"):
        finding = look(check, data_dir)
        assert finding.verdict == "wrong"
        assert "damaged" in finding.found
    (data_dir / "file").touch()
    for check in ("data directory", "state", "blobs"):
        assert look(check, data_dir / "file" / "data").verdict == "wrong"


def test_a_state_of_an_earlier_version_stays_so(data_dir: Path) -> None:
    with closing(open_storage(data_dir, 0)):
        pass
    path = data_dir / "state.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION - 1}")
    before = path.read_bytes()
    finding = look("state", data_dir)
    assert finding.verdict == "warn"
    assert f"has version {VERSION - 1}" in finding.found
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


def test_postgres(data_dir: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{server.new_database()}&password={SECRET}"
    settings = {"state": url, "blobs": "s3://bucket"}
    finding = look("state", data_dir, **settings)
    assert finding.verdict == "ok"
    assert "synchronous_commit is on, with no synchronous standby" in finding.found
    assert "password=…: a commit takes " in finding.found
    for _ in range(2):
        finding = look("token keys", data_dir, **settings)
        assert finding == Finding("ok", "none: the service will create one in the database")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() - 60)
    assert look("state", data_dir, **settings).verdict == "warn"
    monkeypatch.setattr(time, "time", lambda now=time.time: now() - 3600)
    finding = look("state", data_dir, **settings)
    assert finding.verdict == "wrong"
    assert " s behind that of the database. Have NTP set the clocks" in finding.found
    assert not data_dir.exists()


def test_a_database_that_is_not_there(data_dir: Path) -> None:
    pytest.importorskip("psycopg")
    url = f"postgres://thalweg:{SECRET}@127.0.0.1:1/thalweg"
    finding = look("state", data_dir, state=url, blobs="s3://bucket")
    assert finding.verdict == "wrong"
    assert "THALWEG_STATE postgres://thalweg:…@127.0.0.1:1/thalweg: " in finding.found


def test_an_object_store(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_service, "open_objects", lambda _: MemoryStore())
    finding = look("blobs", data_dir, blobs="s3://bucket/prefix")
    assert finding.verdict == "ok"
    assert finding.found.startswith("s3://bucket/prefix heeds conditions; a write takes ")

    def ignore(_: object) -> float:
        raise StoreError("the object store ignores If-Match", hint="Use another")

    monkeypatch.setattr(object_service, "check_objects", ignore)
    finding = look("blobs", data_dir, blobs="s3://bucket/prefix")
    assert finding.verdict == "wrong"
    assert "ignores If-Match. Use another" in finding.found
    assert not data_dir.exists()
