from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from app.http.identity import SINGLE_USER
from app.runs.results.segments import SegmentSums
from core.budget import current
from core.errors import CancelledError
from tests.app.runs.uploaded import Uploads, partitions
from tests.runs import random_run
from tests.trace_sink import Sink


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


def test_what_is_added_up_belongs_to_the_request_that_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_run(np.random.default_rng(9))
    monkeypatch.setattr("app.losses.sections._WINDOW", 256)
    sink = Sink()
    service = Uploads(tmp_path, traces=sink.url, traces_sample=1)
    service.sealer.sealing.segment = 400
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["aal"], inputs, no_of_periods=case.periods)
    budgets, tracing = service.state.budgets, service.state.tracing
    patch, seal = tracing.begin("patch"), tracing.begin("seal it")
    with budgets.of_request(SINGLE_USER.owner, threading.Event(), patch):
        first, *others = partitions(case, 1, 2)
        service.upload(run, first)
    assert service.sealer.ahead.work()
    with budgets.of_request(SINGLE_USER.owner, threading.Event(), seal):
        service.upload(run, *others)
        service.sealer.seal(service.now(run))
    # A process that knows nothing but the job goes on with its trace.
    service.sealer.look()
    assert service.now(run).state == "done"
    for trace in (patch, seal):
        trace.end()
    tracing.close()
    sink.close()
    (ahead,) = sink.named("seal ahead")
    (job,) = sink.named("seal")
    assert (ahead.trace, job.trace) == (patch.ident, seal.ident)
    assert patch.ident != seal.ident
    segments = sink.named("segment")
    assert {span.parent for span in segments} == {ahead.id, job.id}
    assert all(span.values["thalweg.bytes"] > 0 for span in segments)
