"""What can be done with the catalogue, as operations that either client runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..files.outputs import write_file
from ..tiles.reductions import reduction_json
from ..transport.answers import call
from ..transport.effects import Steps, Work
from .requests import image, listing, registration

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


def write_image(  # noqa: PLR0913, PLR0917 - what the caller said
    ident: str,
    path: str | Path,
    reduction: str | Mapping[str, Any] | None,
    view: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    retries: int,
) -> Steps[None]:
    """Write a reduction as a picture (PNG) to a file.

    Args:
        ident: of the dataset.
        path: of the file.
        reduction: as in the contract, or a name; the service's default if None.
        view: as JSON values; everything if None.
        options: of the picture.
        retries: failures in a row to tolerate.

    Raises:
        ProtocolError: the answer is not a picture.
        OSError: the file cannot be written.
    """
    query = {
        "reduction": None if reduction is None else reduction_json(reduction),
        "view": view,
        **options,
    }
    picture = (yield from call(image(ident, query), retries)).body
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
