# mypy: disable-error-code="no-untyped-call"
"""Datasets for xarray: ``xarray.open_dataset("http://…/v1/datasets/scan1", engine="thalweg")``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from xarray import Dataset as XarrayDataset
from xarray import Variable
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from ..datasets.blocking import Dataset
from ..tiles.lazy import coordinate, picked
from ..tiles.plan import Plan
from ..transport.frames import Array
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES
from .addresses import Opened, is_address, open_address


class _Source(Protocol):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def outer(self, key: tuple[Any, ...]) -> Array: ...


class _Frames:
    """A dataset of which no more is fetched than the frames and the box that an index lies in."""

    def __init__(self, dataset: Dataset, options: dict[str, Any], plan: Plan) -> None:
        self._dataset = dataset
        self._options = options
        self._plan = plan
        self.shape, self.dtype = plan.shape, plan.dtype

    def outer(self, key: tuple[Any, ...]) -> Array:
        at = picked(key, self.shape)
        shape = [n for axis in at for n in axis.shape]
        if not math.prod(shape):
            return np.empty(shape, self.dtype)
        wanted, scan = [np.unique(axis) for axis in at], len(self._plan.nav_shape)
        nav, sig = wanted[:scan], [slice(axis[0], axis[-1] + 1) for axis in wanted[scan:]]
        selection: Any = {**self._options, **self._selection(nav), "sig": sig}
        values = self._dataset.view(**selection).read()
        values = values.reshape([*map(len, nav), *values.shape[-len(sig) :]])
        for number, (axis, positions) in enumerate(zip(at, wanted, strict=True)):
            places = np.searchsorted(positions, axis) if number < scan else axis - positions[0]
            if not np.array_equal(places, np.arange(values.shape[number])):
                values = values.take(np.atleast_1d(places), number)
        return values.reshape(shape)

    def _selection(self, nav: list[Array]) -> dict[str, Any]:
        """Slices where positions are evenly spaced, else a list of frames."""
        steps = [int(axis[1] - axis[0]) if len(axis) > 1 else 1 for axis in nav]
        if all((np.diff(axis) == step).all() for axis, step in zip(nav, steps, strict=True)):
            pairs = zip(nav, steps, strict=True)
            return {"nav": [slice(axis[0], axis[-1] + 1, step) for axis, step in pairs]}
        return {"frames": np.ravel_multi_index(np.ix_(*nav), self._plan.nav_shape).ravel()}


class _Lazy(BackendArray):
    """Indexes a source as xarray wants it: all other kinds of indices are made of these."""

    def __init__(self, source: _Source) -> None:
        self.shape, self.dtype = source.shape, source.dtype
        self._source = source

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:  # noqa: ANN401 - as in xarray
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._source.outer)


class ThalwegBackend(BackendEntrypoint):
    """Opens datasets and views of a Thalweg service; values are fetched where they are used."""

    description = "Datasets of a Thalweg service: http://HOST:PORT/v1/datasets/NAME"

    def guess_can_open(self, filename_or_obj: object) -> bool:
        """Whether it is the address of a dataset; groups of zarr are left to zarr."""
        return is_address(filename_or_obj) and "/zarr/" not in str(filename_or_obj)

    def open_dataset(  # type: ignore[override]  # noqa: PLR0913 - each is a choice of the caller
        self,
        filename_or_obj: str,
        *,
        drop_variables: str | Iterable[str] | None = None,
        key: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        dtype: npt.DTypeLike | None = None,
        casting: Literal["safe", "wrap", "clip"] | None = None,
        corrections: bool | None = None,
        sync_offset: int | None = None,
        missing: Literal["zero", "nan"] | None = None,
    ) -> XarrayDataset:
        """Open a dataset or a view: its variable ``data``, with coordinates for each axis.

        Args:
            filename_or_obj: its address; see ``open_address``.
            drop_variables: names of variables to leave out.
            key: bearer key; by default THALWEG_KEY.
            timeout: seconds without a byte after which a connection counts as broken.
            retries: failures in a row to tolerate.
            dtype: of the values; as are the others, an option of ``Dataset.view``.
            casting: of values that the dtype does not hold.
            corrections: whether to apply dark and gain.
            sync_offset: frame at which the scan begins.
            missing: what positions without a frame hold.

        Raises:
            ValueError: it is no address; options are given for a view, which has its own; or
                positions of the scan have no frame.
            ThalwegError: the service refused, or could not be reached.
        """
        choices: Any = {
            "dtype": dtype,
            "casting": casting,
            "corrections": corrections,
            "sync_offset": sync_offset,
            "missing": missing,
        }
        options = {name: value for name, value in choices.items() if value is not None}
        opened = open_address(filename_or_obj, key, timeout, retries)
        try:
            found = _described(opened, options)
        except BaseException:
            opened.client.close()
            raise
        found.set_close(opened.client.close)
        names = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        return found.drop_vars(names, errors="ignore")


def _described(opened: Opened, options: dict[str, Any]) -> XarrayDataset:
    """The dataset, of which nothing is fetched but what describes it."""
    if opened.view is not None and options:
        raise ValueError(
            f"a view has its own options: {', '.join(options)} goes with the address of a dataset"
        )
    lazy = (opened.view or opened.dataset.view(**options)).lazy()
    source: _Source = lazy
    if opened.view is None:
        if lazy.plan.nav_shape != opened.dataset.nav_shape:
            raise ValueError("positions of the scan have no frame: give missing='zero' or 'nan'")
        source = _Frames(opened.dataset, options, lazy.plan)
    axes, info = lazy.axes(), opened.dataset.info
    names = [axis.name for axis in axes]
    values = indexing.LazilyIndexedArray(_Lazy(source))
    chunks = dict(zip(names, lazy.plan.tile_shape, strict=True))
    data = Variable(names, values, {"fingerprint": lazy.fingerprint}, {"preferred_chunks": chunks})
    metadata = info.get("metadata", {}).items()
    return XarrayDataset(
        {"data": data},
        {axis.name: coordinate(axis) for axis in axes},
        {name: value for name, value in metadata if isinstance(value, str | int | float)},
    )
