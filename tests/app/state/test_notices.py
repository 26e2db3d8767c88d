"""Notices among processes."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from app.state.base import StoreError
from app.state.notices import Listener, Notices, file_of


def heard(listener: Listener) -> set[str] | None:
    select.select([listener.file], [], [], 60)
    return listener.hear()


def test_a_notice_is_heard_by_all_processes_and_writes_nothing(tmp_path: Path) -> None:
    notices = Notices(tmp_path / "notices")
    first, second = notices.listen(), notices.listen()
    pid = os.fork()
    if not pid:
        for _ in range(3):
            notices.give("run")
        os._exit(0)
    os.waitpid(pid, 0)
    assert heard(first) == heard(second) == {file_of("run")}
    assert first.hear() == set()
    assert [path.stat().st_size for path in (tmp_path / "notices").iterdir()] == [0]
    first.close()
    second.close()


def test_what_the_kernel_had_no_room_for_is_noticed(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    listener = notices.listen()
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 1 << 16:
        pytest.skip("so many notices take too long")
    for number in range(limit + 1):
        # Those of one file after another are one.
        notices.give(str(number % 7))
    while (events := listener.hear()) is not None:
        assert events
    listener.close()


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    notices = Notices(tmp_path / "notices")
    listener = notices.listen()
    (tmp_path / "notices").rmdir()
    assert heard(listener) is None
    with pytest.raises(FileNotFoundError):
        notices.give("run")
    with pytest.raises(FileNotFoundError):
        notices.listen()
    listener.close()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        Notices(tmp_path / "file" / "notices")
