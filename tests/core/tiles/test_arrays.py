"""Arrays of a file or store: coordinates that are evenly spaced, and axes of several files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from core.arrays import Array
from core.tiles.formats.arrays import BlockArray, linear, recording_of
from core.tiles.plan import Box
from core.tiles.recording import Axis, FileInfo, Hints, Recording


def test_coordinates() -> None:
    assert linear(np.array([1.0, 1.5, 2.0])) == (0.5, 1.0)
    assert linear(np.array([3])) == (1.0, 3.0)
    assert linear(np.array([1.0, 2.0, 4.0])) is None
    assert linear(np.array([1.0, np.nan])) is None
    assert linear(np.array(["a"])) is None


@dataclass(frozen=True, eq=False)
class Described(BlockArray):
    """An array of which only the metadata is looked at."""

    def read(self, boxes: Sequence[Box]) -> Sequence[Array]:
        raise NotImplementedError


AXES = (Axis("y", 3, "nm", 2.0), Axis("x", 4, "nm", 2.0), Axis("ky", 5), Axis("kx", 6, "mrad", 0.1))


def joined(*described: tuple[Axis, ...], rows: Sequence[int] = (3, 3, 3)) -> Recording:
    files = [FileInfo(f"{k}.h5", 1 << 20) for k in range(len(described))]
    arrays = [
        Described(k, "/data", (n, 4, 5, 6), np.dtype("<u2"), (1, 1, 5, 6), axes, ())
        for k, (axes, n) in enumerate(zip(described, rows, strict=False))
    ]
    return recording_of("hdf5", files, arrays, Hints())


def with_axis(k: int, **change: object) -> tuple[Axis, ...]:
    return (*AXES[:k], replace(AXES[k], **change), *AXES[k + 1 :])  # type: ignore[arg-type]


@pytest.mark.parametrize("second", [AXES, with_axis(0, offset=6.0)])
def test_axes_on_which_files_agree_are_kept(second: tuple[Axis, ...]) -> None:
    made = joined(AXES, second)
    assert made.axes == (replace(AXES[0], size=6), *AXES[1:])
    assert not made.notes
    assert joined((), ()).axes == ()


@pytest.mark.parametrize(
    ("axis", "change", "told"),
    [
        (0, {"offset": 5.0}, "y in steps of 2 nm from 0 in 0.h5, but y in steps of 2 nm from 5 in"),
        (1, {"scale": 2.1}, "but x in steps of 2.1 nm from 0 in 2.h5"),
        (1, {"offset": 8.0}, "x in steps of 2 nm from 8 in 2.h5"),
        (2, {"name": "qy"}, "ky in steps of 1 from 0 in 0.h5, but qy"),
        (3, {"unit": None}, "but kx in steps of 0.1 from 0 in 2.h5"),
    ],
)
def test_an_axis_on_which_they_disagree_has_no_scale_and_is_noted(
    axis: int, change: dict[str, object], told: str
) -> None:
    made = joined(AXES, AXES, with_axis(axis, **change))
    sizes = (9, 4, 5, 6)
    for k, (size, found) in enumerate(zip(sizes, made.axes, strict=True)):
        bare = Axis("axis_2" if "name" in change else AXES[k].name, size)
        assert found == (bare if k == axis else replace(AXES[k], size=size))
    (note,) = made.notes
    assert note.startswith(f"axis {axis} has no scale, as files disagree: ")
    assert told in note
    assert len(joined(AXES, ()).notes) == 4


def test_of_scans_that_become_a_list_the_axes_of_frames_are_kept() -> None:
    files = [FileInfo(f"{k}.h5", 1 << 20) for k in range(2)]
    shapes = [(3, 4, 5, 6), (2, 3, 5, 6)]
    arrays = [
        Described(k, "/data", shape, np.dtype("<u2"), (1, 1, 5, 6), AXES, ())
        for k, shape in enumerate(shapes)
    ]
    made = recording_of("hdf5", files, arrays, Hints())
    assert (made.axes, made.notes) == ((Axis("axis_0", 18), *AXES[2:]), ())
