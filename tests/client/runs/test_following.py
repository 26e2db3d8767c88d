"""Rows and events of a run, each once, with either client."""

from __future__ import annotations

import numpy as np
import pytest

from app.client import Client, ProblemError, ProtocolError, RunRows
from app.client.runs.following import EventLines

from ..conftest import Connect
from ..fakes.exchange import Fault
from ..fakes.runs import RUN
from ..fakes.service import FakeService


@pytest.fixture(autouse=True)
def _streams(service: FakeService, client: Client) -> None:
    for partition in (1, 2):
        client.runs.upload(RUN, b"bytes", partition=partition)
    del service.seen[:]


def expected(service: FakeService) -> bytes:
    return b"".join(service.run.rows(partition).tobytes() for partition in (1, 2))


def joined(rows: list[RunRows]) -> bytes:
    return np.concatenate([table.rows for table in rows]).tobytes()


def test_rows_come_once_however_often_they_are_cut(service: FakeService, connect: Connect) -> None:
    service.script[:] = [Fault(cut=n) for n in range(0, 3000, 211)]
    service.script[3:3] = [Fault(drain=1), Fault(status=503)]
    answer = connect(service, retries=9).runs.rows(RUN, "melt", follow=True, stream="s1")
    assert joined(list(answer)) == expected(service)
    assert answer.end == "sealed"
    query = service.seen[-1].query
    assert query["follow"] == "true"
    assert (query["stream"], query["format"]) == ("s1", "frames")


def test_rows_resume_after_any_token(service: FakeService, client: Client) -> None:
    rows = list(client.runs.rows(RUN, "melt"))
    assert [table.partition for table in rows] == [1] * 5 + [2] * 5
    assert [table.stream for table in rows] == ["s1"] * 5 + ["s2"] * 5
    for i, table in enumerate(rows[:-1]):
        rest = list(client.runs.rows(RUN, "melt", after=table.token))
        assert joined(rows[: i + 1]) + joined(rest) == expected(service)


def test_events_come_once_however_often_they_are_cut(
    service: FakeService, connect: Connect
) -> None:
    service.script[:] = [Fault(cut=n) for n in range(0, 500, 31)]
    events = list(connect(service, retries=20).runs.watch(RUN))
    assert [event.data["number"] for event in events] == [1, 2, 3, 4, 5]
    assert [event.id for event in events] == ["1", "2", "3", "4", "5"]
    assert {event.kind for event in events} == {"state"}
    later = list(connect(service).runs.watch(RUN, after="3"))
    assert [event.id for event in later] == ["4", "5"]


def test_what_is_refused_is_raised(service: FakeService, client: Client) -> None:
    service.script[:] = [Fault(status=412), Fault(status=404)]
    with pytest.raises(ProblemError):
        list(client.runs.rows(RUN, "melt", after="1"))
    with pytest.raises(ProblemError):
        list(client.runs.watch(RUN))


def test_events_however_they_are_cut() -> None:
    text = 'id:1\ndata: {"a":\ndata: 1}\n\n:beat\n\nevent: end\nid: 2\r\ndata: {}\r\n\r\n'
    whole = list(EventLines().feed(text.encode()))
    assert [(e.id, e.kind, e.data) for e in whole] == [("1", "message", {"a": 1}), ("2", "end", {})]
    lines = EventLines()
    assert [e for byte in text.encode() for e in lines.feed(bytes([byte]))] == whole
    for wrong in ("data: {\n\n", "data: []\n\n"):
        with pytest.raises(ProtocolError):
            list(EventLines().feed(wrong.encode()))
