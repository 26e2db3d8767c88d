"""Parts of a worker are made as the settings, and the number of processes, say."""

from __future__ import annotations

import pytest

from app.http.throttle import Throttle
from app.parts import make_buffers, make_ledger, make_throttle
from app.settings import Settings
from app.tally import Column, Table


def test_shares_of_owners_are_parts_of_all() -> None:
    column = Column(Table())
    settings = Settings(memory_limit=1 << 30, buffers=20, max_requests=40, owner_share=0.5)
    ledger = make_ledger(settings, column)
    assert (ledger.limit, ledger.share) == (1 << 30, 1 << 29)
    assert make_buffers(settings, ledger, column).limit == 20
    throttle = make_throttle(settings, column)
    assert (throttle.limit, throttle.share) == (40, 20)


@pytest.mark.parametrize(("rate", "limited"), [(None, False), (5.0, True)])
def test_only_a_rate_is_told(rate: float | None, limited: bool) -> None:
    throttle: Throttle = make_throttle(Settings(owner_rate=rate), Column(Table()))
    assert bool(throttle.headers("alice")) == limited
