"""Datasets as sources of items: frames and tiles of arrays, and whatever else is registered.

A source is pinned: to so many items, and to the bytes they depend on. Of a growing dataset
these are the first ones, so that its pin holds while it grows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.datasets.catalogue import Catalogue
from app.datasets.files.files import FileSet
from app.datasets.files.fingerprints import prefix_fingerprint
from app.datasets.items.segments import Stretch, chosen
from app.datasets.opened import OpenDataset, Opened, OpenItems
from app.tiles.views import OpenView, padded
from core.arrays import Indices
from core.errors import OptionError
from core.iterate.base import Block, Column, Field, Indexed, Schema
from core.iterate.columns import check_positions, empty_block
from core.tiles.frames import FrameSource
from core.tiles.plan import Plan, make_plan
from core.tiles.positions import Listed
from core.tiles.reader import TileReader
from core.tiles.recording import Recording
from core.tiles.view import View

FRAME, TILE = "frame", "tile"
OPTIONS = ("fields", "unit", "view")
"""Options of a source that say what its items are."""
FINGERPRINT_SIZE = 8
_PLACES = ("id", "files", "glob", "immutable", "growing")
"""What an entry says of where its files are, and not of what they mean."""

ViewOf = Callable[[str, Any], OpenView]
"""Gives a view of a dataset, by its id or by what it says."""


@dataclass(slots=True, eq=False)
class PinnedSource:
    """A source of a pipeline with the files it reads; whoever asked for it closes it."""

    key: str
    """The dataset and the options, as canonical JSON."""
    dataset: Opened
    indexed: Indexed
    count: int
    """Items it is pinned to."""
    stops: tuple[int, ...] | None
    """Bytes of each of the first files that it depends on; None for all of all files."""
    fingerprint: bytes
    """Of these bytes and of what the entry says they mean, 8 bytes."""

    @property
    def growing(self) -> bool:
        """Whether its dataset may have more items than it is pinned to."""
        return self.stops is not None

    def is_fresh(self) -> bool:
        """Whether the bytes are what they were.

        Raises:
            DataChangedError, ReadFailedError: they are not, or it cannot be told.
        """
        files = self.dataset.files
        files.verify()
        return self.stops is None or self.fingerprint == _fingerprint(self.dataset, self.stops)

    def describe(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            **json.loads(self.key),
            "count": self.count,
            "growing": self.growing,
            "fingerprint": self.fingerprint.hex(),
        }


def source_key(dataset: str, options: Mapping[str, Any]) -> str:
    """What tells one source of a pipeline from another."""
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    return json.dumps({"dataset": dataset, "options": given}, sort_keys=True)


def open_source(
    catalogue: Catalogue, view_of: ViewOf, key: str, count: int | None = None
) -> PinnedSource:
    """A source of a pipeline.

    Args:
        catalogue: the datasets.
        view_of: gives views of them.
        key: from source_key.
        count: items to pin it to, of a dataset that grows; None for as many as there are.

    Raises:
        CoreError, ServiceError: there is no such dataset, its files are not what they should
            be, or it has not what is chosen of it.
    """
    wanted = json.loads(key)
    options: Mapping[str, Any] = wanted["options"]
    dataset: Opened = catalogue.open_any(wanted["dataset"], grown=count is None)
    try:
        view = None
        if isinstance(dataset, OpenDataset) and options.get("view") is not None:
            before: Opened = dataset
            view = _view(dataset, options["view"], view_of)
            # What the view is of may have been opened anew.
            dataset = view.dataset
            before.close()
        growing = dataset.spec.growing
        if count is not None and growing and _count(dataset, options) < count:
            before = dataset
            dataset = catalogue.open_any(wanted["dataset"])
            before.close()
        items, there = _all_items(dataset, options, view)
        pinned = min(count, there) if growing and count is not None else there
        stops = _stops(dataset, options, pinned) if growing else None
        indexed = items if pinned == there else Stretch(items, 0, pinned)
        return PinnedSource(key, dataset, indexed, pinned, stops, _fingerprint(dataset, stops))
    except BaseException:
        dataset.close()
        raise


def _view(dataset: OpenDataset, value: Any, view_of: ViewOf) -> OpenView:  # noqa: ANN401 - JSON
    if dataset.spec.growing:
        raise OptionError("the tiles of a dataset that grows change with it", hint="Use its frames")
    return view_of(dataset.spec.id, value)


def _unit(dataset: Opened, options: Mapping[str, Any]) -> str:
    """What an item is to be.

    Raises:
        OptionError: the dataset has no such items.
    """
    if isinstance(dataset, OpenItems):
        units = dataset.items.units
        if options.get("view") is not None:
            raise OptionError("a view is of an array", hint=f"This is {dataset.spec.format}")
    else:
        units = (FRAME,) if options.get("view") is None else (TILE,)
    unit = options.get("unit") or units[0]
    if unit not in units:
        hint = f"There are {', '.join(units)}"
        raise OptionError(f"the dataset has no items {unit!r}", hint=hint)
    return str(unit)


def _count(dataset: Opened, options: Mapping[str, Any]) -> int:
    if isinstance(dataset, OpenItems):
        return dataset.items.count(_unit(dataset, options))
    return dataset.recording.frames


def _all_items(
    dataset: Opened, options: Mapping[str, Any], view: OpenView | None
) -> tuple[Indexed, int]:
    """Every item there is, with the fields that are wanted, and how many."""
    unit, fields = _unit(dataset, options), options.get("fields")
    if isinstance(dataset, OpenItems):
        return dataset.items.source(unit, fields), dataset.items.count(unit)
    if unit == FRAME:
        frames = FramesSource(dataset, fields)
        return frames, frames.length
    assert view is not None  # noqa: S101 - there are tiles of one only
    tiles = TilesSource(view, fields)
    return tiles, tiles.length


def _stops(dataset: Opened, options: Mapping[str, Any], count: int) -> tuple[int, ...]:
    if isinstance(dataset, OpenItems):
        return dataset.items.stops(_unit(dataset, options), count)
    first = max(dataset.sync_offset, 0)
    return frame_stops(dataset.recording, dataset.files, count + first if count else 0)


def frame_stops(recording: Recording, files: FileSet, frames: int) -> tuple[int, ...]:
    """Bytes of each of the first files that the first frames of a recording depend on."""
    stops: dict[int, int] = {}
    for extent in recording.extents:
        some = min(frames, extent.frames)
        if some > 0:
            stop = extent.offset + (some - 1) * extent.stride + recording.frame_bytes
            stops[extent.file] = max(stops.get(extent.file, 0), stop)
        frames -= extent.frames
        if frames <= 0:
            break
    last = max(stops, default=-1)
    # Files without frames before the last one may say what is in the others.
    return tuple(stops.get(file, files.size(file)) for file in range(last + 1))


def _fingerprint(dataset: Opened, stops: Sequence[int] | None) -> bytes:
    """Of the bytes that count, and of what the entry says they mean."""
    meaning = {k: v for k, v in dataset.spec.to_json().items() if k not in _PLACES}
    digest = hashlib.blake2b(
        json.dumps(meaning, sort_keys=True).encode(),
        digest_size=FINGERPRINT_SIZE,
        person=b"thalweg-source-1",
    )
    found = dataset.fingerprint if stops is None else prefix_fingerprint(dataset.files, stops)
    digest.update(found)
    return digest.digest()


# -- arrays ---------------------------------------------------------------------------


class _ArrayItems(Indexed):
    """Items out of an array dataset; any thread may ask, also at once."""

    def __init__(self, schema: Schema, length: int, dataset: OpenDataset) -> None:
        self._schema = schema
        self._length = length
        self._dataset = dataset
        self._local = threading.local()

    @property
    def schema(self) -> Schema:
        """Fields of its items."""
        return self._schema

    @property
    def length(self) -> int:
        """Number of items."""
        return self._length

    def _frames(self) -> FrameSource:
        """Reads frames; each thread has one of its own, which keeps its buffers."""
        frames: FrameSource | None = getattr(self._local, "frames", None)
        if frames is None:
            frames = self._local.frames = self._dataset.frames()
        return frames

    def _reader(self, plan: Plan) -> TileReader:
        dataset = self._dataset
        return TileReader(plan, dataset.recording, self._frames(), dataset.corrections)


class FramesSource(_ArrayItems):
    """Every position of the scan that has a frame, corrected as the dataset says.

    Args:
        dataset: an array.
        fields: those that are wanted; there is ``data`` only.

    Raises:
        OptionError: a field is not there.
        SelectionError: no position has a frame.
    """

    def __init__(self, dataset: OpenDataset, fields: Sequence[str] | None = None) -> None:
        self._plan = make_plan(
            dataset.recording, View(), nav_shape=dataset.nav_shape, sync_offset=dataset.sync_offset
        )
        plan = self._plan
        schema = chosen((Field("data", plan.dtype, plan.sig_shape),), fields)
        # They are a stretch of the scan, from the position that the first frame is of.
        low, high = plan.positions.extremes()
        self._first = low + plan.sync_offset
        super().__init__(schema, high - low + 1, dataset)

    def at(self, positions: Indices) -> Block:
        """Frames, in this order; field ``data``, shape (k, *sig_shape).

        Raises:
            PositionError: one lies outside.
            CoreError, ServiceError: why they cannot be read.
        """
        positions = check_positions(positions, self.length)
        if not len(positions):
            return empty_block(self._schema)
        shape = (len(positions),)
        plan = dataclasses.replace(
            self._plan,
            positions=Listed(positions + self._first),
            sync_offset=0,
            nav_shape=shape,
            tile_shape=shape + self._plan.sig_shape,
        )
        return {"data": self._reader(plan).read(plan.tile(0))}


class TilesSource(_ArrayItems):
    """The tiles of a view, all of one shape.

    Those at the borders are filled up with zeros: ``shape`` says how much of them there is.

    Args:
        view: of an array.
        fields: those that are wanted, of ``data``, ``origin`` and ``shape``.

    Raises:
        OptionError: a field is not there.
    """

    def __init__(self, view: OpenView, fields: Sequence[str] | None = None) -> None:
        plan = view.plan
        axes = (len(plan.shape),)
        every = (
            Field("data", plan.dtype, plan.tile_shape),
            Field("origin", np.dtype("<i8"), axes),
            Field("shape", np.dtype("<i8"), axes),
        )
        self._plan = plan
        super().__init__(chosen(every, fields), plan.tiles, view.dataset)

    def at(self, positions: Indices) -> Block:
        """Tiles, in this order.

        Raises:
            PositionError: one lies outside.
            CoreError, ServiceError: why they cannot be read.
        """
        positions = check_positions(positions, self.length)
        plan, wanted = self._plan, {field.name for field in self._schema}
        tiles = [plan.tile(index) for index in positions.tolist()]
        axes = len(plan.shape)
        block: dict[str, Column] = {}
        if "data" in wanted:
            reader = self._reader(plan)
            data = np.empty((len(tiles), *plan.tile_shape), plan.dtype)
            for out, tile in zip(data, tiles, strict=True):
                out[...] = padded(reader.read(tile), plan.tile_shape)
            block["data"] = data
        if "origin" in wanted:
            block["origin"] = np.array([t.origin for t in tiles], np.int64).reshape(-1, axes)
        if "shape" in wanted:
            block["shape"] = np.array([t.shape for t in tiles], np.int64).reshape(-1, axes)
        return block
