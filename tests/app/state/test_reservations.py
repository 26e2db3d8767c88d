"""Reservations of all workers on space for rows that wait, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import QuotaExceededError, StorageFullError
from app.state.base import StoreError
from app.state.presence import Presence
from app.state.reservations import LEASE, Reservation, Reservations
from app.state.space import Space

ROOT = Path(__file__).parents[3]
OTHER = """
import sys
from pathlib import Path
from app.state.reservations import Reservations
from app.state.presence import Presence
reservations = Reservations(Presence(Path(sys.argv[1])), 1 << 40)
reservation = reservations.new("alice")
reservation.cover(int(sys.argv[2]))
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["directory", "memory"])
def reservations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reservations]:
    directory = tmp_path / "reservations" if request.param == "directory" else None
    made = Reservations(Presence(directory), 4 * LEASE)
    yield made
    made.close()
    made.close()


def test_reservations_are_counted_and_given_back(reservations: Reservations) -> None:
    one, other = reservations.new("alice"), reservations.new("alice")
    one.cover(1)
    one.cover(LEASE)
    one.cover(LEASE + 1)
    other.cover(2 * LEASE)
    with pytest.raises(QuotaExceededError) as caught:
        other.cover(2 * LEASE + 1)
    assert caught.value.members["limit"] == "spools.bytes"
    reservations.new("bob").cover(4 * LEASE)
    one.close()
    one.close()
    other.cover(4 * LEASE)
    other.close()
    assert reservations._reserved == {"bob": 4 * LEASE}


def test_what_is_needed_is_reserved_where_there_is_room_for_no_more(
    reservations: Reservations,
) -> None:
    one = reservations.new("alice")
    reservations.new("alice").cover(3 * LEASE)
    one.cover(LEASE - 2)
    last = Reservation(reservations, "bob")
    reservations.change("bob", 4 * LEASE - 7)
    last.cover(5)
    last.cover(7)
    with pytest.raises(QuotaExceededError):
        last.cover(8)
    assert reservations._reserved == {"alice": 4 * LEASE, "bob": 4 * LEASE}


def test_the_reserve_is_not_reserved(tmp_path: Path) -> None:
    class NoSpace(Space):
        def check(self, nbytes: int) -> None:
            raise StorageFullError(str(nbytes))

    reservations = Reservations(Presence(), 1 << 40, NoSpace(tmp_path, 0))
    with pytest.raises(StorageFullError):
        reservations.new("alice").cover(1)


def test_workers_keep_to_one_limit_until_one_dies(tmp_path: Path) -> None:
    reservations = Reservations(Presence(tmp_path), 4 * LEASE)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path), str(3 * LEASE)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "has it\n"
    reservation = reservations.new("alice")
    reservation.cover(LEASE)
    with pytest.raises(QuotaExceededError) as caught:
        reservation.cover(LEASE + 1)
    assert caught.value.members["used"] == 4 * LEASE
    other.send_signal(signal.SIGKILL)
    other.communicate()
    reservation.cover(4 * LEASE)
    assert len(list(tmp_path.glob("*.json"))) == 1
    reservations.close()


def test_threads_keep_to_the_limit(tmp_path: Path) -> None:
    workers = [Reservations(Presence(tmp_path), 10 * LEASE) for _ in range(2)]
    taken: list[int] = []

    def take(reservations: Reservations) -> None:
        reservation = reservations.new("alice")
        for k in range(1, 8):
            try:
                reservation.cover(k * LEASE)
            except QuotaExceededError:
                break
            taken.append(k)

    threads = [threading.Thread(target=take, args=(workers[k % 2],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 10
    for reservations in workers:
        reservations.close()


def test_a_file_without_sense_counts_nothing(tmp_path: Path) -> None:
    one, other = Reservations(Presence(tmp_path), LEASE), Reservations(Presence(tmp_path), LEASE)
    assert other.presence.file is not None
    os.pwrite(other.presence.file, b"{nonsense", 0)
    one.new("alice").cover(1)
    one.close()
    other.close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        Presence(tmp_path / "file" / "reservations")
