"""Views of datasets: opened, planned, and registered under their digest."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.datasets.catalogue import Catalogue
from app.datasets.opened import OpenDataset
from app.errors import NotFoundError
from app.state.base import HeadExistsError, HeadMissingError, StateStore
from app.tokens import KeyRing
from core.arrays import Array
from core.tiles.plan import Plan, Tile, make_plan
from core.tiles.reader import TileReader
from core.tiles.view import View, parse_view

from .tokens import TileTokens, stream_identity

KIND = "view"
_CACHED = 64
"""Plans and parsed views to cache: planning a list of a million frames takes a while."""


@dataclass(slots=True, eq=False)
class OpenView:
    """A view of a dataset whose files are open; the caller closes it."""

    dataset: OpenDataset
    view: View
    plan: Plan
    tokens: TileTokens

    def reader(self) -> TileReader:
        """Return a new reader of the tiles, for one thread at a time."""
        dataset = self.dataset
        corrections = dataset.corrections
        return TileReader(self.plan, dataset.recording, dataset.frames(), corrections)

    def read(self, tile: Tile) -> Array:
        """Read one tile."""
        return self.reader().read(tile)

    def etag(self, part: str) -> str:
        """Return the strong entity tag of a part of the view; reads no data."""
        tokens = self.tokens
        return f'"{tokens.identity.hex()}-{tokens.fingerprint.hex()}-{part}"'

    def close(self) -> None:
        """Close the files."""
        self.dataset.close()


class Views:
    """Views of the datasets of a catalogue.

    Args:
        catalogue: the datasets.
        store: holds the registered views.
        keys: sign tokens.
    """

    def __init__(self, catalogue: Catalogue, store: StateStore, keys: KeyRing) -> None:
        self._catalogue = catalogue
        self._store = store
        self._keys = keys
        self._plans: OrderedDict[tuple[str, bytes, bytes], Plan] = OrderedDict()
        self._known: OrderedDict[str, tuple[str, View, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, dataset: str, spec: Mapping[str, Any]) -> OpenView:
        """Open a view of a dataset.

        Raises:
            CoreError, ServiceError: there is no such dataset, or the view does not fit it.
        """
        view = parse_view(spec)
        return self._open(dataset, view, view.digest())

    def _open(self, dataset: str, view: View, digest: bytes) -> OpenView:
        opened = self._catalogue.open(dataset)
        try:
            plan = self._plan(opened, view, digest)
        except BaseException:
            opened.close()
            raise
        identity = stream_identity(dataset, digest)
        return OpenView(opened, view, plan, TileTokens(self._keys, identity, opened.fingerprint))

    def _plan(self, dataset: OpenDataset, view: View, digest: bytes) -> Plan:
        key = (dataset.spec.id, dataset.fingerprint, digest)
        with self._lock:
            known = self._plans.get(key)
            if known is not None:
                self._plans.move_to_end(key)
                return known
        plan = make_plan(
            dataset.recording,
            view,
            nav_shape=dataset.nav_shape,
            sync_offset=dataset.sync_offset,
        )
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _CACHED:
                self._plans.popitem(last=False)
        return plan

    def register(self, dataset: str, spec: Mapping[str, Any]) -> tuple[str, OpenView, bool]:
        """Register a view under the digest of its dataset and spec.

        Returns:
            Its id, the open view, and whether it is new.

        Raises:
            CoreError, ServiceError: as for ``open``.
        """
        opened = self.open(dataset, spec)
        value = {"dataset": dataset, "view": opened.view.to_json()}
        text = json.dumps(value, sort_keys=True).encode()
        ident = hashlib.blake2b(text, digest_size=12).hexdigest()
        try:
            self._store.create(KIND, ident, text)
        except HeadExistsError:
            return ident, opened, False
        except BaseException:
            opened.close()
            raise
        return ident, opened, True

    def registered(self, ident: str, dataset: str | None = None) -> OpenView:
        """Open a registered view.

        Args:
            ident: id of the view.
            dataset: id of the dataset it must belong to; None for any.

        Raises:
            NotFoundError: there is no such view of that dataset.
        """
        owner, view, digest = self._registered(ident)
        if dataset not in {None, owner}:
            raise NotFoundError(f"there is no view {ident[:80]!r} of dataset {dataset!r}")
        return self._open(owner, view, digest)

    def _registered(self, ident: str) -> tuple[str, View, bytes]:
        """Look up (dataset, view, digest of the view); cached, for an id never changes."""
        with self._lock:
            known = self._known.get(ident)
            if known is not None:
                self._known.move_to_end(ident)
        try:
            if known is not None:
                self._store.touch(KIND, ident)
                return known
            stored = json.loads(self._store.get(KIND, ident).value)
        except HeadMissingError as e:
            raise NotFoundError(f"there is no view {ident[:80]!r}") from e
        view = parse_view(stored["view"])
        known = stored["dataset"], view, view.digest()
        with self._lock:
            self._known[ident] = known
            while len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return known


def padded(values: Array, shape: tuple[int, ...]) -> Array:
    """Fill up a tile at a border with zeros to the shape of all others."""
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[tuple(slice(0, length) for length in values.shape)] = values
    return whole
