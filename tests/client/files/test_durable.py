"""What a power failure leaves of the client's files: what was finished, or what can go on."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from app.client.errors import StateError
from app.client.files.outputs import FileOutput, Mark, sync_directory, write_file
from app.client.files.state import FileGroups, StateFile, replace_file
from app.client.tiles.plan import Plan
from app.client.tiles.saving import TileFile, TileState

from ...journal import Crash, Journal
from ...scale import examples

TRIES = examples(4)
VALUES = np.arange(60, dtype="<u2").reshape(4, 3, 5)
PLAN = Plan((4,), (3, 5), np.dtype("<u2"), (3, 2, 5))


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Journal:
    root = tmp_path / "root"
    root.mkdir()
    return Journal(monkeypatch, root)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "crashes"
    path.mkdir()
    return path


def read(crash: Crash, name: str) -> bytes | None:
    path = crash.path / name
    return path.read_bytes() if path.exists() else None


def tile(index: int) -> memoryview:
    """The values of a tile, in the order of the file."""
    whole = VALUES.tobytes()
    runs = PLAN.runs(PLAN.box(index))
    return memoryview(b"".join(whole[at : at + length] for at, length in runs))


def test_small_files(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [b"a" * 700, b"bb" * 3000, b"c"]
    for content in contents:
        replace_file(journal.root / "token", content)
        journal.say(content)
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        done = len(crash.said)
        following = contents[done] if done < len(contents) else None
        allowed = {contents[done - 1] if done else None, following}
        assert read(crash, "token") in allowed, crash.how


def test_outputs(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"row\n" * 2000
    write_file(journal.root / "table.csv", whole)
    journal.say("done")
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        found = read(crash, "table.csv")
        assert found == whole or (found is None and not crash.said), crash.how


def test_outputs_with_a_state(
    journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is there names bytes that are there, and is no older than acknowledged."""
    file = StateFile(journal.root / "state", "kind")
    output = FileOutput(journal.root / "table.csv")
    for k in range(4):
        output.write(b"%d\n" % k * 700)
        output.settle()
        mark = output.mark()
        file.save({"rows": k, "size": mark.size, "xxh3": mark.xxh3}, output.sync)
        journal.say(k)
        output.write(b"not settled")
        output.undo()
    output.finish()
    file.remove()
    journal.say("done")
    monkeypatch.undo()
    whole = b"".join(b"%d\n" % k * 700 for k in range(4))
    for crash in journal.crashes(where, TRIES):
        if "done" in crash.said:
            assert read(crash, "table.csv") == whole, crash.how
            continue
        content = read(crash, "state")
        if content is None or read(crash, "table.csv") is not None:
            assert not crash.said or read(crash, "table.csv") == whole, crash.how
            continue
        state = json.loads(content)
        assert state["rows"] >= (crash.said[-1] if crash.said else 0)
        resumed = FileOutput(crash.path / "table.csv", Mark(state["size"], state["xxh3"]))
        resumed.write(whole[state["size"] :])
        resumed.finish()
        assert read(crash, "table.csv") == whole, crash.how


def test_views(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TileFile(journal.root / "out.npy", PLAN, "npy")
    state = StateFile(journal.root / "state", "kind")
    for k in range(PLAN.tiles):
        file.write(PLAN.box(k), tile(k))
        state.save(asdict(TileState("view", k + 1, "token", "digest")), file.sync)
        journal.say(k + 1)
    file.finish()
    state.remove()
    journal.say("done")
    monkeypatch.undo()
    for crash in journal.crashes(where, TRIES):
        finished = crash.path / "out.npy"
        if finished.exists():
            assert np.array_equal(np.load(finished), VALUES), crash.how
            continue
        assert "done" not in crash.said, crash.how
        content = read(crash, "state")
        if content is None:
            assert not crash.said, crash.how
            continue
        tiles = TileState.parse(json.loads(content)).tile
        assert tiles >= (crash.said[-1] if crash.said else 1)
        again = TileFile(crash.path / "out.npy", PLAN, "npy")
        for k in range(tiles):
            assert again.read(PLAN.box(k)) == tile(k), crash.how
        again.close(keep=True)


def test_a_disk_that_fails_at_the_end_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            write_file(tmp_path / "table.csv", b"rows")
        with pytest.raises(OSError, match="Input/output"):
            replace_file(tmp_path / "token", b"token")
    assert list(tmp_path.iterdir()) == []


def test_file_systems_that_do_not_sync_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", lambda _: refuse(errno.EINVAL))
    sync_directory(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        sync_directory(tmp_path)


def test_states_are_written_less_often_where_that_takes_long(tmp_path: Path) -> None:
    now = [0.0]
    file = StateFile(tmp_path / "state", "kind", lambda: now[0])

    def slow() -> None:
        now[0] += 0.05

    file.save({"n": 1}, slow)
    due = []
    for _ in range(12):
        now[0] += 0.1
        due.append(file.is_due)
    # A twentieth of the time is 1.0 s between writes of 0.05 s, and 0.1 s as ever.
    assert due == [False] * 11 + [True] or due == [False] * 10 + [True] * 2


def test_a_state_of_another_kind_is_refused(tmp_path: Path) -> None:
    StateFile(tmp_path / "state", "kind").save({})
    with pytest.raises(StateError):
        StateFile(tmp_path / "state", "other").load(dict)


def test_the_last_group_has_its_token_in_the_end(tmp_path: Path) -> None:
    now = [0.0]
    with FileGroups(tmp_path / "token", lambda: now[0]) as groups:
        for token in ("a", "b"):
            groups.write(tmp_path / "file", token.encode())
            groups.follow(token)
        assert (tmp_path / "token").read_text() == "a\n"
    assert (tmp_path / "token").read_text() == "b\n"
    with FileGroups(None) as groups:
        groups.write(tmp_path / "file", b"c")
        groups.follow("c")
    assert (tmp_path / "token").read_text() == "b\n"


def test_groups_of_files(journal: Journal, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token that is there is of files that are whole; it is no older than acknowledged."""
    now = [0.0]
    groups = FileGroups(journal.root / "token", lambda: now[0])
    contents = [b"%d" % k * 700 for k in range(6)]
    for k, content in enumerate(contents):
        groups.write(journal.root / f"{k}.npy", content)
        groups.follow(str(k))
        now[0] += 0.4
    groups.sync()
    journal.say(5)
    monkeypatch.undo()
    tokens = set()
    for crash in journal.crashes(where, TRIES):
        token = read(crash, "token")
        assert token is not None or not crash.said, crash.how
        last = -1 if token is None else int(token)
        tokens.add(last)
        assert last >= max(crash.said, default=-1), crash.how
        for k in range(last + 1):
            assert read(crash, f"{k}.npy") == contents[k], crash.how
    assert {-1, 0, 3, 5} == tokens
