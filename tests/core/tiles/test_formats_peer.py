"""Files that a well-known reader takes wrongly or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from core.tiles.recording import Hints
from tests.core.tiles import writers
from tests.core.tiles.files import frames_of, read


@pytest.mark.parametrize("trailing", [1, 3, 64, 65, 127])
def test_headerless_files_with_bytes_behind_the_last_frame(trailing: int) -> None:
    frames = np.random.default_rng(0).integers(0, 65536, (5, 8, 8), np.uint16)
    files = writers.raw(frames, trailing=trailing)
    recording = read(files, Hints(dtype=np.dtype("<u2"), sig_shape=(8, 8)))
    assert np.array_equal(frames_of(files, recording), frames)
    assert recording.notes == (
        f"scan_0.raw: {trailing} bytes after the last whole frame are not used",
    )


def test_extents_of_several_files_tell_any_depth_of_tile_where_its_frames_are() -> None:
    frames = np.random.default_rng(0).integers(0, 65536, (20, 8, 8), np.uint16)
    files = writers.tvips(frames, splits=[10, 10])
    recording = read(files)
    assert [extent.frames for extent in recording.extents] == [10, 10]
    whole = frames_of(files, recording)
    for first in range(0, 20, 4):
        assert np.array_equal(whole[first : first + 4], frames[first : first + 4])


@pytest.mark.parametrize("count", [1, 3, 300])
def test_one_bit_frames_in_files_of_any_size(count: int) -> None:
    frames = np.random.default_rng(0).integers(0, 2, (count, 16, 64), np.uint8)
    files = writers.mib(frames, "R64", 1)
    some = {"a.mib": files["default1.mib"]}
    recording = read(some)
    assert recording.frames == count
    infos = recording.extents[0]
    assert infos.stride == 384 + 16 * 8
    first = read({"a.mib": some["a.mib"][: 2 * infos.stride]} if count > 1 else some)
    shown = {"a.mib": some["a.mib"][: first.frames * infos.stride]}
    assert np.array_equal(frames_of(shown, first), frames[: first.frames])


def test_every_frame_of_24_bits_is_right() -> None:
    frames = np.random.default_rng(0).integers(0, 1 << 24, (4, 4, 8), np.uint32)
    files = writers.mib(frames, "R64", 24)
    recording = read(files)
    assert recording.extents[0].stride == 384 + 4 * 8 * 4
    assert np.array_equal(frames_of(files, recording), frames)


def test_series_of_several_files_without_scan_positions() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (7, 3, 5), np.uint8)
    files = writers.tvips(frames, scan=[(0.0, 0.0)] * 7, splits=[2, 4, 1])
    recording = read(files)
    assert (recording.nav_shape, recording.sync_offset) == ((7,), 0)
    assert np.array_equal(frames_of(files, recording), frames)
