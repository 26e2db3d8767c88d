"""Claims of all workers on space for rows that wait, and their end."""

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
from app.state.claims import LEASE, Claims
from app.state.presence import Presence
from app.state.space import Space

ROOT = Path(__file__).parents[3]
OTHER = """
import sys
from pathlib import Path
from app.state.claims import Claims
from app.state.presence import Presence
claims = Claims(Presence(Path(sys.argv[1])), 1 << 40)
claim = claims.new("alice")
claim.cover(int(sys.argv[2]))
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["directory", "memory"])
def claims(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Claims]:
    directory = tmp_path / "claims" if request.param == "directory" else None
    made = Claims(Presence(directory), 4 * LEASE)
    yield made
    made.close()
    made.close()


def test_claims_are_counted_and_given_back(claims: Claims) -> None:
    one, other = claims.new("alice"), claims.new("alice")
    one.cover(1)
    one.cover(LEASE)
    one.cover(LEASE + 1)
    other.cover(2 * LEASE)
    with pytest.raises(QuotaExceededError) as caught:
        other.cover(2 * LEASE + 1)
    assert caught.value.members["limit"] == "spools.bytes"
    claims.new("bob").cover(4 * LEASE)
    one.close()
    one.close()
    other.cover(4 * LEASE)
    other.close()
    assert claims._claimed == {"bob": 4 * LEASE}


def test_the_reserve_is_not_claimed(tmp_path: Path) -> None:
    class NoSpace(Space):
        def check(self, nbytes: int) -> None:
            raise StorageFullError(str(nbytes))

    claims = Claims(Presence(), 1 << 40, NoSpace(tmp_path, 0))
    with pytest.raises(StorageFullError):
        claims.new("alice").cover(1)


def test_workers_keep_to_one_limit_until_one_dies(tmp_path: Path) -> None:
    claims = Claims(Presence(tmp_path), 4 * LEASE)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path), str(3 * LEASE)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "has it\n"
    claim = claims.new("alice")
    claim.cover(LEASE)
    with pytest.raises(QuotaExceededError) as caught:
        claim.cover(LEASE + 1)
    assert caught.value.members["used"] == 4 * LEASE
    other.send_signal(signal.SIGKILL)
    other.communicate()
    claim.cover(4 * LEASE)
    assert len(list(tmp_path.glob("*.json"))) == 1
    claims.close()


def test_threads_keep_to_the_limit(tmp_path: Path) -> None:
    workers = [Claims(Presence(tmp_path), 10 * LEASE) for _ in range(2)]
    taken: list[int] = []

    def take(claims: Claims) -> None:
        claim = claims.new("alice")
        for k in range(1, 8):
            try:
                claim.cover(k * LEASE)
            except QuotaExceededError:
                break
            taken.append(k)

    threads = [threading.Thread(target=take, args=(workers[k % 2],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 10
    for claims in workers:
        claims.close()


def test_a_file_without_sense_counts_nothing(tmp_path: Path) -> None:
    one, other = Claims(Presence(tmp_path), LEASE), Claims(Presence(tmp_path), LEASE)
    assert other.presence.file is not None
    os.pwrite(other.presence.file, b"{nonsense", 0)
    one.new("alice").cover(1)
    one.close()
    other.close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        Presence(tmp_path / "file" / "claims")
