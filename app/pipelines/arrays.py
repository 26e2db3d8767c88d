"""Items of arrays as sources: frames, labels of the positions of a scan, and tiles."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from app.datasets.items.segments import select_fields
from app.datasets.opened import OpenDataset, Opened
from app.tiles.views import OpenView, padded
from core.arrays import Array, Indices
from core.errors import OptionError
from core.iterate.base import Block, Column, Field, Indexed, Schema
from core.iterate.columns import check_positions, empty_block
from core.tiles.frames import FrameSource
from core.tiles.plan import Plan, make_plan
from core.tiles.positions import Lattice, Listed, Stretch
from core.tiles.reader import TileReader
from core.tiles.view import View

FROM_CSV = (
    "Register an array, such as an npy, or a Parquet or Arrow table. Of the last column of a csv:"
    " python -c \"import numpy as np; np.save('labels.npy', np.loadtxt('labels.csv', int,"
    " delimiter=',', usecols=-1))\", with float for fractions, skiprows=1 past a header; words"
    " become numbers by np.unique(words, return_inverse=True)[1]"
)
"""How labels come out of a csv, whose rows are in the order of the scan."""


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
        columns: Mapping[str, Callable[[], Array]] = {
            "data": lambda: self._read(places),
            "index": lambda: places,
            "nav": lambda: np.stack(np.unravel_index(places, self.scan), axis=1),
        }
        return {field.name: columns[field.name]() for field in self.schema}

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
            raise no_labels(dataset, f"the shape {list(whole)}", scan)
        label = whole[axes:] or (1,)
        divided = dataset.divided(label)
        plan = make_plan(divided.recording, View(), nav_shape=scan, sync_offset=dataset.sync_offset)
        self._frames = FramesSource(divided, plan)
        if self._frames.length != self.length:
            raise no_labels(dataset, f"{self._frames.length:,} frames", scan)
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


def no_labels(dataset: Opened, found: str, scan: tuple[int, ...]) -> OptionError:
    """Return the error that labels do not fit a scan."""
    return OptionError(
        f"the labels {dataset.spec.id!r} have {found}, but the scan {list(scan)} has"
        f" {math.prod(scan):,} positions",
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
