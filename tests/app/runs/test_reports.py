"""Reports of runs as clients ask for them: pictures, and what is said of rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.http.identity import SINGLE_USER
from app.losses.pictures.options import PictureOptions
from app.runs.records import RunRecord
from core.losses.reports import REPORTS
from tests.app.losses.pictures.tables import draw
from tests.app.runs.uploaded import Uploads
from tests.runs import random_run


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    running = Uploads(tmp_path_factory.mktemp("service"))
    yield running
    running.sealer.close()


def test_pictures_have_the_options_of_posts(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    run = service.run(["ept"], inputs, no_of_periods=case.periods)
    service.upload(run, case.stream.encode())
    assert service.seal(run).state == "done"

    def get(query: str, **headers: str) -> httpx.Response:
        path = f"/v1/runs/{run.id}/reports/ept?{query}"
        return asyncio.run(service.get(path, headers=headers))

    answer = get("format=bin")
    dtype = np.dtype([tuple(field) for field in json.loads(answer.headers["Thalweg-Dtype"])])
    assert dtype == REPORTS["ept"].dtype(4)
    rows = np.frombuffer(answer.content, dtype)
    few = np.unique(rows["SummaryId"])[:1]
    options = PictureOptions(
        theme="dark", tail_means=True, currency="EUR", perspective="gul", summary_ids=few
    )
    query = f"format=svg&theme=dark&plot_tvar=true&currency=EUR&summary_ids={few[0]}"
    answer = get(query)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.content == draw("ept", {"ept": rows}, options)
    tag = answer.headers["etag"]
    assert get(query, **{"If-None-Match": tag}).status_code == 304
    plain = get("format=svg")
    assert plain.headers["etag"] != tag
    assert plain.content == draw("ept", {"ept": rows}, PictureOptions(perspective="gul"))
    # Pictures for one request are not stored.
    assert len(service.streams.blobs.list("report", run.id).blobs) == 2
    assert get("format=svg&currency=euro").status_code == 422


def test_rows_that_a_report_has_not_are_told(service: Uploads) -> None:
    case = random_run(np.random.default_rng(4))
    inputs = {"occurrence": service.occurrence(case)}
    given: dict[str, Any] = {
        "no_of_periods": case.periods,
        "return_periods": [case.periods + 1, 2],
    }
    all_rows = service.run(["ept", "melt"], inputs, **given)
    no_rows = service.run(["ept", "melt"], inputs, **given, summary_ids="2147483647")
    for run in (all_rows, no_rows):
        service.upload(run, case.stream.encode())
        assert service.seal(run).state == "done"

    def told(run: RunRecord, query: str) -> tuple[str | None, str | None, int]:
        path = f"/v1/runs/{run.id}/reports/{query}"
        answer = asyncio.run(service.get(path, headers={"Accept": "text/csv"}))
        assert answer.status_code == 200
        headers = answer.headers
        return (
            headers.get("Thalweg-Selected-Rows"),
            headers.get("Thalweg-Longest-Return-Period"),
            len(answer.text.splitlines()) - 1,
        )

    count, years = told(all_rows, "melt")[-1], str(case.periods)
    assert told(all_rows, "melt") == (None, None, count)
    assert told(all_rows, "melt?summary_ids=1-1000") == (str(count), None, count)
    assert told(all_rows, "melt?summary_ids=2147483647") == ("0", None, 0)
    assert told(all_rows, "melt?event_ids=2147483647") == ("0", None, 0)
    assert told(all_rows, "ept")[:2] == (None, years)
    assert told(no_rows, "melt") == ("0", None, 0)
    assert told(no_rows, "ept") == ("0", years, 0)
    # An input that is gone has nothing told of it.
    service.state.losses.inputs.delete(SINGLE_USER, "occurrence", inputs["occurrence"])
    assert told(no_rows, "ept") == ("0", None, 0)
