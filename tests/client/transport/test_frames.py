from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.errors import ProtocolError
from app.client.transport.frames import Frame, Kind

from ..fakes.frames import DATA, END, BytesReader, frame
from ..fakes.losses import ROWS

TABLE = np.array([(1, 0.5), (2, 0.25)], ROWS)
ABOUT = {"name": "rows", "dtype": ROWS.descr, "shape": [2], "offset": 0, "nbytes": 16}
OCTETS = (
    frame(DATA, {"arrays": [ABOUT]}, TABLE.tobytes(), 0, 1)
    + frame(DATA, {"x": "ö"}, b"", 1)
    + frame(END, {}, b"", 2)
)


def key(read: Frame) -> Any:  # noqa: ANN401
    return read.kind, read.more, read.header, read.payload.tobytes()


def test_frames_are_taken_apart() -> None:
    reader = BytesReader()
    first, second, third = reader.receive(OCTETS)
    assert (first.kind, first.more, second.header) == (Kind.DATA, True, {"x": "ö"})
    assert (third.kind, third.more, len(third.payload)) == (Kind.END, False, 0)
    assert np.array_equal(first.array("rows"), TABLE)


@given(st.lists(st.integers(0, len(OCTETS)), max_size=20))
def test_any_cut_gives_the_same_frames(cuts: list[int]) -> None:
    reader = BytesReader()
    edges = [0, *sorted(cuts), len(OCTETS)]
    got = [f for a, b in itertools.pairwise(edges) for f in reader.receive(OCTETS[a:b])]
    assert list(map(key, got)) == list(map(key, BytesReader().receive(OCTETS)))


def test_reading_into_its_memory_gives_the_same() -> None:
    for step in (1, 7, 1000):
        reader, got, at = BytesReader(), [], 0
        while at < len(OCTETS):
            view = reader.buffer()
            assert len(view)
            count = min(step, len(view))
            view[:count] = OCTETS[at : at + count]
            at += count
            read = reader.advance(count)
            got += [read] if read else []
        assert list(map(key, got)) == list(map(key, BytesReader().receive(OCTETS)))


def test_a_change_of_any_byte_is_noticed() -> None:
    for at in range(len(OCTETS)):
        for bit in (1, 128):
            damaged = bytearray(OCTETS)
            damaged[at] ^= bit
            reader = BytesReader()
            try:
                got = reader.receive(bytes(damaged))
            except ProtocolError:
                continue
            # A length that has grown: the reader waits for what does not come.
            assert len(got) < 3


def test_order_and_sizes_are_checked() -> None:
    with pytest.raises(ProtocolError, match="came where 0 was due"):
        BytesReader().receive(frame(DATA, {}, b"", 1))
    with pytest.raises(ProtocolError, match="not made of frames"):
        BytesReader().receive(b"EventId,Loss\n" + bytes(32))
    huge = struct.pack("<4sBBHIQQI", b"TWG1", 1, 0, 0, 0, 1 << 60, 0, 0)
    with pytest.raises(ProtocolError, match="claims to have"):
        BytesReader().receive(huge)


@pytest.mark.parametrize(
    "about",
    [
        {},
        {**ABOUT, "name": "others"},
        {**ABOUT, "nbytes": 15},
        {**ABOUT, "nbytes": 160},
        {**ABOUT, "offset": 8},
        {**ABOUT, "offset": -16},
        {**ABOUT, "dtype": [["a", "nonsense"]]},
        {**ABOUT, "dtype": 5},
        {**ABOUT, "shape": [3]},
    ],
)
def test_arrays_described_wrongly(about: dict[str, Any]) -> None:
    (read,) = BytesReader().receive(frame(DATA, {"arrays": [about]}, TABLE.tobytes(), 0))
    with pytest.raises(ProtocolError):
        read.array("rows")


def test_headers_that_are_no_objects() -> None:
    for text in (b"[]", b"{", b"\xff"):
        with pytest.raises(ProtocolError):
            BytesReader().receive(frame(DATA, text, b"", 0))


def test_simple_dtypes() -> None:
    about = {"name": "x", "dtype": "<f4", "shape": [2, 2], "offset": 0, "nbytes": 16}
    (read,) = BytesReader().receive(frame(DATA, {"arrays": [about]}, bytes(16), 0))
    assert read.array("x").shape == (2, 2)


def prefix(kind: int, header: int, payload: int) -> bytes:
    return struct.pack("<4sBBHIQQI", b"TWG1", kind, 0, 0, header, payload, 0, 0)


def test_what_a_frame_may_claim() -> None:
    for header, payload in ((1 << 20, 0), (2, 1 << 31)):
        reader = BytesReader(memory=lambda *_: np.empty(1, np.uint8))
        assert reader.receive(prefix(DATA, header, payload)) == []
        assert len(reader.buffer()) == header
    for header, payload in (((1 << 20) + 1, 0), (2, (1 << 31) + 1)):
        with pytest.raises(ProtocolError, match="claims to have"):
            BytesReader().receive(prefix(DATA, header, payload))
    for kind in (0, 6, 255):
        with pytest.raises(ProtocolError, match="not made of frames"):
            BytesReader().receive(prefix(kind, 0, 0))
    for kind in range(1, 6):
        assert BytesReader().receive(frame(kind, {}, b"", 0))[0].kind == kind


def test_other_flags_are_not_more() -> None:
    for flags, more in ((0, False), (1, True), (2, False), (3, True)):
        (read,) = BytesReader().receive(frame(DATA, {}, b"", 0, flags))
        assert read.more is more


def test_a_payload_is_read_into_the_memory_it_is_given() -> None:
    mine = np.zeros(100, np.uint8)
    asked: list[Any] = []

    def memory(kind: Kind, header: dict[str, Any], size: int) -> Any:  # noqa: ANN401
        asked.append((kind, header, size))
        return mine[:size]

    reader = BytesReader(memory)
    (read,) = reader.receive(frame(DATA, {"x": 1}, b"payload", 0))
    assert asked == [(Kind.DATA, {"x": 1}, 7)]
    assert read.header == {"x": 1}
    assert np.shares_memory(read.payload, mine)
    assert mine[:8].tobytes() == b"payload\0"
    (read,) = reader.receive(frame(END, {"y": 2}, b"", 1))
    assert (read.header, asked[1]) == ({"y": 2}, (Kind.END, {"y": 2}, 0))


def test_memory_that_is_refused() -> None:
    def refuse(*_: Any) -> Any:  # noqa: ANN401
        raise ProtocolError("no")

    with pytest.raises(ProtocolError, match="no"):
        BytesReader(refuse).receive(frame(DATA, {}, b"payload", 0))
