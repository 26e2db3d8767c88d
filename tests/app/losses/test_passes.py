"""What a pass over items takes."""

from __future__ import annotations

import pytest

from app.losses import passes
from app.losses.passes import make_pass
from app.losses.request import LossRequest
from core.errors import LimitError
from core.losses.summaries import SummarySets
from tests.streams import Block, Stream
from tests.summary_oracle import Sets

MIB = 1 << 20
ITEMS = range(1, 12_001)
SETS = SummarySets(Sets(tuple((item, item, 1) for item in ITEMS)).xref)
STREAM = Stream(
    "loss", 9, 4, tuple(Block(1, item, ((-3, 1.0), (-1, 1.0), (1, 2.0))) for item in ITEMS)
).encode()


def summarise() -> int:
    rows = 0

    def count(_set: int | None, _report: str, more: object) -> None:
        nonlocal rows
        rows += len(more)  # type: ignore[arg-type]

    request = LossRequest(reports=("selt",), sets=SETS)
    items = make_pass(request, count, lambda *_: None, None)
    items.receive(memoryview(STREAM))
    items.close()
    return rows


def test_the_sums_of_an_event_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of sums for each summary that the event touches, beyond the first MiB of rows."""
    monkeypatch.setattr(passes, "EVENT_BYTES", MIB)
    with pytest.raises(LimitError, match="the sums of the event take more than") as caught:
        summarise()
    assert caught.value.event == 1
    monkeypatch.setattr(passes, "EVENT_BYTES", 2 * MIB)
    assert summarise() == 2 * len(ITEMS)
