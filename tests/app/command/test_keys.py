"""The commands ``key`` and ``keys``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from app.command.main import main
from app.state.api_keys import ApiKeys, digest_key
from app.state.ownership import Namespaces
from app.state.sqlite import SqliteStateStore

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THALWEG_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def keys(*arguments: str) -> int:
    return main(["keys", *arguments])


def store(data_dir: Path) -> SqliteStateStore:
    return SqliteStateStore(data_dir / "state.sqlite")


def test_a_key_is_printed_once(data_dir: Path, capsys: Output) -> None:
    assert keys("add", "alice", "--scope", "losses", "--scope", "read:a*", "--expires", "90d") == 0
    printed = capsys.readouterr()
    secret = printed.out.strip()
    assert "losses read:a*, until " in printed.err
    assert secret not in printed.err
    records = store(data_dir)
    record = ApiKeys(records).get(digest_key(secret))
    records.close()
    assert record is not None
    assert record.owner == "alice"
    assert record.scopes == {"losses", "read:a*"}
    assert record.expires is not None
    assert abs(record.expires - time.time() - 90 * 86400) < 60
    for path in filter(Path.is_file, data_dir.rglob("*")):
        assert secret.encode() not in path.read_bytes()
    assert keys("list") == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{record.ident}  valid    alice  losses read:a*, until 20")
    assert keys("revoke", record.ident) == 0
    assert capsys.readouterr().out == f"revoked {record.ident} of alice\n"
    keys("list")
    assert "  revoked  alice" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "alice", "--scope", "everything"],
        ["add", "", "--scope", "losses"],
        ["add", "alice\n", "--scope", "losses"],
        ["revoke", "nobody"],
        ["adopt", "admin", "alice"],
        ["list"],
    ],
)
def test_what_cannot_be_done_is_an_error(arguments: list[str], capsys: Output) -> None:
    assert keys(*arguments) == 2
    assert capsys.readouterr().err.startswith("thalweg-server: [option] ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "alice"],
        ["add", "--scope", "losses"],
        ["add", "alice", "--scope", "losses", "--expires", "soon"],
        ["add", "alice", "--scope", "losses", "--expires", "0d"],
        ["add", "alice", "--scope", "losses", "--expires", "999999w"],
        [],
        ["drop"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        keys(*arguments)
    assert ended.value.code == 2


def test_handing_over(data_dir: Path, capsys: Output) -> None:
    records = store(data_dir)
    Namespaces(records, "dataset").create("old", "a", {"n": 1})
    Namespaces(records, "dataset").create("old", "b", {"n": 1})
    Namespaces(records, "dataset").create("new", "b", {"n": 2})
    records.close()
    assert keys("--data-dir", str(data_dir), "adopt", "old", "new") == 1
    printed = capsys.readouterr()
    assert printed.out == "1 things of old now belong to new\n"
    line, message = printed.err.splitlines()
    assert message == "thalweg-server: new has another dataset b: that of old stays"
    assert json.loads(line).items() >= {"event": "audit", "action": "adopt", "owner": "new"}.items()


def test_what_is_done_to_keys_is_in_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("THALWEG_AUDIT_LOG", str(tmp_path / "audit"))
    assert keys("add", "alice", "--scope", "losses") == 0
    secret = capsys.readouterr().out.strip()
    assert keys("list") == 0
    assert keys("revoke", "alice") == 0
    assert keys("revoke", "nobody") == 2
    assert secret not in (tmp_path / "audit").read_text()
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    ident = digest_key(secret)[: len(lines[0]["id"])]
    told = [(line["action"], line["resource"], line["id"], line["owner"]) for line in lines]
    assert told == [("create", "key", ident, "alice"), ("revoke", "key", ident, "alice")]
    assert all(line["result"] == "done" for line in lines)


def test_a_key_for_the_settings(capsys: Output) -> None:
    assert main(["key", "alice"]) == 0
    secret, setting = (line.split(": ")[1].strip() for line in capsys.readouterr().out.splitlines())
    assert setting == f"alice:{digest_key(secret)}"
