"""Views that just fit the data, and those that just do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.errors import SelectionError
from core.tiles.plan import Plan, make_plan
from core.tiles.recording import Extent, Recording
from core.tiles.view import parse_view


def recording(frames: int, nav_shape: tuple[int, ...]) -> Recording:
    return Recording(
        format="raw",
        extents=(Extent(file=0, offset=0, frames=frames, stride=2),),
        sig_shape=(1, 1),
        nav_shape=nav_shape,
        dtype=np.dtype("u2"),
        stored=np.dtype("<u2"),
        frame_bytes=2,
    )


def plan(frames: int, nav_shape: tuple[int, ...], **spec: Any) -> Plan:  # noqa: ANN401
    return make_plan(recording(frames, nav_shape), parse_view(spec))


@pytest.mark.parametrize("missing", ["skip", "zero"])
def test_a_scan_may_begin_at_any_frame_there_is(missing: str) -> None:
    for sync in (-5, 5):
        made = plan(6, (2, 3), sync_offset=sync, missing=missing)
        assert made.sync_offset == sync
    for sync in (-6, 6, -7, 7):
        with pytest.raises(SelectionError, match="only 6 frames"):
            plan(6, (2, 3), sync_offset=sync, missing=missing)
