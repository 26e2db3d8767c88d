"""Parts of a worker are made as the settings, and the number of processes, say."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.parts import Parts
from app.settings import Settings


def test_shares_of_owners_are_parts_of_all(tmp_path: Path) -> None:
    bounds = Settings(
        data_dir=tmp_path, memory_limit=1 << 30, buffers=20, max_requests=40, owner_share=0.5
    )
    parts = Parts(bounds)
    assert (parts.ledger.limit, parts.ledger.share) == (1 << 30, 1 << 29)
    assert parts.buffers.limit == 20
    assert (parts.throttle.limit, parts.throttle.share) == (40, 20)


@pytest.mark.parametrize(("rate", "limited"), [(None, False), (5.0, True)])
def test_only_a_rate_is_told(tmp_path: Path, rate: float | None, limited: bool) -> None:
    parts = Parts(Settings(data_dir=tmp_path, owner_rate=rate))
    assert bool(parts.throttle.headers("alice")) == limited
