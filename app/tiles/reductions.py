"""Reductions of views, computed in parallel and resumed from stored partial results.

The frames of a view are divided twice:

    view     ├────────────────────────────────┤
    segments ├───────┼───────┼───────┼────────┤   256 MiB; the result of each is stored
    chunks   ├─┼─┼─┼─┤                            8 MiB; one call of the engine reduces each

Chunks run side by side and are merged in order, as segments are, so the printed digits do
not depend on how many run at once. A stored segment is named by the digest of the view,
the reduction and the data's fingerprint: a request repeated after a failure computes only
the segments that are missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from app.engine.base import Cluster, in_order
from app.engine.workers import Workers
from app.errors import InvalidOptionError, StorageFullError
from app.http.identity import Identity
from app.state.base import StoreDamagedError, StoreError
from app.state.blobs import BlobConflictError, BlobMissingError, BlobStore
from core.arrays import Array, Floats
from core.budget import Scope, check_room, current
from core.errors import BudgetExceededError
from core.tiles.plan import MAX_TILE_BYTES, Plan
from core.tiles.reader import TileReader
from core.tiles.reduce import Partial, Reducer, Reduction, expand_reduction, parse_reduction

from .views import OpenView

KIND = "partial"
"""Kind of the blobs."""


class PartialStore:
    """Arrays in blobs, each named after the computation it is the result of.

    A lost result costs only the time to compute it again. So a store that is full or fails
    raises no error, and a damaged result is a missing one.

    Args:
        blobs: where the results are.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def has(self, name: str) -> bool:
        """Whether a result is there, as far as looking at it shows."""
        try:
            self._blobs.info(KIND, name)
        except (StoreError, BlobMissingError):
            return False
        return True

    def get(self, name: str) -> Array | None:
        """Return a result; None if it is missing or damaged."""
        try:
            data = self._blobs.range(KIND, name)
            self._blobs.touch(KIND, name)
        except StoreDamagedError:
            with contextlib.suppress(StoreError, BlobMissingError):
                self._blobs.delete(KIND, name)
            return None
        except (StoreError, BlobMissingError):
            return None
        array: Array = np.load(io.BytesIO(data), allow_pickle=False)
        return array

    def put(self, name: str, array: Array) -> None:
        """Store a result, unless the name is taken."""
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        with contextlib.suppress(StoreError, StorageFullError, BlobConflictError):
            self._blobs.put(KIND, name, buffer.getbuffer())


VERSION = "3"
"""To be changed whenever the same segment would give another result."""
CHUNK_BYTES = 8 << 20
"""Bytes of frames that one call of the engine reduces."""
SEGMENT_BYTES = 256 << 20
"""Bytes of frames per stored result."""

MAX_FRAME_BYTES = MAX_TILE_BYTES
"""Maximum size of a frame as it is reduced, as float32 or float64."""

_FLOAT = 8
_MOMENTS = 5
"""Values of a pixel in a partial result over frames, but for sums and means."""
_LARGEST_TASK = 1 << 20
"""Bytes of listed positions and of weights that a task may have."""
_COPIES = 3
"""Maps of the scan: the whole one, those of chunks that make up a segment, and the results."""

Tiles = tuple[int, int]
"""A range: the first tile of a segment, and the one after the last."""
Progress = Callable[[int, int], None]
"""Called with (tiles done, total tiles)."""


class CancelledError(Exception):
    """The result is no longer needed."""


class ReductionJob:
    """One reduction of one view; as Work, segments of it are done by the workers of a cluster.

    Args:
        view: the view to reduce; stays open until the job is done.
        spec: the reduction, JSON values, or its short form.
        engine: computes the chunks.
        partials: stores the results of segments.

    Attributes:
        name: the same for the same reduction of the same values, and for no other.
        results: their names.

    Raises:
        CoreError, ServiceError: the reduction does not fit the view.
    """

    kind: ClassVar[str] = "reduce"

    def __init__(
        self, view: OpenView, spec: Mapping[str, Any] | str, engine: Workers, partials: PartialStore
    ) -> None:
        if isinstance(spec, str):
            spec = expand_reduction(spec, view.plan.sig_shape)
        self._view = view
        self._spec = dict(spec)
        self._engine = engine
        self._partials = partials
        reduction = parse_reduction(spec, view.plan.sig_shape)
        self._over_frames = reduction.over == "frames"
        self._plan = _reading_plan(view, reduction)
        self._nbytes = _memory(self._plan, reduction, engine.width)
        try:
            check_room("reduce", self._nbytes)
        except BudgetExceededError as e:
            e.hint = "Reduce fewer positions, a part of the scan or binned ones, or smaller frames"
            raise
        self._reducer = Reducer(reduction, self._plan.sig_shape, self._plan.dtype)
        self._local = threading.local()
        digest = hashlib.blake2b(json.dumps(dict(spec), sort_keys=True).encode(), digest_size=16)
        digest.update(view.tokens.identity + view.tokens.fingerprint + VERSION.encode())
        self.name = digest.hexdigest()
        axes = len(self._plan.sig_shape) if reduction.op == "com" else None
        self.results = reduction.columns[:axes]
        self._size = math.prod(self._plan.tile_shape) * self._plan.dtype.itemsize
        self._cluster: Cluster | None = None
        self._address: dict[str, Any] = {}

    def spread(self, cluster: Cluster | None, caller: Identity) -> None:
        """Have workers of a cluster reduce the segments, if there are several.

        Args:
            cluster: which; None for this machine.
            caller: in whose name.
        """
        view = self._view.view
        if cluster is not None and view.nbytes + len(json.dumps(self._spec)) <= _LARGEST_TASK:
            self._cluster = cluster
            self._address = {
                "owner": caller.owner,
                "scopes": sorted(caller.scopes),
                "name": self.name,
                "dataset": self._view.dataset.spec.id,
                "view": view.to_json(),
                "reduction": self._spec,
            }

    @property
    def nbytes(self) -> int:
        """See Work."""
        return self._nbytes + 2 * self._engine.width * self._size

    def label(self, tiles: Tiles) -> str:
        """See Work."""
        return f"tiles {tiles[0]} to {tiles[1]} of the dataset {self._view.dataset.spec.id}"

    def task(self, tiles: Tiles) -> dict[str, Any]:
        """See Work."""
        return {**self._address, "tiles": tiles}

    def is_done(self, tiles: Tiles) -> bool:
        """See Work."""
        return self._partials.has(self._name(tiles))

    def publish(self, tiles: Tiles) -> None:
        """Store the result of a segment.

        Raises:
            StoreError: it was not stored.
            WorkStoppedError, CoreError, ServiceError: as of ``run``.
        """
        with Scope("reduce", self._nbytes):
            self._segment(tiles, lambda _done, _total: None, lambda: False)
        if not self.is_done(tiles):
            raise StoreError("the result cannot be stored")

    def run(self, progress: Progress, cancelled: Callable[[], bool]) -> dict[str, Floats]:
        """Compute the results, by name.

        Args:
            progress: called after every chunk and segment.
            cancelled: asked after every chunk; returns True to give up.

        Raises:
            CancelledError: ``cancelled`` returned True.
            WorkStoppedError: the budget is exceeded, or nobody waits.
            CoreError, ServiceError: the frames cannot be read.
        """
        shape = self._plan.nav_shape
        with Scope("reduce", self._nbytes):
            whole = self._reducer.merge(self._parts(progress, cancelled), math.prod(shape))
            return self._reducer.finish(whole, shape)

    def _parts(self, progress: Progress, cancelled: Callable[[], bool]) -> Iterator[Partial]:
        tiles = self._plan.tiles
        step = max(SEGMENT_BYTES // self._size, 1)
        segments: Iterable[Tiles] = [
            (first, min(first + step, tiles)) for first in range(0, tiles, step)
        ]

        def check() -> None:
            current().check("reduce")
            if cancelled():
                raise CancelledError

        if self._cluster is not None and step < tiles:
            segments = self._cluster.spread(self, segments, check)
        for segment in segments:
            current().check("reduce")
            part = self._segment(segment, progress, cancelled)
            progress(segment[1], tiles)
            yield part

    def _name(self, segment: Tiles) -> str:
        return f"{self.name}-{segment[0]}-{segment[1]}"

    def _segment(
        self, segment: Tiles, progress: Progress, cancelled: Callable[[], bool]
    ) -> Partial:
        name, (first, last) = self._name(segment), segment
        nav = len(self._plan.nav_shape)
        frames = sum(math.prod(self._plan.tile(k).shape[:nav]) for k in range(first, last))
        stored = self._partials.get(name)
        if stored is not None and self._fits(stored, frames):
            return Partial(frames, stored)
        with closing(self._chunks(first, last, progress, cancelled)) as parts:
            part = self._reducer.merge(parts, frames)
        # Storing an image of many pixels takes as long as merging two of them.
        current().check("reduce")
        self._partials.put(name, part.values)
        # A repeated request goes on from here.
        current().renew()
        return part

    def _fits(self, stored: Array, frames: int) -> bool:
        if stored.dtype != np.float64 or stored.ndim != 2:  # noqa: PLR2004
            return False
        axis, length = (1, math.prod(self._plan.sig_shape)) if self._over_frames else (0, frames)
        return bool(stored.shape[axis] == length)

    def _chunks(
        self, first: int, last: int, progress: Progress, cancelled: Callable[[], bool]
    ) -> Generator[Partial]:
        """Reduce tiles ``first`` to ``last``, one chunk each, side by side; yield in order."""
        ahead = 2 * self._engine.width - 1
        parts = in_order(self._engine.submit, self._chunk, range(first, last), ahead)
        # The view is closed after this call: no chunk may still be reading its files.
        with closing(parts):
            for done, part in enumerate(parts, first + 1):
                progress(done, self._plan.tiles)
                if cancelled():
                    raise CancelledError
                yield part

    def _chunk(self, index: int) -> Partial:
        reader: TileReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._view.dataset.reader(self._plan)
        values = reader.read(self._plan.tile(index))
        return self._reducer.partial(values.reshape(-1, *self._plan.sig_shape))


def _memory(plan: Plan, reduction: Reduction, width: int) -> int:
    """Return the bytes of weights and partial results, those that wait to be merged included."""
    pixels, columns, axes = math.prod(plan.sig_shape), len(reduction.columns), len(plan.sig_shape)
    if reduction.over == "frames":
        rows = 1 if reduction.op in {"sum", "mean"} else _MOMENTS
        return rows * pixels * _FLOAT * (2 * width + 3)
    weights = 0
    if reduction.op in {"virtual", "com"}:
        # As float64, as the kernel takes them, and the grids that they are made from.
        weights = pixels * (columns * (_FLOAT + plan.dtype.itemsize) + 2 * axes * _FLOAT)
    return weights + math.prod(plan.nav_shape) * columns * _FLOAT * _COPIES


def _reading_plan(view: OpenView, reduction: Reduction) -> Plan:
    """Plan the same frames again: whole, of a floating type that holds them, a chunk to a tile."""
    plan = view.plan
    if plan.dtype.kind == "c":
        raise InvalidOptionError(
            "complex frames cannot be reduced",
            hint="Read the real parts as tiles, with dtype <f4 and casting clip, and reduce these",
            option="reduction",
        )
    if view.view.dtype and plan.dtype.kind != "f":
        raise InvalidOptionError(
            f"dtype {plan.dtype.name} is of tiles: results of reductions are float64",
            hint="Leave it out of the view",
            option="dtype",
        )
    small = plan.dtype.itemsize <= 2 or plan.dtype == np.float32  # noqa: PLR2004
    # The kernel takes weights of the dtype of the frames.
    small = small and reduction.fits_float32
    if (view.view.corrections and view.dataset.corrections) or view.view.bins:
        # Tiles round what is computed of their values; frames that are too large have to, too.
        small = small and math.prod(plan.sig_shape) * _FLOAT > MAX_FRAME_BYTES
    dtype = np.dtype("<f4" if small else "<f8")
    frame = math.prod(plan.sig_shape) * dtype.itemsize
    if frame > MAX_FRAME_BYTES:
        raise InvalidOptionError(
            f"a frame of {list(plan.sig_shape)} takes {frame} bytes as {dtype.name},"
            f" more than {MAX_FRAME_BYTES}",
            hint="Reduce a view of smaller frames: crop them by sig, or bin them",
            option="view",
            limit="frame_bytes",
            allowed=MAX_FRAME_BYTES,
        )
    reading = replace(
        view.view,
        dtype=dtype.str,
        tile_shape=None,
        target_bytes=max(CHUNK_BYTES, frame),
    )
    return view.dataset.plan(reading)
