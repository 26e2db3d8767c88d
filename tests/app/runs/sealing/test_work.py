"""Memory of sums while a run is sealed."""

from __future__ import annotations

import pytest

from app.engine.ledger import Ledger
from app.errors import TooLargeError
from app.runs.sealing.work import SumsMemory


def test_sums_that_must_be_in_memory_are_refused_with_a_way_out() -> None:
    ledger = Ledger(10_000, 5_000)
    with ledger.hold("alice", 0, "sealing") as hold:
        memory = SumsMemory(hold, 1_000)
        assert memory(800, required=False)
        # What may go to the disk goes there; one summary of a report may not.
        assert not memory(800, required=False)
        assert memory(3_000, required=True)
        with pytest.raises(TooLargeError) as refused:
            memory(2_000, required=True)
        assert "return_periods" in str(refused.value.hint)
        memory.release()
        assert hold.nbytes == 0
