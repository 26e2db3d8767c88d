"""Jobs in processes of their own, and the memory that these are lent."""

from __future__ import annotations

import threading
from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np
import pytest

from app.engine.ledger import Ledger
from app.errors import BusyError, ShareExceededError
from app.runs.sealing import alone as module
from app.runs.sealing.alone import Alone, LentLedger
from app.runs.sealing.jobs import Job, Variant
from app.settings import Settings
from tests.app.runs.uploaded import Uploads
from tests.runs import random_run
from tests.scale import PURE_PYTHON

JOB = Job("alice", "run", ("melt",), Variant(), seals=True)


@pytest.mark.skipif(PURE_PYTHON, reason="the process has kernels of its own")
def test_a_suspect_is_computed_in_a_process_whose_memory_is_counted(tmp_path: Path) -> None:
    service = Uploads(tmp_path)
    ledger = service.sealer.sealing.losses.ledger
    run = service.run(["melt"])
    service.upload(run, random_run(np.random.default_rng(4)).stream.encode())
    service.sealer.seal(service.now(run))
    (job,) = service.sealer.jobs.of_run(run.owner, run.id)
    assert service.sealer.jobs.change(job, suspect=True) is not None
    assert ledger.peak == 0
    service.sealer.look()
    assert service.now(run).state == "done"
    # Its rows are computed in 2 MiB or more for each thread.
    assert ledger.peak >= 4 << 20
    assert ledger.held == 0
    assert service.sealer.jobs.of_run(run.owner, run.id) == []


def test_a_process_that_is_stopped_has_not_begun(tmp_path: Path) -> None:
    alone = Alone(Settings(data_dir=tmp_path), Ledger(1, 1))
    alone.stop()
    death = alone.run(JOB)
    assert death is not None
    assert not death.own
    assert death.reason.startswith("SIGTERM at ")


PROCESS = """
import os, signal, sys
from multiprocessing.connection import Connection
parent = Connection(int(sys.argv[1]))
parent.recv()
parent.send(None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("short", [False, True])
def test_a_process_that_fell_to_the_need_of_others_is_not_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    (tmp_path / "killed.py").write_text(PROCESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "PROGRAM", "killed")
    kills = iter([0, int(short)])
    monkeypatch.setattr(module, "count_memory_kills", lambda: next(kills))
    death = Alone(Settings(), Ledger(1, 1)).run(JOB)
    assert death is not None
    assert death.reason.startswith("SIGKILL at ")
    assert death.own is not short


def test_memory_is_lent_and_comes_back_when_the_process_ends() -> None:
    ledger = Ledger(100, 60)
    alone = Alone(Settings(), ledger)
    here, there = Pipe()
    lent_at_most: list[int | None] = []
    attending = threading.Thread(target=lambda: lent_at_most.append(alone._attend(here, JOB)))
    attending.start()
    _, job = there.recv()
    assert job == JOB
    lent = LentLedger(there, 100, 60)
    there.send(None)
    hold = lent.hold("alice", 40, "sealing")
    assert (ledger._tally.of("alice"), lent.held) == (40, 40)
    other = ledger.hold("alice", 15, "posts")
    with pytest.raises(ShareExceededError):
        hold.grow(10)
    other.release()
    with ledger.hold("bob", 50, "posts"), pytest.raises(BusyError):
        hold.grow(11)
    assert (ledger.held, lent.held) == (40, 40)
    hold.shrink(15)
    hold.grow(1)
    assert (ledger.held, lent.held) == (26, 26)
    there.close()
    attending.join()
    here.close()
    # The process may outlive its worker for a moment.
    hold.shrink(1)
    with pytest.raises(BusyError):
        hold.grow(1)
    assert lent.held == hold.nbytes == 25
    assert lent_at_most == [40]
    assert (ledger.held, ledger.owners) == (0, 0)
