from __future__ import annotations

import pytest

from app.client.errors import ProblemError, ProtocolError
from app.client.losses.ndjson import RowLines

LINES = (
    b'{"EventId":1}\n{"checkpoint": {"token": "t", "offset": 3}}\n{"EventId":2}\n'
    b'{"EventId":3}\n{"end": {"reason": "complete"}}\n'
)
ROWS = b'{"EventId":1}\n{"EventId":2}\n{"EventId":3}\n'


def test_rows_only_however_they_are_cut() -> None:
    for step in range(1, len(LINES) + 1):
        lines = RowLines()
        got = [lines.feed(memoryview(LINES)[i : i + step]) for i in range(0, len(LINES), step)]
        lines.close()
        assert b"".join(got) == ROWS


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
