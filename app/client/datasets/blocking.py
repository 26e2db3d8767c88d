"""Datasets and what is made of them, with blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np

from ..errors import ProtocolError
from ..files.outputs import FileOutput
from ..tiles.blocking import View
from ..tiles.plan import Array
from ..tiles.reductions import Reducing, Watch
from ..tiles.requests import (
    ViewOptions,
    ViewSpec,
    dataset_path,
    image_request,
    listing,
    reduction_json,
    reduction_request,
    registration,
)
from ..transport.blocking import AnswerPort, drive
from ..transport.http import Pool
from ..transport.requests import Reply, Request
from ..transport.retry import Backoff

Ids: TypeAlias = list[str]

_PNG = b"\x89PNG\r\n\x1a\n"


class Dataset:
    """Files of a detector, read as one array: ``client.datasets[id]``.

    Nothing is asked before something has to be known.

    Args:
        pool: of connections.
        retries: faults in a row to bear.
        call: sends a small request.
        ident: its id.
        info: what is known of it, if anything is.
    """

    def __init__(
        self,
        pool: Pool,
        retries: int,
        call: Callable[[Request], Reply],
        ident: str,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self._pool = pool
        self._retries = retries
        self._call = call
        self.id = ident
        if info is not None:
            self.__dict__["info"] = dict(info)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the service says of it: shapes, axes, type, files, fingerprint.

        Raises:
            ProblemError: there is no such dataset, or its files cannot be read.
            ConnectionFailed: the service could not be reached.
        """
        return self._call(Request("GET", dataset_path(self.id))).json()

    @property
    def nav_shape(self) -> tuple[int, ...]:
        """Axes of the scan."""
        return shape_of(self.info, "nav_shape")

    @property
    def sig_shape(self) -> tuple[int, ...]:
        """Axes of a frame."""
        return shape_of(self.info, "sig_shape")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values, as they are stored."""
        return np.dtype(str(self.info.get("dtype")))

    @property
    def fingerprint(self) -> str:
        """Another one if a file has changed."""
        return str(self.info.get("fingerprint"))

    def view(self, **options: Unpack[ViewOptions]) -> View:
        """What is wanted of it; everything by default.

        Args:
            **options: as the contract has them, see ViewOptions.

        Raises:
            TypeError, ValueError: an option cannot be.
            ThalwegError: slices need the shape, which could not be asked for.
        """
        spec = ViewSpec(options)
        shapes = (self.nav_shape, self.sig_shape) if spec.needs_shape else ((), ())
        return View(self._pool, self._retries, self._call, self.id, spec.json(*shapes))

    def reduce(
        self,
        reduction: str | Mapping[str, Any],
        view: View | None = None,
        progress: Watch | None = None,
    ) -> dict[str, Array]:
        """Reduce frames to an image, or pixels to a map of the scan, on the server.

        Args:
            reduction: as the contract has it, such as ``{"op": "mean", "over": "frames"}``,
                or a name, such as ``com``.
            view: what to reduce; everything by default.
            progress: called with how much is done, and of how much.

        Returns:
            The results by name.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        spec = {} if view is None else view.spec
        request = reduction_request(self.id, spec, reduction_json(reduction))
        reducing = Reducing(request, Backoff(self._retries), progress)
        port = AnswerPort(self._pool)
        try:
            for _ in drive(reducing.run(), port):
                pass
        finally:
            port.close()
        return reducing.results

    def image(
        self,
        path: str | Path,
        reduction: str | Mapping[str, Any] | None = None,
        view: View | None = None,
        **options: Any,  # noqa: ANN401 - what the service knows
    ) -> None:
        """Write a reduction as a picture (PNG) to a file.

        Args:
            path: of the file; it appears when it is whole.
            reduction: as for ``reduce``; the sum of all frames by default.
            view: as for ``reduce``.
            **options: of the picture: ``result``, ``low``, ``high``, ``map``.

        Raises:
            ThalwegError: the service refused, or could not be reached.
            OSError: the file cannot be written.
        """
        asked = {
            "reduction": None if reduction is None else reduction_json(reduction),
            "view": None if view is None else view.spec,
        }
        picture = self._call(image_request(self.id, asked | options)).body
        if not picture.startswith(_PNG):
            raise ProtocolError("the answer is not a picture")
        output = FileOutput(Path(path))
        try:
            output.write(picture)
        except OSError:
            output.close(keep=False)
            raise
        output.finish()


class Datasets:
    """Datasets of the service: ``client.datasets``."""

    def __init__(self, pool: Pool, retries: int, call: Callable[[Request], Reply]) -> None:
        self._pool = pool
        self._retries = retries
        self._call = call

    def list(self) -> Ids:
        """Ids of all datasets, in order.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        found: Ids = []
        more = True
        while more:
            page = self._call(listing(found[-1] if found else "")).json()
            more = take_ids(page, found)
        return found

    def register(self, spec: Mapping[str, Any] | None = None, /, **more: Any) -> Dataset:  # noqa: ANN401 - as in the contract
        """Make a dataset of files that the service can read.

        The same again gives the same dataset.

        Args:
            spec: as the contract has it: ``id``, ``files`` or ``glob``, ``nav_shape`` ...
            **more: members of the same.

        Raises:
            ThalwegError: the service refused, or could not be reached.
        """
        info = self._call(registration({**(spec or {}), **more})).json()
        return self._dataset(str(info.get("id")), info)

    def __getitem__(self, ident: str) -> Dataset:
        """A dataset by its id, which is not asked for yet."""
        return self._dataset(ident)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def _dataset(self, ident: str, info: Mapping[str, Any] | None = None) -> Dataset:
        return Dataset(self._pool, self._retries, self._call, ident, info)


def take_ids(page: Mapping[str, Any], found: Ids) -> bool:
    """Take the ids of one answer; whether there are more.

    Raises:
        ProtocolError: they are none, or not behind those that were known.
    """
    ids = page.get("datasets")
    after = found[-1] if found else ""
    if not isinstance(ids, list) or not all(isinstance(i, str) and i > after for i in ids):
        raise ProtocolError("the answer is no list of ids")
    found += ids
    return bool(ids) and page.get("after") is not None


def shape_of(info: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A shape of a dataset's description.

    Raises:
        ProtocolError: it is not there.
    """
    value = info.get(name)
    if not isinstance(value, list) or not all(isinstance(n, int) and n > 0 for n in value):
        raise ProtocolError(f"the dataset has no {name}")
    return tuple(value)
