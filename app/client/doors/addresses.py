"""What the addresses of datasets and views stand for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from ..client import Client
from ..datasets.blocking import Dataset
from ..tiles.blocking import View
from ..transport.http import TIMEOUT
from ..transport.retry import RETRIES

_ADDRESS = re.compile(
    r"(?P<url>https?://[^?#]+?)"
    r"(?:/v1/datasets/(?P<dataset>[^/?#]+)(?:/views/(?P<view>[^/?#]+))?"
    r"|/zarr/(?P<store>[^/?#.]+)(?:\.(?P<fingerprint>[0-9a-f]+))?)/?"
)


def is_address(text: object) -> bool:
    """Whether it is the address of a dataset, of a view, or of a view as a zarr group."""
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Opened:
    """What an address stands for.

    Attributes:
        client: to be closed when it is no longer used.
        dataset: its dataset.
        view: None if the address is that of a dataset.
    """

    client: Client
    dataset: Dataset
    view: View | None


def open_address(
    address: str, key: str | None = None, timeout: float = TIMEOUT, retries: int = RETRIES
) -> Opened:
    """Open what an address stands for.

    Args:
        address: ``http://…/v1/datasets/NAME``, one of these with ``/views/ID``, or
            ``http://…/zarr/ID.FINGERPRINT``.
        key: bearer key; by default THALWEG_KEY.
        timeout: as for ``Client``.
        retries: as for ``Client``.

    Raises:
        ValueError: it is no such address.
        ProblemError: there is no such thing; or its data is not that of the address any more.
        ConnectionFailed: the service could not be reached.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(
            f"{address!r} is no address of a dataset: http://HOST:PORT/v1/datasets/NAME is one;"
            " /views/ID may follow"
        )
    key = os.environ.get("THALWEG_KEY") if key is None else key
    parts = {name: unquote(part) for name, part in found.groupdict("").items()}
    client = Client(parts.pop("url"), key, timeout=timeout, retries=retries)
    try:
        return _opened(client, **parts)
    except BaseException:
        client.close()
        raise


def _opened(client: Client, dataset: str, view: str, store: str, fingerprint: str) -> Opened:
    """Open what the parts of an address name; those that are not there are empty."""
    if not view and not store:
        return Opened(client, client.datasets[dataset], None)
    kept = client.datasets.open_view(view or store, dataset or None, fingerprint or None)
    return Opened(client, client.datasets[kept.dataset], kept)
