"""The sweeper removes what nobody used, a little at a time, in one worker of all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.state import sweeper as sweeper_module
from app.state.base import RecordMissingError, StoreError
from app.state.blob_files import FileBlobStore
from app.state.sweeper import (
    Sweeper,
    always_done,
    expired_blobs,
    expired_records,
    records_without_blobs,
)
from tests.app.state.memory import MemoryStateStore

ROOT = Path(__file__).parents[3]
ACTIVE = """
import sys
from contextlib import closing
from pathlib import Path
from app.state.sweeper import Sweeper, always_done
sweeper = Sweeper({"say": always_done(lambda: print("swept", flush=True))}, Path(sys.argv[1]))
sweeper.sweep()
sys.stdin.read()
"""


def test_heads_that_nobody_used_are_removed_a_page_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeper_module, "PAGE", 10)
    records = MemoryStateStore()
    for k in range(25):
        records.create("view", f"v{k:02d}", b"")
    records.create("dataset", "d", b"")
    later = time.time() + 100
    chore = expired_records(records, "view", 50, lambda: later)
    used = time.time
    monkeypatch.setattr(time, "time", lambda: used() + 90)
    records.touch("view", "v03")
    records.touch("view", "v17")
    assert [chore() for _ in range(3)] == [True, True, False]
    assert [record.id for record in records.list("view").records] == ["v03", "v17"]
    assert [record.id for record in records.list("dataset").records] == ["d"]
    assert not chore()


def test_one_that_is_used_in_between_stays() -> None:
    class Busy(MemoryStateStore):
        def delete(self, kind: str, record_id: str, *rest: object, **more: object) -> None:
            self.touch(kind, record_id)
            super().delete(kind, record_id, *rest, **more)  # type: ignore[arg-type]

    records = Busy()
    records.create("view", "x", b"")
    time.sleep(0.01)
    expired_records(records, "view", 0.005)()
    assert [record.id for record in records.list("view").records] == ["x"]


def test_one_that_is_deleted_in_between_is_no_error() -> None:
    class Busy(MemoryStateStore):
        def delete(self, kind: str, record_id: str, *rest: object, **more: object) -> None:
            del rest, more
            super().delete(kind, record_id)
            raise RecordMissingError(record_id)

    records = Busy()
    records.create("view", "x", b"")
    expired_records(records, "view", 1, lambda: time.time() + 100)()
    assert not records.list("view").records


def test_owners_of_what_is_not_stored_are_removed_unless_they_may_be_storing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sweeper_module, "PAGE", 2)
    records, blobs = MemoryStateStore(), FileBlobStore(tmp_path)
    blobs.put("input", "stored.quantiles", b"x")
    blobs.put("input", "damaged.quantiles", b"x")
    for path in (tmp_path / "input").rglob("damaged.*"):
        path.write_bytes(b"?")
    records.create("view", "alice.lost.quantiles", b"")
    for name in ("stored", "damaged", "lost"):
        records.create("input", f"alice.{name}.quantiles", b"")
        records.create("input", f"bob.{name}.quantiles", b"")
    now = time.time()
    chore = records_without_blobs(records, blobs, "input", 50, lambda: now + 40)
    assert [chore() for _ in range(3)] == [True, True, False]
    assert len(records.list("input").records) == 6
    monkeypatch.setattr(time, "time", lambda: now + 40)
    records.touch("input", "bob.lost.quantiles")
    chore = records_without_blobs(records, blobs, "input", 50, lambda: now + 60)
    assert [chore() for _ in range(3)] == [True, True, False]
    assert [record.id for record in records.list("input").records] == [
        "alice.damaged.quantiles",
        "alice.stored.quantiles",
        "bob.damaged.quantiles",
        "bob.lost.quantiles",
        "bob.stored.quantiles",
    ]
    assert len(records.list("view").records) == 1


def test_blobs_that_nobody_used_are_removed_a_page_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper_module, "PAGE", 10)
    blobs = FileBlobStore(tmp_path)
    for k in range(25):
        blobs.put("input", f"{k:02d}", b"x")
        blobs.touch("input", f"{k:02d}", time.time() - (10 if k in {3, 17} else 100))
    blobs.put("partial", "p", b"x")
    (tmp_path / "input" / "05" / "05").write_bytes(b"damaged")
    long_ago = time.time() - 100
    os.utime(tmp_path / "input" / "05" / "05", (long_ago, long_ago))
    chore = expired_blobs(blobs, "input", 50)
    assert [chore() for _ in range(3)] == [True, True, False]
    assert [blob.id for blob in blobs.list("input").blobs] == ["03", "17"]
    assert blobs.range("partial", "p") == b"x"


def test_a_chore_that_fails_keeps_no_other_from_its_work(tmp_path: Path) -> None:
    done: list[int] = []

    def fail() -> bool:
        raise StoreError("the disk failed")

    sweeper = Sweeper(
        {"fails": fail, "works": always_done(lambda: done.append(1))}, tmp_path / "lock"
    )
    with capture_logs() as logs:
        assert not sweeper.sweep()
    sweeper.close()
    assert done == [1]
    assert logs == [
        {
            "event": "sweeping failed",
            "chore": "fails",
            "reason": "the disk failed",
            "log_level": "warning",
        }
    ]


def test_one_of_several_is_active_until_it_dies(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    other = subprocess.Popen(
        [sys.executable, "-c", ACTIVE, str(lock)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "swept\n"
    done: list[int] = []
    sweeper = Sweeper({"count": always_done(lambda: done.append(1))}, lock)
    assert not sweeper.sweep()
    assert done == []
    other.kill()
    other.communicate()
    sweeper.sweep()
    sweeper.sweep()
    assert done == [1, 1]
    idle = Sweeper({"count": always_done(lambda: done.append(2))}, lock)
    idle.sweep()
    sweeper.close()
    idle.sweep()
    assert done == [1, 1, 2]
    idle.close()


def test_it_runs_in_a_thread_until_it_is_closed(tmp_path: Path) -> None:
    swept = threading.Event()
    left = iter([True, True, False])
    runs: list[int] = []

    def chore() -> bool:
        runs.append(1)
        more = next(left, False)
        if not more:
            swept.set()
        return more

    sweeper = Sweeper({"count": chore}, tmp_path / "lock", interval=0.01)
    sweeper._interval = 0.01
    sweeper.start()
    assert swept.wait(20)
    sweeper.close()
    sweeper.close()
    count = len(runs)
    assert count >= 3
    assert not any(thread.name == "sweeper" for thread in threading.enumerate())


def test_nothing_is_swept_by_a_clock_that_is_wrong(tmp_path: Path) -> None:
    swept: list[str] = []
    noted: list[str | None] = []
    wrong = [StoreError("the clock of this machine is wrong")]

    def check() -> None:
        for error in wrong:
            raise error

    chores = {"a": always_done(lambda: swept.append("a"))}
    with closing(Sweeper(chores, tmp_path / "lock", note=noted.append, check=check)) as sweeper:
        assert sweeper.sweep() is False
        assert (swept, noted) == ([], ["clock"])
        wrong.clear()
        sweeper.sweep()
        assert (swept, noted) == (["a"], ["clock", None])
