from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.losses import window as _window
from app.client.losses.window import Window
from tests.descriptors import nothing_left_open


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(_window, "BLOCK", 64)
    yield
    patch.undo()


def add(window: Window, data: bytes) -> None:
    view = memoryview(data)
    while view:
        room = window.room()
        count = min(len(room), len(view))
        room[:count] = view[:count]
        window.added(count)
        view = view[count:]


STEPS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300)), max_size=30
)


@given(STEPS, st.integers(0, 400))
def test_what_is_held_can_be_read(steps: list[tuple[int, int, int]], in_memory: int) -> None:
    window = Window(in_memory)
    rng = np.random.default_rng(1)
    whole = b""
    for size, back, release in steps:
        data = rng.bytes(size)
        whole += data
        add(window, data)
        start = max(window.start, window.stop - back)
        pieces = [bytes(view) for view in window.views(start, window.stop)]
        assert b"".join(pieces) == whole[start:]
        assert all(len(piece) <= 64 for piece in pieces)
        window.release(min(window.start + release, window.stop))
    window.close()


def test_memory_is_bounded_and_disk_used_again() -> None:
    window = Window(2 * 64)
    for _ in range(50):
        add(window, bytes(640))
        assert len(window._blocks) <= 2
        window.release(window.stop - 320)
    assert window._slots < 20
    window.close()
    window.close()


def test_a_release_beyond_the_end_is_none_of_what_comes() -> None:
    window = Window()
    add(window, b"abc")
    window.release(1000)
    add(window, b"def")
    assert b"".join(map(bytes, window.views(3, 6))) == b"def"
    window.close()


def test_the_file_is_closed() -> None:
    with nothing_left_open():
        window = Window(128)
        add(window, bytes(6400))
        assert window._spill_fd >= 0
        window.close()
