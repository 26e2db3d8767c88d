# Made from asynchronous.py by deploy/unasync.py (make fmt): change that one.
"""Datasets with blocking calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from ..errors import ProtocolError, check_fingerprint
from ..files.outputs import check_target, write_file
from ..tiles.blocking import View
from ..tiles.lazy import check_index
from ..tiles.requests import TileRequests, ViewOptions, ViewSpec, dataset_spec, image
from ..tiles.stream import Watch, reduction_json
from ..tiles.streams import Reduction
from ..transport.channel import Calls, Connector
from ..transport.frames import Array
from ..transport.requests import Request, json_request, path_of

Index: TypeAlias = slice | npt.ArrayLike
"""Index of one axis of the scan, as NumPy takes it."""
Ids: TypeAlias = list[str]
Info: TypeAlias = dict[str, Any]
"""The description of a dataset."""

_PNG = b"\x89PNG\r\n\x1a\n"


class Dataset:
    """Files of a detector, read as one array: ``client.datasets[id]``.

    The service is not asked before something has to be known. From then on the handle is of the
    data as it was: once that has changed, reading raises ProblemError with the code
    ``data-changed``, and ``client.datasets[id]`` opens what there is now. Data that is declared
    growing may grow.

    Args:
        connector: of the client.
        ident: its id.
        info: its description, if known.
    """

    def __init__(
        self, connector: Connector, ident: str, info: Mapping[str, Any] | None = None
    ) -> None:
        self._connector = connector
        self._info = None if info is None else dict(info)
        self.id = ident

    @property
    def info(self) -> Info:
        """Description of the dataset: shapes, axes, dtype, files, fingerprint.

        Raises:
            ProblemError: there is no such dataset, or its files cannot be read.
            ConnectionFailed: the service could not be reached.
        """
        if self._info is None:
            request = Request("GET", path_of("datasets", self.id))
            self._info = (self._connector.call(request)).json()
        return self._info

    @property
    def nav_shape(self) -> tuple[int, ...]:
        """Axes of the scan."""
        return _shape(self.info, "nav_shape")

    @property
    def sig_shape(self) -> tuple[int, ...]:
        """Axes of a frame."""
        return _shape(self.info, "sig_shape")

    @property
    def shape(self) -> tuple[int, ...]:
        """Axes of the scan, then those of a frame."""
        info = self.info
        return _shape(info, "nav_shape") + _shape(info, "sig_shape")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that are read, unless a view asks for another."""
        info = self.info
        return np.dtype(_dtype(info))

    @property
    def fingerprint(self) -> str:
        """Identifies the data: it differs once a file has changed."""
        return str(self.info.get("fingerprint"))

    def _pin(self) -> str | None:
        """Fingerprint of the data that the handle and its views are of; None if it may grow."""
        info = self.info
        return None if info.get("growing") else str(info.get("fingerprint"))

    def _check(self, was: str | None) -> None:
        """Check, after an answer that does not tell, that it is of the data of this fingerprint.

        Raises:
            ProblemError: it has changed (code ``data-changed``).
        """
        reply = self._connector.call(Request("GET", path_of("datasets", self.id)))
        check_fingerprint(was, reply.text("fingerprint"))

    def view(self, **options: Unpack[ViewOptions]) -> View:
        """A view of the dataset; everything by default.

        Args:
            **options: of the contract, see ViewOptions.

        Raises:
            TypeError, ValueError: an option is wrong.
            IndexError: an index or a slice goes beyond an axis.
            ThalwegError: slices need the shape, and it could not be asked for.
        """
        spec = ViewSpec(options)
        shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if spec.needs_shape:
            shapes = (self.nav_shape, self.sig_shape)
        return View(self._connector, self.id, spec.json(*shapes), self._pin())

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Array:
        """Frames at positions of the scan, as NumPy would: ``scan[5, 7]`` is one frame.

        Lists and arrays, of integers or bool, select as they do in NumPy, such as
        ``scan[[3, 1], 7]`` and ``scan[image > 7]``.

        Raises:
            IndexError, ValueError: the scan has no such position.
            ThalwegError: the service refused, or could not be reached.
        """
        axes: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
        check_index(axes)
        if not all(isinstance(axis, int | np.integer) or _is_forward(axis) for axis in axes):
            return self._frames_at(axes)
        shape, sig = self.nav_shape, self.sig_shape
        axes = (*map(_clipped, axes, shape), *axes[len(shape) :])
        view = self.view(nav=axes)
        wanted = np.broadcast_to(True, shape)[axes]
        if not wanted.size:
            return self._none(wanted.shape)
        frames = view.read()
        _check_present(frames.size // math.prod(sig), wanted.size)
        return frames[tuple(slice(None) if isinstance(axis, slice) else 0 for axis in axes)]

    def _frames_at(self, axes: tuple[Any, ...]) -> Array:
        if any(axis is Ellipsis for axis in axes):
            raise IndexError("... stands for axes of frames too: write : for an axis of the scan")
        shape = self.nav_shape
        positions = np.arange(math.prod(shape)).reshape(shape)[axes]
        if not positions.size:
            return self._none(positions.shape)
        view = self.view(frames=positions.ravel())
        frames = view.read()
        _check_present(len(frames), positions.size)
        return frames.reshape(positions.shape + frames.shape[1:])

    def _none(self, shape: tuple[int, ...]) -> Array:
        """No frames, as a view cannot select them."""
        info = self.info
        return np.empty(shape + _shape(info, "sig_shape"), _dtype(info))

    def frame(self, *position: int) -> Array:
        """The frame at a position of the scan, an index for each of its axes.

        Raises:
            IndexError: the scan has no such position.
            ValueError: there are more or fewer axes.
            ThalwegError: the service refused, or could not be reached.
        """
        if len(position) != len(axes := self.nav_shape):
            text = f"a position has {len(axes)} indices, as the scan is {axes}"
            raise ValueError(f"{text}, and {len(position)} are given")
        return self[position]

    def __repr__(self) -> str:
        if self._info is None:
            return f"<dataset {self.id}>"
        scan, frame = (tuple(self._info.get(name, ())) for name in ("nav_shape", "sig_shape"))
        return f"<dataset {self.id}: {scan} frames of {frame} {_dtype(self._info)}>"

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be read by NumPy, which would take the handle for a single object."""
        raise TypeError("a dataset is no array: scan.view().read() gives one, scan[5, 7] a frame")

    def delete(self) -> None:
        """Have the service forget the dataset; its files stay.

        Raises:
            ProblemError: there is no such dataset, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        self._connector.call(Request("DELETE", path_of("datasets", self.id)))
        self._info = None

    def delete_view(self, view: str) -> None:
        """Have the service forget a view that it keeps.

        Args:
            view: its id, as ``View.id`` gives it.

        Raises:
            ProblemError: there is no such view, or it is not yours.
            ConnectionFailed: the service could not be reached.
        """
        self._connector.call(Request("DELETE", path_of("datasets", self.id, "views", view)))

    def reduce(
        self,
        reduction: str | Mapping[str, Any],
        view: View | None = None,
        progress: Watch | None = None,
    ) -> dict[str, Array]:
        """Reduce frames to an image, or pixels to a map of the scan, on the server.

        Args:
            reduction: as in the contract, such as ``{"op": "mean", "over": "pixels"}``,
                or in short: ``com``, ``disk:32,30,10``. A detector may be ``{"weights": array}``: a
                mask, or a weight per pixel, of the shape of a frame of the view.
            view: what to reduce; everything by default.
            progress: called with how much is done, and of how much.

        Returns:
            The results by name.

        Raises:
            TypeError, ValueError: an argument is wrong.
            ThalwegError: the service refused, or could not be reached.
        """
        requests = TileRequests(self.id, self._spec_of(view) or {})
        request = requests.reduce(reduction_json(reduction))
        pinned = self._pin()
        with self._connector.channel() as channel:
            operation = Reduction(channel, request, progress)
            operation.complete()
        self._check(pinned)
        return operation.results

    def image(
        self,
        path: str | Path,
        reduction: str | Mapping[str, Any] | None = None,
        view: View | None = None,
        **options: Any,  # noqa: ANN401 - those of the service
    ) -> None:
        """Write a reduction as a picture (PNG) to a file.

        Args:
            path: of the file, which ends in .png; it appears once it is complete.
            reduction: as for ``reduce``; the sum of all frames by default.
            view: as for ``reduce``.
            **options: of the picture: ``result``, ``low``, ``high``, ``map``, ``scale``.

        Raises:
            TypeError, ValueError: an argument is wrong.
            ThalwegError: the service refused, or could not be reached.
            OSError: the file cannot be written.
        """
        query = {
            "reduction": None if reduction is None else reduction_json(reduction),
            "view": self._spec_of(view),
            **options,
        }
        check_target(Path(path), ".png")
        pinned = self._pin()
        with self._connector.channel() as channel:
            picture = (channel.call(image(self.id, query))).body
            if not picture.startswith(_PNG):
                raise ProtocolError("the answer is not a picture")
            self._check(pinned)
            channel.work(partial(write_file, Path(path), picture))

    def _spec_of(self, view: View | None) -> Info | None:
        """The view as JSON values.

        Raises:
            TypeError: it is no view.
            ValueError: it is one of another dataset.
        """
        if not isinstance(view, View | None):
            raise TypeError(f"view is a {type(view).__name__}: pass the result of view(…)")
        if view is not None and view.dataset != self.id:
            raise ValueError(f"the view is of the dataset {view.dataset!r}, not of {self.id!r}")
        return None if view is None else view.spec


def _is_forward(axis: Any) -> bool:  # noqa: ANN401 - of __getitem__
    return isinstance(axis, slice) and (axis.step is None or axis.step > 0)


def _clipped(axis: Any, length: int) -> Any:  # noqa: ANN401 - of __getitem__
    """An index of an axis; a slice ends with the axis, as in NumPy."""
    return slice(*axis.indices(length)) if isinstance(axis, slice) else axis


def _dtype(info: Mapping[str, Any]) -> str:
    return str(info.get("corrected_dtype") or info.get("dtype"))


def _shape(info: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A shape of a dataset's description.

    Raises:
        ProtocolError: it is missing.
    """
    value = info.get(name)
    if not isinstance(value, list) or not all(isinstance(n, int) and n > 0 for n in value):
        raise ProtocolError(f"the dataset has no {name}")
    return tuple(value)


def _check_present(found: int, wanted: int) -> None:
    if found < wanted:
        raise IndexError(
            f"{wanted - found} of {wanted} positions have no frame: give view(…) missing='zero'"
            " or 'nan'"
        )


class Datasets(Calls):
    """Datasets of the service: ``client.datasets``."""

    def list(self) -> Ids:
        """Ids of all datasets, in order.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        return self._connector.ids("datasets")

    def register(self, spec: Mapping[str, Any] | None = None, /, **more: Any) -> Dataset:  # noqa: ANN401 - as in the contract
        """Register files that the service can read as a dataset.

        Registering the same again gives the same dataset.

        Args:
            spec: as in the contract: ``id``, ``files`` or ``glob``, ``nav_shape`` ...
            **more: members of the same.

        Raises:
            TypeError: it is no description.
            ThalwegError: the service refused, or could not be reached.
        """
        request = json_request("/v1/datasets", dataset_spec(spec, **more))
        info = (self._connector.call(request)).json()
        return Dataset(self._connector, str(info.get("id")), info)

    def __getitem__(self, ident: str) -> Dataset:
        """A dataset by its id; the service is not asked yet.

        Raises:
            TypeError: it is no text.
            ValueError: it is a path, which no id is.
        """
        if not isinstance(ident, str):  # or iteration by integers would never end
            raise TypeError(f"{ident!r} is no id: client.datasets.list() gives those there are")
        if "/" in ident:
            raise ValueError(f"{ident!r} is a path: register the file, and name the dataset's id")
        return Dataset(self._connector, ident)

    def open_view(
        self, view: str, dataset: str | None = None, fingerprint: str | None = None
    ) -> View:
        """A view that the service keeps, of the data as it is now.

        Args:
            view: its id, as ``View.id`` gives it.
            dataset: id of its dataset; None asks the service.
            fingerprint: that the data must have; None for any.

        Raises:
            ProblemError: there is no such view, or the data is not that (code ``data-changed``).
            ConnectionFailed: the service could not be reached.
        """
        if dataset is None:
            store = self._connector.call(Request("GET", f"/zarr/{view}/data/zarr.json"))
            dataset = str(store.json()["attributes"]["dataset"])
        path = path_of("datasets", dataset, "views", view)
        reply = self._connector.call(Request("GET", path))
        now = reply.text("fingerprint")
        check_fingerprint(fingerprint, now)
        return View(self._connector, dataset, reply.json()["view"], now)

    def __iter__(self) -> Iterator[str]:
        yield from self.list()
