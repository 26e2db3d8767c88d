"""Files of runs: faults name them, and they are seen whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.oasis.files import failing_as, json_object, write_whole
from core.errors import InputError


def test_an_error_of_the_system_names_the_file(tmp_path: Path) -> None:
    absent = pytest.raises(InputError, match="cannot be read: No such file")
    with absent as caught, failing_as("cannot be read", tmp_path / "none"):
        (tmp_path / "none").read_bytes()
    assert caught.value.source == str(tmp_path / "none")


def test_a_written_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "notes", "events")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert (tmp_path / "notes").read_text() == "events"
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(tmp_path / "none" / "notes", "events")


@pytest.mark.parametrize(
    ("octets", "fault"), [(b"[", "is not JSON"), (b"[1]", "is not a JSON object")]
)
def test_what_is_no_json_object_is_refused(octets: bytes, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        json_object(octets, Path("settings.json"))
    assert json_object(b'{"a": 1}', Path("settings.json")) == {"a": 1}
