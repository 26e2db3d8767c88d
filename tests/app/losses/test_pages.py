from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from app.losses import pages
from app.losses.pages import forget, forget_written

PAGE = mmap.PAGESIZE


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the system is told to forget, in pages, of a file of which two may stay."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(pages, "KEPT", 2 * PAGE)
    monkeypatch.setattr(pages, "STEP", PAGE)
    monkeypatch.setattr(
        "os.posix_fadvise",
        lambda _fd, begin, size, _advice: calls.append((begin // PAGE, (begin + size) // PAGE)),
    )
    return calls


def test_what_is_written_is_forgotten_several_times_but_for_the_beginning(
    told: list[tuple[int, int]], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        for begin in range(0, 9 * PAGE, PAGE // 2):
            forget_written(file.fileno(), begin, begin + PAGE // 2)
    assert told == [(2, 3), (2, 4), (2, 5), (2, 6), (3, 7), (4, 8), (5, 9)]


def test_what_was_read_is_forgotten_beyond_the_beginning(
    told: list[tuple[int, int]], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        forget(file.fileno(), 0, 2 * PAGE)
        forget(file.fileno(), PAGE, 3 * PAGE)
        forget(file.fileno(), 7 * PAGE, 8 * PAGE)
    assert told == [(2, 3), (7, 8)]
