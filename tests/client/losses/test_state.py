from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.client.errors import StateError
from app.client.files.outputs import Mark
from app.client.files.state import StateFile
from app.client.losses.rows import Position
from app.client.losses.state import MEMBER, State

STATE = State(
    ("melt", "qelt"),
    "bin",
    Position("t", 77),
    {"size": 5, "mtime_ns": 1 << 60, "head": "ab"},
    "0f",
    {"melt": Mark(3, "cd"), "qelt": Mark(0, "ef")},
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state", MEMBER)
    file.save(STATE.json())
    assert file.load(State.parse) == STATE
    file.save(replace(STATE, source=None).json())
    loaded = file.load(State.parse)
    assert loaded is not None
    assert loaded.source is None


def test_the_form_on_disk(tmp_path: Path) -> None:
    """Files of earlier versions stay valid."""
    StateFile(tmp_path / "state", MEMBER).save(STATE.json())
    assert json.loads((tmp_path / "state").read_bytes()) == {
        "thalweg_state": 1,
        "reports": ["melt", "qelt"],
        "format": "bin",
        "token": "t",
        "offset": 77,
        "source": {"size": 5, "mtime_ns": 1 << 60, "head": "ab"},
        "passed": "0f",
        "outputs": {"melt": {"size": 3, "xxh3": "cd"}, "qelt": {"size": 0, "xxh3": "ef"}},
    }


@pytest.mark.parametrize(
    "text",
    ["{}", '{"thalweg_state": 1, "reports": 5}', '{"thalweg_state": 1, "reports": []}'],
)
def test_what_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError):
        StateFile(tmp_path / "state", MEMBER).load(State.parse)


def test_it_fits_what_it_was_made_for_only() -> None:
    STATE.check(("melt", "qelt"), "bin", STATE.source)
    with pytest.raises(StateError, match="melt,qelt as bin"):
        STATE.check(("melt",), "bin", STATE.source)
    with pytest.raises(StateError, match="as bin"):
        STATE.check(("melt", "qelt"), "csv", STATE.source)
    with pytest.raises(StateError, match="changed"):
        STATE.check(("melt", "qelt"), "bin", {"size": 6})
