"""What can be done with the catalogue, as operations that either client runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..files.outputs import write_file
from ..tiles.options import ViewSpec
from ..tiles.reductions import reduction_json
from ..tiles.requests import view_deletion
from ..transport.answers import call, delete
from ..transport.effects import Steps, Work
from .requests import deletion, description, image, listing, registration

Ids: TypeAlias = list[str]
Info: TypeAlias = dict[str, Any]
"""The description of a dataset."""

_PNG = b"\x89PNG\r\n\x1a\n"


def list_ids(retries: int) -> Steps[Ids]:
    """The ids of all datasets, in order.

    Raises:
        ProtocolError: an answer holds none, or repeats some.
    """
    ids: Ids = []
    more = True
    while more:
        after = ids[-1] if ids else ""
        page = (yield from call(listing(after), retries)).json()
        found = page.get("datasets")
        if not isinstance(found, list) or not all(isinstance(i, str) and i > after for i in found):
            raise ProtocolError("the answer is not a list of ids")
        ids += found
        more = bool(found) and page.get("after") is not None
    return ids


def register(spec: Mapping[str, Any], retries: int) -> Steps[Info]:
    """Register files as a dataset; return its description."""
    return (yield from call(registration(spec), retries)).json()


class DatasetOperations:
    """Operations on one dataset.

    Args:
        ident: its id.
        info: its description, if known.
        retries: failures in a row to tolerate.
    """

    def __init__(self, ident: str, info: Mapping[str, Any] | None, retries: int) -> None:
        self.id = ident
        self._info = None if info is None else dict(info)
        self._retries = retries

    def describe(self) -> Steps[Info]:
        """Ask for the description, once."""
        if self._info is None:
            self._info = (yield from call(description(self.id), self._retries)).json()
        return self._info

    def delete(self) -> Steps[None]:
        """Delete the dataset; its files stay."""
        yield from delete(deletion(self.id), self._retries)
        self._info = None

    def delete_view(self, view: str) -> Steps[None]:
        """Delete a view that the service keeps."""
        return delete(view_deletion(self.id, view), self._retries)

    def view(self, spec: ViewSpec) -> Steps[dict[str, Any]]:
        """A view as JSON values.

        Raises:
            ValueError: slices do not fit the shape.
        """
        if not spec.needs_shape:
            return spec.json((), ())
        info = yield from self.describe()
        return spec.json(shape_of(info, "nav_shape"), shape_of(info, "sig_shape"))

    def image(
        self,
        path: str | Path,
        reduction: str | Mapping[str, Any] | None,
        view: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Steps[None]:
        """Write a reduction as a picture (PNG) to a file.

        Args:
            path: of the file.
            reduction: as in the contract, or a name; the service's default if None.
            view: as JSON values; everything if None.
            options: of the picture.

        Raises:
            ProtocolError: the answer is not a picture.
            OSError: the file cannot be written.
        """
        query = {
            "reduction": None if reduction is None else reduction_json(reduction),
            "view": view,
            **options,
        }
        picture = (yield from call(image(self.id, query), self._retries)).body
        if not picture.startswith(_PNG):
            raise ProtocolError("the answer is not a picture")
        yield Work(partial(write_file, Path(path), picture))


def shape_of(info: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A shape of a dataset's description.

    Raises:
        ProtocolError: it is missing.
    """
    value = info.get(name)
    if not isinstance(value, list) or not all(isinstance(n, int) and n > 0 for n in value):
        raise ProtocolError(f"the dataset has no {name}")
    return tuple(value)
