"""Reductions of views: in parallel, in stretches whose results are kept."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.engine.base import Engine
from app.errors import InvalidOptionError
from core.tiles.plan import MAX_TILE_BYTES, Plan, Tile, make_plan
from core.tiles.reader import TileReader
from core.tiles.reduce import Partial, Reducer, parse_reduction

from .partials import PartialStore
from .views import OpenView

STRETCH_BYTES = 8 << 20
"""Bytes of frames that one call reduces."""
SEGMENT_BYTES = 256 << 20
"""Bytes of frames whose result is kept."""

Progress = Callable[[int, int], None]
"""Called with (tiles done, tiles in all)."""


class CancelledError(Exception):
    """Nobody waits for the result any more."""


class ReductionJob:
    """One reduction of one view.

    Args:
        view: whose frames; open until the job is done.
        spec: of the reduction, JSON values.
        engine: computes.
        partials: keeps results of segments, so that a repeated request goes on.

    Raises:
        CoreError, ServiceError: the reduction does not fit the view.
    """

    def __init__(
        self, view: OpenView, spec: Mapping[str, Any], engine: Engine, partials: PartialStore
    ) -> None:
        self._view = view
        self._engine = engine
        self._partials = partials
        self._plan = _reading_plan(view)
        reduction = parse_reduction(spec, self._plan.sig_shape)
        self._reducer = Reducer(reduction, self._plan.sig_shape, self._plan.dtype)
        self._over_frames = reduction.over == "frames"
        self._local = threading.local()
        digest = hashlib.blake2b(json.dumps(dict(spec), sort_keys=True).encode(), digest_size=16)
        digest.update(view.tokens.identity + view.tokens.fingerprint)
        self._name = digest.hexdigest()

    def run(
        self, progress: Progress, cancelled: Callable[[], bool]
    ) -> dict[str, npt.NDArray[np.float64]]:
        """The results by name.

        Raises:
            CancelledError: ``cancelled`` said so.
            CoreError, ServiceError: the frames cannot be read.
        """
        plan = self._plan
        whole: Partial | None = None
        for first, last in self._segments():
            part = self._segment(first, last, progress, cancelled)
            whole = part if whole is None else self._reducer.merge(whole, part)
            progress(last, plan.tiles)
        assert whole is not None  # noqa: S101 - a view has a tile
        return self._reducer.finish(whole, plan.nav_shape)

    def _segments(self) -> Iterator[tuple[int, int]]:
        size = math.prod(self._plan.tile_shape) * self._plan.dtype.itemsize
        step = max(SEGMENT_BYTES // size, 1)
        for first in range(0, self._plan.tiles, step):
            yield first, min(first + step, self._plan.tiles)

    def _segment(
        self, first: int, last: int, progress: Progress, cancelled: Callable[[], bool]
    ) -> Partial:
        name = f"{self._name}-{first}-{last}"
        frames = sum(self._frames(self._plan.tile(k)) for k in range(first, last))
        kept = self._partials.get(name)
        if kept is not None and self._fits(kept, frames):
            return Partial(frames, kept)
        part = self._compute(first, last, progress, cancelled)
        self._partials.put(name, part.values)
        return part

    def _fits(self, kept: npt.NDArray[Any], frames: int) -> bool:
        pixels = math.prod(self._plan.sig_shape)
        wanted = pixels if self._over_frames else frames
        return kept.dtype == np.float64 and wanted in kept.shape and kept.ndim == 2  # noqa: PLR2004

    def _frames(self, tile: Tile) -> int:
        return math.prod(tile.shape[: len(self._plan.nav_shape)])

    def _compute(
        self, first: int, last: int, progress: Progress, cancelled: Callable[[], bool]
    ) -> Partial:
        """Stretches side by side, merged in order."""
        running: deque[Future[Partial]] = deque()
        coming = first
        whole: Partial | None = None
        try:
            while coming < last or running:
                while coming < last and len(running) < 2 * self._engine.width:
                    running.append(self._engine.submit(self._stretch, coming))
                    coming += 1
                part = running.popleft().result()
                whole = part if whole is None else self._reducer.merge(whole, part)
                progress(coming - len(running), self._plan.tiles)
                if cancelled():
                    raise CancelledError
        finally:
            for each in running:
                each.cancel()
            for each in running:
                if not each.cancelled():
                    each.exception()
        assert whole is not None  # noqa: S101 - a segment has a stretch
        return whole

    def _stretch(self, index: int) -> Partial:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            dataset = self._view.dataset
            frames = dataset.frames()
            reader = TileReader(self._plan, dataset.recording, frames, dataset.corrections)
            self._local.reader = reader
        values = reader.read(self._plan.tile(index))
        return self._reducer.partial(values.reshape(-1, *self._plan.sig_shape))


def _reading_plan(view: OpenView) -> Plan:
    """The same frames as whole ones of a floating type, in tiles of many."""
    plan, dataset = view.plan, view.dataset
    if plan.dtype.kind == "c":
        raise InvalidOptionError("complex frames have no reductions", option="reduction")
    small = plan.dtype.itemsize <= 2 or plan.dtype == np.float32  # noqa: PLR2004
    dtype = np.dtype("<f4" if small else "<f8")
    frame = math.prod(plan.sig_shape) * dtype.itemsize
    if frame > MAX_TILE_BYTES:
        raise InvalidOptionError("a frame is too large to be reduced", option="view")
    wanted = replace(
        view.view,
        dtype=dtype.str,
        tile_shape=None,
        target_bytes=max(STRETCH_BYTES, frame),
    )
    return make_plan(
        dataset.recording,
        wanted,
        nav_shape=dataset.nav_shape,
        sync_offset=dataset.sync_offset,
    )
