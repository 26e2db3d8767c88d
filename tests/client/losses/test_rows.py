from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from app.client.errors import ProblemError, ProtocolError
from app.client.losses.rows import End, Position, RowLines, RowReader, common_ids, warn_of
from app.client.transport.frames import Frame, Kind

from ..fakes.losses import ROWS

END = {
    "reason": "partial",
    "completeness": "partial",
    "events": 3,
    "bytes": 90,
    "reopened_check": "whole",
    "token": "e",
    "offset": 80,
}


def data(*events: int, after: str | None = "t", report: str = "melt", more: bool = False) -> Frame:
    rows = np.zeros(len(events), ROWS)
    rows["EventId"] = events
    about = {"name": "rows", "dtype": ROWS.descr, "shape": [len(rows)], "offset": 0}
    header = {
        "report": report,
        "token": after,
        "offset": 5,
        "arrays": [about | {"nbytes": rows.nbytes}],
    }
    return Frame(Kind.DATA, more, header, rows.view(np.uint8))


def other(kind: Kind, **header: Any) -> Frame:  # noqa: ANN401
    return Frame(kind, False, header, np.empty(0, np.uint8))


def ids(group: Any) -> list[tuple[str, list[int]]]:  # noqa: ANN401
    return [(table.report, table.rows["EventId"].tolist()) for table in group.tables]


def test_a_frame_by_itself_is_a_group() -> None:
    group = RowReader().take(data(1, 2))
    assert group is not None
    assert ids(group) == [("melt", [1, 2])]
    assert group.position == Position("t", 5)


def test_a_group_is_whole_or_not_there() -> None:
    reader = RowReader()
    assert reader.take(data(1, after="old", more=True)) is None
    assert reader.take(other(Kind.HEARTBEAT)) is None
    assert reader.take(data(1, report="qelt", after="old", more=True)) is None
    group = reader.take(data(2))
    assert ids(group) == [("melt", [1, 2]), ("qelt", [1])]


def test_a_complete_end_ends_a_group() -> None:
    reader = RowReader()
    reader.take(data(1, more=True))
    group = reader.take(other(Kind.END, **END | {"reason": "complete", "token": None}))
    assert ids(group) == [("melt", [1])]


def test_the_end_tells_the_sets_and_the_types_of_rows() -> None:
    reader = RowReader()
    told = {"sets": [2, 1], "dtypes": {"aal": [["SummaryId", "<i4"]]}}
    reader.take(other(Kind.END, **END | told | {"reason": "complete", "token": None}))
    assert reader.set_ids == (2, 1)
    assert reader.dtypes == {"aal": np.dtype([("SummaryId", "<i4")])}


def test_any_other_end_drops_the_group() -> None:
    reader = RowReader()
    reader.take(data(1, more=True))
    group = reader.take(other(Kind.END, **END))
    assert ids(group) == []
    assert group is not None
    assert group.position == Position("e", 80)
    assert reader.end == End("partial", "partial", 3, 90, "whole")


def test_a_complete_end_has_no_position() -> None:
    group = RowReader().take(other(Kind.END, **END | {"reason": "complete", "token": None}))
    assert group is not None
    assert group.position is None


def test_an_error_drops_the_group() -> None:
    reader = RowReader()
    reader.take(data(1, more=True))
    problem = {"problem": {"code": "x", "status": 400}, "token": "g", "offset": 4}
    with pytest.raises(ProblemError) as caught:
        reader.take(other(Kind.ERROR, **problem))
    error = caught.value
    assert (error.code, error.status, error.token, error.resume_offset) == ("x", 400, "g", 4)


@pytest.mark.parametrize(
    "wrong",
    [
        other(Kind.EPOCH),
        other(Kind.ERROR),
        other(Kind.END),
        other(Kind.END, **END | {"token": None}),
        other(Kind.END, **END | {"events": "many"}),
        data(1, after=None),
        Frame(Kind.DATA, False, {}, np.empty(0, np.uint8)),
    ],
)
def test_what_the_contract_does_not_allow(wrong: Frame) -> None:
    with pytest.raises(ProtocolError):
        RowReader().take(wrong)


def test_nothing_comes_behind_the_end() -> None:
    reader = RowReader()
    reader.take(other(Kind.END, **END))
    with pytest.raises(ProtocolError):
        reader.take(data(1))


def test_tables_without_rows_are_not_handed_out() -> None:
    group = RowReader().take(data())
    assert group is not None
    assert group.tables == ()


LINES = (
    b'{"EventId":1}\n{"checkpoint": {"token": "t", "offset": 3}}\n{"EventId":2}\n'
    b'{"EventId":3}\n{"end": {"reason": "complete"}}\n'
)
ROW_LINES = b'{"EventId":1}\n{"EventId":2}\n{"EventId":3}\n'


def test_rows_only_however_they_are_cut() -> None:
    for step in range(1, len(LINES) + 1):
        lines = RowLines()
        got = [lines.feed(memoryview(LINES)[i : i + step]) for i in range(0, len(LINES), step)]
        lines.close()
        assert b"".join(got) == ROW_LINES


def test_an_answer_without_its_end_was_cut() -> None:
    for cut in range(len(LINES)):
        lines = RowLines()
        lines.feed(LINES[:cut])
        with pytest.raises(ProtocolError):
            lines.close()


def test_an_error_line() -> None:
    with pytest.raises(ProblemError) as caught:
        RowLines().feed(b'{"EventId":1}\n{"error": {"code": "x", "status": 400}}\n')
    assert (caught.value.code, caught.value.status) == ("x", 400)
    with pytest.raises(ProtocolError):
        RowLines().feed(b'{"error": \n')


def test_rows_that_are_missing_for_a_reason_are_warned_of_where_the_package_was_called() -> None:
    told: dict[str, Any] = {"events_without_occurrence": 1200, "events_only_in_occurrence": 2}
    told |= {"missing_event_ids": "7,60001-70000"}
    end = End.parse(END | {"events": 2000} | told)
    assert end.missing_ids == {"event_ids": "7,60001-70000"}
    with warnings.catch_warnings(record=True, action="always") as caught:
        end.warn()
    texts = [str(warning.message) for warning in caught]
    assert texts[1:] == ["no row has these of event_ids: 7,60001-70000"]
    assert "1,200 events of the stream never occur" in texts[0]
    assert {warning.filename for warning in caught} == {__file__}
    bare = End.parse(END | {"events": 2000, "blocks_without_exposure": "3"})
    assert bare.blocks_without_exposure == 3
    bare.warn()  # as in the peer's tables; the command says it
    few = End.parse(END | {"events": 2000, "events_only_in_occurrence": 20})
    few.warn()  # less than one in a hundred: any model has such events
    with pytest.warns(UserWarning, match="is a partition missing"):
        warn_of({"events_only_in_occurrence": "21"})


def test_ids_are_missing_that_every_part_lacks() -> None:
    some = {"event_ids": "7,60001-60003", "summary_ids": "2"}
    assert common_ids(some, {"event_ids": "8,60002-60010,..."}) == {"event_ids": "60002,60003"}
    assert common_ids(some, {}) == {}
