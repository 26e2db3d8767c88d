from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.client.errors import StateError
from app.client.files.outputs import Mark
from app.client.losses.rows import Position
from app.client.losses.state import State, StateFile

STATE = State(
    ("melt", "qelt"),
    "bin",
    Position("t", 77),
    {"size": 5, "mtime_ns": 1 << 60, "head": "ab"},
    "0f",
    {"melt": Mark(3, "cd"), "qelt": Mark(0, "ef")},
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    assert file.load() is None
    file.save(STATE)
    assert file.load() == STATE
    file.save(replace(STATE, source=None))
    loaded = file.load()
    assert loaded is not None
    assert loaded.source is None
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    file.remove()
    file.remove()
    assert file.load() is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"thalweg_state": 2}', '{"thalweg_state": 1, "reports": 5}', "\x00"],
)
def test_what_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError):
        StateFile(tmp_path / "state").load()


def test_it_fits_what_it_was_made_for_only() -> None:
    STATE.check(("melt", "qelt"), "bin", STATE.source)
    with pytest.raises(StateError, match="melt,qelt as bin"):
        STATE.check(("melt",), "bin", STATE.source)
    with pytest.raises(StateError, match="as bin"):
        STATE.check(("melt", "qelt"), "csv", STATE.source)
    with pytest.raises(StateError, match="changed"):
        STATE.check(("melt", "qelt"), "bin", {"size": 6})
