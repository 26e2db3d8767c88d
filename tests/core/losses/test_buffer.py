from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from core.losses.buffer import ByteBuffer, as_octets, is_aligned


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(0, 9)), max_size=12))
@example([(bytes(12), 2), (b"abc", 1), (bytes(14), 3), (bytes(30), 9), (b"de", 9)])
def test_bytes_leave_in_the_order_in_which_they_came(steps: list[tuple[bytes, int]]) -> None:
    buffer, expected = ByteBuffer(16), b""
    for octets, words in steps:
        buffer.append(as_octets(octets))
        expected += octets
        assert (bytes(buffer.view), len(buffer)) == (expected, len(expected))
        assert is_aligned(buffer.view)
        gone = min(4 * words, len(expected))
        buffer.consume(gone)
        expected = expected[gone:]
        assert (bytes(buffer.view), len(buffer)) == (expected, len(expected))
    buffer.clear()
    assert not len(buffer.view)
