from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from app.runs.results.segments import SegmentSums
from core.budget import current
from core.errors import CancelledError
from tests.app.runs.uploaded import Uploads
from tests.runs import random_run


def test_sums_added_up_ahead_end_with_their_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_run(np.random.default_rng(9))
    monkeypatch.setattr("app.losses.sections._WINDOW", 256)
    service = Uploads(tmp_path)
    service.sealer.sealing.segment = 400
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["aal"], inputs, no_of_periods=case.periods)
    stream = service.extend(service.add(run), case.stream.encode()[:900], complete=False)
    ends: list[str] = []

    def add_up(*_arguments: object) -> None:
        service.streams.delete(service.now(run), stream.id)
        for _ in range(1000):
            try:
                current().check("sums")
            except CancelledError as e:
                ends.append(str(e))
                raise
            time.sleep(0.01)

    monkeypatch.setattr(SegmentSums, "publish", add_up)
    assert service.sealer.ahead.work()
    assert ends == ["the client left"]
