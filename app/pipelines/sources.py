"""Datasets as sources of items: frames and tiles of arrays, and items of other formats.

A source is pinned to a number of items, and its fingerprint covers the bytes they depend
on. For a growing dataset these are the first bytes of its files, so that the fingerprint
holds while the dataset grows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.datasets.catalogue import Catalogue
from app.datasets.files.file_set import FileSet
from app.datasets.files.fingerprints import prefix_fingerprint
from app.datasets.items.segments import ItemRange, select_fields
from app.datasets.opened import OpenDataset, Opened, OpenItems
from app.http.identity import Identity
from app.tiles.views import OpenView, padded
from core.arrays import Array, Indices
from core.errors import OptionError
from core.iterate.base import Block, Column, Field, Indexed, Schema
from core.iterate.columns import check_positions, empty_block
from core.tiles.formats import FORMATS
from core.tiles.frames import FrameSource
from core.tiles.plan import Plan, make_plan
from core.tiles.positions import Lattice, Listed, Stretch
from core.tiles.reader import TileReader
from core.tiles.recording import Recording
from core.tiles.view import View

FRAME, TILE = "frame", "tile"
OPTIONS = ("fields", "scan", "unit", "view")
"""Options of a source that define its items; with a scan they are labels of its positions."""
FINGERPRINT_SIZE = 8

OpenViewOf = Callable[[str, Any], OpenView]
"""Opens a view of a dataset, by its id or its spec."""


@dataclass(slots=True, eq=False)
class PinnedSource:
    """A source of a pipeline with the files it reads; the caller closes its dataset."""

    key: str
    """The dataset and the options, as canonical JSON."""
    dataset: Opened
    indexed: Indexed
    count: int
    """Number of items it is pinned to."""
    stops: tuple[int, ...] | None
    """Leading bytes of each of the first files that it depends on; None for all files whole."""
    fingerprint: bytes
    """Of these bytes and of what the catalogue declares them to mean; 8 bytes. It is not that of
    the dataset, which changes as the dataset grows."""

    @property
    def growing(self) -> bool:
        """Whether the dataset may have more items than the pin."""
        return self.stops is not None

    def is_fresh(self) -> bool:
        """Whether the bytes are unchanged since the source was opened.

        Raises:
            DataChangedError: a file changed other than by growing.
            ReadFailedError: the disk failed.
        """
        files = self.dataset.files
        files.verify()
        return self.stops is None or self.fingerprint == _fingerprint(self.dataset, self.stops)

    def describe(self) -> dict[str, Any]:
        """Describe the source, as JSON values."""
        return {
            **json.loads(self.key),
            "count": self.count,
            "growing": self.growing,
            "fingerprint": None if self.growing else self.dataset.fingerprint.hex(),
            "pinned_fingerprint": self.fingerprint.hex(),
        }


def source_key(dataset: str, options: Mapping[str, Any]) -> str:
    """Return the key of a source: its dataset and options as canonical JSON."""
    present = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    return json.dumps({"dataset": dataset, "options": present}, sort_keys=True)


def open_source(
    who: Identity, catalogue: Catalogue, open_view: OpenViewOf, key: str, count: int | None = None
) -> PinnedSource:
    """Open a source of a pipeline.

    Args:
        who: whose datasets the key names.
        catalogue: the datasets.
        open_view: opens their views.
        key: from ``source_key``.
        count: items to pin a growing dataset to; None for all there are. Other datasets
            are always pinned to all items.

    Raises:
        CoreError, ServiceError: there is no such dataset, it cannot be read, or it lacks
            the requested items or fields.
    """
    values = json.loads(key)
    options: Mapping[str, Any] = values["options"]
    dataset: Opened = catalogue.open_any(who, values["dataset"], grown=count is None)
    try:
        view = None
        if isinstance(dataset, OpenDataset) and options.get("view") is not None:
            previous: Opened = dataset
            view = _view(dataset, options["view"], open_view)
            # The view opens the dataset itself, maybe in a newer state: use that one.
            dataset = view.dataset
            previous.close()
        growing = dataset.spec.growing
        if count is not None and growing and _count(dataset, options) < count:
            previous = dataset
            dataset = catalogue.open_any(who, values["dataset"])
            previous.close()
        items, total = _all_items(dataset, options, view)
        pinned = min(count, total) if growing and count is not None else total
        stops = _stops(dataset, options, pinned) if growing else None
        # Nobody may rely on the shape of a scan that grows, so all growing items look alike.
        indexed = ItemRange(items, 0, pinned) if growing else items
        return PinnedSource(key, dataset, indexed, pinned, stops, _fingerprint(dataset, stops))
    except BaseException:
        dataset.close()
        raise


def _view(dataset: OpenDataset, value: Any, open_view: OpenViewOf) -> OpenView:  # noqa: ANN401 - JSON
    if dataset.spec.growing:
        raise OptionError("a growing dataset has no stable views", hint="Omit view, for its frames")
    return open_view(dataset.spec.id, value)


def _unit(dataset: Opened, options: Mapping[str, Any]) -> str:
    """Return the unit of the items, the dataset's default if the options name none.

    Raises:
        OptionError: the dataset has no such unit.
    """
    if isinstance(dataset, OpenItems):
        units = dataset.items.units
        if options.get("view") is not None:
            raise OptionError(
                f"only arrays have views, and the dataset holds {dataset.spec.format} items",
                hint="Omit view",
            )
    else:
        units = (FRAME,) if options.get("view") is None else (TILE, FRAME)
    unit = options.get("unit") or units[0]
    if unit not in units:
        hint = f"Use {' or '.join(units)}"
        raise OptionError(f"the dataset has no unit {unit!r}", hint=hint)
    return str(unit)


def _count(dataset: Opened, options: Mapping[str, Any]) -> int:
    if isinstance(dataset, OpenItems):
        return dataset.items.count(_unit(dataset, options))
    return dataset.recording.frames


def _all_items(
    dataset: Opened, options: Mapping[str, Any], view: OpenView | None
) -> tuple[Indexed, int]:
    """Return a source of all items with the requested fields, and their number."""
    unit, fields = _unit(dataset, options), options.get("fields")
    scan = tuple(options.get("scan", ()))
    if scan and dataset.spec.growing:
        raise OptionError(f"the labels {dataset.spec.id!r} may grow", hint="Register them complete")
    if isinstance(dataset, OpenItems):
        count = dataset.items.count(unit)
        if scan and count != math.prod(scan):
            raise _no_labels(dataset, f"{count:,} items", scan)
        return dataset.items.source(unit, fields), count
    if scan:
        labels = LabelsSource(dataset, scan, options["fields"][0])
        return labels, labels.length
    if unit == FRAME:
        frames = FramesSource(
            dataset, dataset.plan(dataset.typed(View())) if view is None else view.plan, fields
        )
        return frames, frames.length
    assert view is not None  # noqa: S101 - the unit tile implies a view
    tiles = TilesSource(view, fields)
    return tiles, tiles.length


def _stops(dataset: Opened, options: Mapping[str, Any], count: int) -> tuple[int, ...]:
    if isinstance(dataset, OpenItems):
        return dataset.items.stops(_unit(dataset, options), count)
    first = max(dataset.sync_offset, 0)
    return frame_stops(dataset.recording, dataset.files, count + first if count else 0)


def frame_stops(recording: Recording, files: FileSet, frames: int) -> tuple[int, ...]:
    """Return the leading bytes of each file that the first ``frames`` frames depend on."""
    stops: dict[int, int] = {}
    for extent in recording.extents:
        count = min(frames, extent.frames)
        if count > 0:
            stop = extent.offset + (count - 1) * extent.stride + recording.frame_bytes
            stops[extent.file] = max(stops.get(extent.file, 0), stop)
        frames -= extent.frames
        if frames <= 0:
            break
    last = max(stops, default=-1)
    # A file without frames before the last one may be a header that describes the others.
    return tuple(stops.get(file, files.size(file)) for file in range(last + 1))


def _fingerprint(dataset: Opened, stops: Sequence[int] | None) -> bytes:
    """Fingerprint the bytes the items depend on, and what the catalogue declares of them."""
    # Whether it grows shows in the stops.
    meaning = {n: value for n, value in dataset.spec.meaning().items() if n != "growing"}
    digest = hashlib.blake2b(
        json.dumps(meaning, sort_keys=True).encode(),
        digest_size=FINGERPRINT_SIZE,
        person=b"thalweg-source-1",
    )
    if stops is None:
        digest.update(dataset.contents)
        return digest.digest()
    files, whole = dataset.files, []
    form = FORMATS.get(dataset.recording.format) if isinstance(dataset, OpenDataset) else None
    if form is not None:
        # A header behind the last file with a pinned frame describes these frames too.
        further = range(len(stops), len(files))
        whole = [index for index in further if form.is_companion(files.name(index))]
    digest.update(prefix_fingerprint(files, stops, whole))
    return digest.digest()


# -- arrays ---------------------------------------------------------------------------


class _ArrayItems(Indexed):
    """Items of an array dataset; several threads may read at once."""

    length: int

    def __init__(self, schema: Schema, length: int, dataset: OpenDataset) -> None:
        self.schema = schema
        self.length = length
        self._dataset = dataset
        self._local = threading.local()

    def _frames(self) -> FrameSource:
        """Return this thread's source of frames, which reuses its buffers."""
        frames: FrameSource | None = getattr(self._local, "frames", None)
        if frames is None:
            frames = self._local.frames = self._dataset.frames()
        return frames

    def _reader(self, plan: Plan) -> TileReader:
        dataset = self._dataset
        return TileReader(plan, dataset.recording, self._frames(), dataset.corrections)


class FramesSource(_ArrayItems):
    """Frames of a view of an array: one item per selected position of the scan.

    Args:
        dataset: the array.
        plan: the view, without sums over positions.
        fields: names of the requested fields, of ``data``, ``index`` and ``nav``; None for
            ``data``.

    Raises:
        OptionError: there is no such field, or an item would be no single frame.
        SelectionError: no position has a frame.
    """

    def __init__(
        self, dataset: OpenDataset, plan: Plan, fields: Sequence[str] | None = None
    ) -> None:
        if plan.view.bin_nav > 1:
            raise OptionError(
                "bin.nav sums several frames into one", hint="Omit bin.nav, or set unit to tile"
            )
        if not isinstance(plan.positions, Lattice | Stretch | Listed):
            raise OptionError(
                "a mask or shuffle of that many positions is for reading in order",
                hint="Set unit to tile; or select by nav or frames, and append permute",
            )
        self._plan, self._places = plan, plan.positions
        self.scan = dataset.nav_shape
        known = (
            Field("data", plan.dtype, plan.sig_shape),
            Field("index", np.dtype("<i8")),
            Field("nav", np.dtype("<i8"), (len(self.scan),)),
        )
        schema = select_fields(known, ("data",) if fields is None else fields)
        super().__init__(schema, math.prod(plan.positions.shape), dataset)

    def places(self, positions: Indices) -> Indices:
        """Return the flat index in the scan of the frames at ``positions``, shape (k,)."""
        return self._places.pick(positions)

    def at(self, positions: Indices) -> Block:
        """Read the frames at ``positions``, in this order.

        Returns:
            Fields ``data``, shape (k, *sig_shape), ``index``, the flat index in the scan, int64 of
            shape (k,), and ``nav``, the same along each axis of the scan, int64 of shape
            (k, axes); as far as they are requested.

        Raises:
            PositionError: a position lies outside of the source.
            CoreError, ServiceError: the frames cannot be read.
        """
        positions = check_positions(positions, self.length)
        if not len(positions):
            return empty_block(self.schema)
        places = self.places(positions)
        made: Mapping[str, Callable[[], Array]] = {
            "data": lambda: self._read(places),
            "index": lambda: places,
            "nav": lambda: np.stack(np.unravel_index(places, self.scan), axis=1),
        }
        return {field.name: made[field.name]() for field in self.schema}

    def _read(self, places: Indices) -> Array:
        shape = (len(places),)
        plan = dataclasses.replace(
            self._plan,
            positions=Listed(places),
            nav_shape=shape,
            tile_shape=shape + self._plan.sig_shape,
        )
        return self._reader(plan).read(plan.tile(0))


class LabelsSource(Indexed):
    """What an array has for each position of a scan: a number, or an array of some shape.

    Args:
        dataset: the array. Its shape begins with that of the scan, or with the number of positions.
        scan: shape of the scan.
        name: of the one field.

    Raises:
        OptionError: the array does not fit the scan.
    """

    length: int

    def __init__(self, dataset: OpenDataset, scan: tuple[int, ...], name: str) -> None:
        self.length = math.prod(scan)
        whole = dataset.nav_shape + dataset.recording.sig_shape
        if dataset.nav_shape == (1,) != scan:
            # A single frame: that is what an array of two axes is, if nobody says otherwise.
            whole = whole[1:]
        axes = len(scan) if whole[: len(scan)] == scan else 1
        if math.prod(whole[:axes]) != self.length:
            raise _no_labels(dataset, f"the shape {list(whole)}", scan)
        label = whole[axes:] or (1,)
        divided = dataset.divided(label)
        plan = make_plan(divided.recording, View(), nav_shape=scan, sync_offset=dataset.sync_offset)
        self._frames = FramesSource(divided, plan)
        if self._frames.length != self.length:
            raise _no_labels(dataset, f"{self._frames.length:,} frames", scan)
        self._name, self._label = name, () if math.prod(label) == 1 else label
        self.schema = (Field(name, plan.dtype, self._label),)

    def at(self, positions: Indices) -> Block:
        """Read the labels of ``positions``, flat indices in the scan.

        Raises:
            PositionError: a position lies outside of the scan.
            CoreError, ServiceError: the labels cannot be read.
        """
        data = self._frames.at(positions)["data"]
        assert isinstance(data, np.ndarray)  # noqa: S101 - frames are not ragged
        return {self._name: data.reshape(len(positions), *self._label)}


def _no_labels(dataset: Opened, found: str, scan: tuple[int, ...]) -> OptionError:
    return OptionError(
        f"the labels {dataset.spec.id!r} have {found}, but the scan has {list(scan)}",
        hint="Give one for each position: an array of the shape of the scan, or rows of a table",
    )


class TilesSource(_ArrayItems):
    """Tiles of a view, all of one shape.

    Tiles at a border are filled up with zeros; field ``shape`` gives their true shape.

    Args:
        view: the view.
        fields: names of the requested fields, of ``data``, ``origin`` and ``shape``; None
            for all.

    Raises:
        OptionError: there is no such field.
    """

    def __init__(self, view: OpenView, fields: Sequence[str] | None = None) -> None:
        plan = view.plan
        axes = (len(plan.shape),)
        schema = (
            Field("data", plan.dtype, plan.tile_shape),
            Field("origin", np.dtype("<i8"), axes),
            Field("shape", np.dtype("<i8"), axes),
        )
        self._plan = plan
        super().__init__(select_fields(schema, fields), plan.tiles, view.dataset)

    def at(self, positions: Indices) -> Block:
        """Read the tiles at ``positions``, in this order.

        Returns:
            Fields ``data``, shape (k, *tile_shape), and ``origin`` and ``shape``, int64 of
            shape (k, axes), as far as they are requested.

        Raises:
            PositionError: a position lies outside of the source.
            CoreError, ServiceError: the tiles cannot be read.
        """
        positions = check_positions(positions, self.length)
        plan, names = self._plan, {field.name for field in self.schema}
        tiles = [plan.tile(index) for index in positions.tolist()]
        axes = len(plan.shape)
        block: dict[str, Column] = {}
        if "data" in names:
            reader = self._reader(plan)
            data = np.empty((len(tiles), *plan.tile_shape), plan.dtype)
            for tile in tiles[1:]:
                reader.hint(tile)
            for out, tile in zip(data, tiles, strict=True):
                out[...] = padded(reader.read(tile), plan.tile_shape)
            block["data"] = data
        if "origin" in names:
            block["origin"] = np.array([t.origin for t in tiles], np.int64).reshape(-1, axes)
        if "shape" in names:
            block["shape"] = np.array([t.shape for t in tiles], np.int64).reshape(-1, axes)
        return block
