"""Views as arrays whose tiles are fetched when they are needed: for dask, xarray and napari.

A lazy view is of one state of the data, and can be sent to another process, where it opens
connections of its own. The key goes with it, and appears in no name and no text::

    dask chunk ──▶ view[slices] ──▶ the tiles they lie in ──▶ GET …/views/{id}/tiles/{index}
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from ..errors import ConnectionFailed, ProtocolError, data_changed
from ..transport.blocking import SocketConnector
from ..transport.channel import Channel
from ..transport.frames import Array
from ..transport.requests import Head, Request, path_of
from ..transport.streams import Repeated
from .plan import Box, Plan


class Axis(NamedTuple):
    """One axis of a view."""

    name: str
    unit: str | None
    coordinates: Array
    """Of its positions, in units; shape (n,), float64."""


def check_index(key: tuple[Any, ...]) -> None:
    """Check what an index is made of.

    Raises:
        IndexError: a part is True, False, or of another type than an index.
    """
    of_numbers = [axis for axis in key if np.size(axis)]
    if any(np.ndim(axis) == 0 and np.asarray(axis).dtype == bool for axis in of_numbers):
        raise IndexError("True and False are no positions; a mask has one for each position")
    wrong = [axis for axis in of_numbers if np.asarray(axis).dtype.kind in "fcUS"]
    if wrong:
        raise IndexError(f"{wrong[0]!r} is no index: give integers, as in [5, 7]")


def picked(key: Sequence[Any], shape: tuple[int, ...]) -> list[Array]:
    """The positions of an index along each axis, as NumPy takes it; those of an integer have ().

    Raises:
        IndexError: one is out of range.
    """
    return [np.arange(n)[axis] for axis, n in zip(key, shape, strict=True)]


def _written_out(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """An index with one part for each axis, in place of masks, of ``...`` and of what is left out.

    Raises:
        IndexError: it does not fit.
    """
    check_index(key)
    if any(axis is None for axis in key):
        raise IndexError("None adds an axis: add it to the array that an index gives")
    ellipses = sum(axis is Ellipsis for axis in key)
    if ellipses > 1:
        raise IndexError("... can stand only once in an index")
    key += () if ellipses else (Ellipsis,)
    masks = [np.asarray(axis).dtype == bool for axis in key]
    axes = [np.ndim(axis) if mask else 1 for axis, mask in zip(key, masks, strict=True)]
    left = len(shape) - sum(axes) + 1
    if left < 0:
        raise IndexError(f"{sum(axes) - 1} indices for {len(shape)} axes")
    out: list[Any] = []
    for axis, mask in zip(key, masks, strict=True):
        if axis is Ellipsis:
            out += [slice(None)] * left
        elif mask:
            lengths = shape[len(out) : len(out) + np.ndim(axis)]
            if np.shape(axis) != lengths:
                raise IndexError(f"a mask of shape {np.shape(axis)} is for axes of {lengths}")
            out += np.nonzero(axis)
        else:
            out.append(axis if np.size(axis) else np.empty(np.shape(axis), int))
    return out


class LazyView:
    """A view as an array, indexed as in NumPy; NumPy itself, given it, loads all of it.

    Args:
        connector: of a client.
        dataset: id of the dataset.
        view: id of the view.
        fingerprint: of the data.
        plan: of the view.

    Attributes:
        shape, ndim, dtype: of the array.
        plan: of the view.
    """

    def __init__(
        self, connector: SocketConnector, dataset: str, view: str, fingerprint: str, plan: Plan
    ) -> None:
        self._connector = connector
        self.dataset = dataset
        self.view = view
        self.fingerprint = fingerprint
        self.plan = plan
        self.shape, self.dtype = plan.shape, plan.dtype
        self.ndim = len(plan.shape)

    def __repr__(self) -> str:
        return f"<view {self.view} of dataset {self.dataset}: {self.shape} of {self.dtype}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401 - as NumPy takes it
        """Fetch all of it."""
        if copy is False:
            raise ValueError("the values of a view are fetched: they cannot be had without a copy")
        return self[...].astype(dtype or self.dtype, copy=False)

    def __getitem__(self, key: Any) -> Array:  # noqa: ANN401 - as NumPy takes it
        """Fetch the tiles that an index lies in, and return what it selects of them.

        Raises:
            ProblemError: the data has changed (code ``data-changed``), or the service refused.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
            IndexError: the view has no such position.
        """
        axes = _written_out(key if isinstance(key, tuple) else (key,), self.shape)
        at = picked(axes, self.shape)
        # Beside a list, an integer is one too.
        where = [k for k, axis in enumerate(axes) if not isinstance(axis, slice)]
        if not any(map(np.ndim, axes)):
            return self.outer(axes)
        points = np.broadcast_arrays(*(at[k] for k in where))
        shape, flat = points[0].shape, np.array([axis.ravel() for axis in points])
        rest = [len(at[k]) for k in range(self.ndim) if k not in where]
        out = np.empty((flat.shape[1], *rest), self.dtype)
        lengths = np.array([[self.plan.tile_shape[k]] for k in where])
        for to in _group(flat // lengths):
            found = [np.unique(axis, return_inverse=True) for axis in flat[:, to]]
            for k, (positions, _) in zip(where, found, strict=True):
                axes[k] = positions
            part = np.moveaxis(self.outer(axes), where, range(len(where)))
            out[to] = part[tuple(places for _, places in found)]
        out = out.reshape(*shape, *rest)
        first = where[0] if where[-1] - where[0] == len(where) - 1 else 0
        return np.moveaxis(out, range(len(shape)), range(first, first + len(shape)))

    def outer(self, key: Sequence[Any]) -> Array:
        """Fetch what a slice, integer or list for each axis selects, one axis by one.

        Raises:
            as for ``[]``.
        """
        at = picked(key, self.shape)
        lengths = self.plan.tile_shape
        within = [np.unique(axis // n) for axis, n in zip(at, lengths, strict=True)]
        tiles = [tuple(map(int, place)) for place in itertools.product(*within)]
        flat = [np.atleast_1d(axis) for axis in at]
        out = np.empty([len(axis) for axis in flat], self.dtype)
        with self._connector.channel() as channel:
            for place in tiles:
                box = self.plan.box(int(np.ravel_multi_index(place, self.plan.grid)))
                tile = self._fetch(channel, box)
                if len(tiles) == 1 and tile.shape == out.shape and _is_whole(flat, box):
                    return tile.reshape([n for axis in at for n in axis.shape])
                target = [
                    np.flatnonzero(axis // n == k)
                    for axis, n, k in zip(flat, lengths, place, strict=True)
                ]
                source = [
                    axis[to] - start
                    for axis, to, start in zip(flat, target, box.origin, strict=True)
                ]
                out[np.ix_(*target)] = tile[np.ix_(*source)]
        return out.reshape([n for axis in at for n in axis.shape])

    def _fetch(self, channel: Channel, box: Box) -> Array:
        target = path_of("datasets", self.dataset, "views", self.view, "tiles", str(box.index))
        tile = _Tile(channel, Request("GET", target), np.empty(box.shape, self.dtype), self)
        tile.complete()
        return tile.array

    def axes(self) -> list[Axis]:
        """The axes of the view: names, units, and the centres of their bins.

        Raises:
            ThalwegError: the data has changed, the service refused, or could not be reached.
        """
        store = f"/zarr/{quote(self.view)}.{self.fingerprint}"
        with self._connector.channel() as channel:
            group = channel.call(Request("GET", f"{store}/zarr.json")).json()
            nodes = group["consolidated_metadata"]["metadata"]
            axes = []
            for name, length in zip(nodes["data"]["dimension_names"], self.shape, strict=True):
                values, unit = np.arange(length, dtype="<f8"), None
                if name in nodes:
                    unit = nodes[name]["attributes"].get("units")
                    reply = channel.call(Request("GET", f"{store}/{quote(name)}/c/0"))
                    values = np.frombuffer(reply.body, "<f8")
                axes.append(Axis(name, unit, values))
        return axes

    def to_dask(self) -> Any:  # noqa: ANN401 - the library is imported when it is asked for
        """A ``dask.array``, a chunk for each tile.

        Raises:
            ImportError: dask is not installed.
        """
        token = import_module("dask.base").tokenize(
            self._connector.url, self.dataset, self.view, self.fingerprint
        )
        return import_module("dask.array").from_array(
            self,
            chunks=self.plan.tile_shape,
            name=f"thalweg-{token}",
            fancy=False,
            meta=np.empty((0,) * self.ndim, self.dtype),
        )

    def to_xarray(self) -> Any:  # noqa: ANN401 - as above
        """An ``xarray.DataArray`` over ``to_dask``, with names, coordinates and units of axes.

        Raises:
            ImportError: xarray or dask is not installed.
            ThalwegError: as for ``axes``.
        """
        axes = self.axes()
        return import_module("xarray").DataArray(
            self.to_dask(),
            {axis.name: coordinate(axis) for axis in axes},
            [axis.name for axis in axes],
            self.dataset,
            {"fingerprint": self.fingerprint},
        )


def _group(columns: Array) -> list[Array]:
    """Groups of equal columns, by their numbers."""
    group = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []


def coordinate(axis: Axis) -> tuple[str, Array, dict[str, str]]:
    """The coordinates of an axis as xarray takes them."""
    return axis.name, axis.coordinates, {} if axis.unit is None else {"units": axis.unit}


def _is_whole(at: list[Array], box: Box) -> bool:
    """Whether positions are all of a tile, in order."""
    return all(
        np.array_equal(axis, np.arange(start, start + n))
        for axis, start, n in zip(at, box.origin, box.shape, strict=True)
    )


class _Tile(Repeated):
    """The values of one tile, received in place."""

    def __init__(self, channel: Channel, request: Request, array: Array, view: LazyView) -> None:
        super().__init__(channel)
        self._request = request
        self._view = view
        self.array = array

    def _try(self) -> None:
        self._check(self._channel.open(self._request))
        octets, at = self.array.reshape(-1).view(np.uint8).data, 0
        while at < len(octets):
            count = self._channel.receive(octets[at:])
            if not count:
                raise ConnectionFailed("the answer was cut")
            at += count
        self._channel.finish()
        self.done = True

    def _check(self, head: Head) -> None:
        """Check before the values are received that they are those of the view.

        Raises:
            ProblemError: the data has changed (code ``data-changed``).
            ProtocolError: it is another tile.
        """
        if f"-{self._view.fingerprint}-" not in head.headers.get("etag", ""):
            raise data_changed(f"{self._view} is of data that has changed since")
        claim = (head.headers.get("thalweg-dtype"), head.headers.get("content-length"))
        if claim != (self.array.dtype.str, str(self.array.nbytes)):
            raise ProtocolError(f"a tile of {claim} came instead of {self.array.nbytes} bytes")
