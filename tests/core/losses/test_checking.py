"""Checking streams: what an analysis takes and refuses, and how far a faulty one is right."""

from __future__ import annotations

import pytest

from core.errors import CoreError, StateError, TruncatedError
from core.losses.analysis import Analysis, StreamCheck
from core.losses.policy import Policy
from tests.scale import PURE_PYTHON
from tests.streams import Block, Stream

PAIRS = ((-1, 2.5), (1, 1.0), (3, 4.0))
GOOD = Stream(
    "summary", 4, 4, tuple(Block(e, i, PAIRS) for e in (1, 2, 5) for i in (1, 2))
).encode()


def fault_of(receiver: StreamCheck | Analysis, data: bytes, size: int) -> CoreError | None:
    try:
        for at in range(0, len(data), size):
            receiver.receive(data[at : at + size])
        receiver.close()
    except CoreError as e:
        return e
    return None


@pytest.mark.parametrize("size", [4, 100, 10_000])
def test_it_refuses_what_an_analysis_refuses(size: int) -> None:
    assert fault_of(StreamCheck(), GOOD, size) is None
    for at in range(0, len(GOOD), 31 if PURE_PYTHON else 3):
        for data in (GOOD[:at], GOOD[:at] + b"\xff" + GOOD[at + 1 :]):
            found = fault_of(StreamCheck(), data, size)
            expected = fault_of(Analysis(["events"], lambda _name, _rows: None), data, size)
            assert (str(found), type(found)) == (str(expected), type(expected))


def test_it_continues_at_any_position() -> None:
    for cut in range(0, len(GOOD) + 1, 4):
        first, second = StreamCheck(), StreamCheck()
        first.receive(GOOD[:cut])
        second.resume(first.position)
        second.receive(GOOD[first.position.offset :])
        assert second.close().events == 3
    with pytest.raises(StateError):
        second.resume(first.position)


def test_a_fault_leaves_the_events_before_it() -> None:
    size = (len(GOOD) - 12) // 6
    ends = [12 + 2 * size * k for k in range(4)]

    def good_after(data: bytes) -> tuple[int, int]:
        check = StreamCheck(Policy())
        fault = fault_of(check, data, 64)
        assert fault is not None
        position = check.good_until(fault)
        return position.offset, position.events

    # In the second block of event 2: event 1 is right.
    second = bytearray(GOOD)
    second[ends[1] + size : ends[1] + size + 4] = (0).to_bytes(4, "little")
    assert good_after(bytes(second))[0] in {ends[1], ends[1] + size}
    # The first block of event 5 has an invalid sample: events 1 and 2 are right.
    third = bytearray(GOOD)
    third[ends[2] + 12 : ends[2] + 16] = (99).to_bytes(4, "little")
    assert good_after(bytes(third)) == (ends[2], 2)
    # Cut inside the first block of event 5.
    assert good_after(GOOD[: ends[2] + 16]) == (ends[2], 2)
    # Cut inside the second: event 5 has begun.
    assert good_after(GOOD[: ends[2] + size + 16]) == (ends[2], 2)
    check = StreamCheck()
    check.receive(GOOD[:-4])
    with pytest.raises(TruncatedError):
        check.close()
