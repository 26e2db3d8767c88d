from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.client.errors import StateError
from app.client.files.state import StateFile, replace_file

from ..fakes.clock import FakeClock


def parse(content: Mapping[str, Any]) -> int:
    return int(content["n"])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state", "kind")
    assert file.load(parse) is None
    assert not file.exists()
    file.save({"n": 3})
    assert json.loads((tmp_path / "state").read_bytes()) == {"kind": 1, "n": 3}
    assert file.load(parse) == 3
    assert file.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    file.remove()
    file.remove()
    assert file.load(parse) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"kind": 2, "n": 1}', '{"kind": 1}', '{"kind": 1, "n": "x"}', "\x00"],
)
def test_what_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError):
        StateFile(tmp_path / "state", "kind").load(parse)


def test_a_state_that_is_not_kept(tmp_path: Path) -> None:
    file = StateFile(None, "kind")
    file.save({"n": 3})
    file.remove()
    assert file.load(parse) is None
    assert not file.exists()
    assert not file.is_due
    assert not list(tmp_path.iterdir())


def test_it_is_written_now_and_then(tmp_path: Path, clock: FakeClock) -> None:
    file = StateFile(tmp_path / "state", "kind", clock)
    due = [file.is_due]
    file.save({"n": 3})
    for seconds in (0.0, 0.05, 0.06):
        clock.pass_by(seconds)
        due.append(file.is_due)
    assert due == [True, False, False, True]


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")
    before = path.stat().st_ino
    replace_file(path, b"new")
    # A new file took its place: nobody could have read a part of it.
    assert path.stat().st_ino != before
    assert path.read_bytes() == b"new"

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"newer")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_state_is_replaced_and_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "state", "kind")
    file.save({"n": 3})
    other = tmp_path / "other name"
    other.hardlink_to(tmp_path / "state")
    file.save({"n": 4})
    assert file.load(parse) == 4
    assert StateFile(other, "kind").load(parse) == 3

    def fail(path: Path, target: Path) -> Path:
        raise OSError(5, f"{path.name} cannot be moved to {target.name}")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="cannot be moved"):
        file.save({"n": 5})
    assert file.load(parse) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other name", "state"]
