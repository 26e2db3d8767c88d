"""Views of datasets: opened, planned, and registered under their digest."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from app.datasets.catalogue import Catalogue
from app.datasets.files.file_set import on_error
from app.datasets.opened import OpenDataset
from app.datasets.pinning import pin
from app.errors import InvalidOptionError, NotFoundError
from app.http.identity import Identity
from app.state.base import MAX_VALUE, RecordInvalidError, RecordMissingError, StateStore
from app.state.ownership import Namespaces
from app.tokens import KeyRing
from core.arrays import Array
from core.errors import SelectionError
from core.tiles.plan import Plan, Tile
from core.tiles.reader import TileReader
from core.tiles.view import Mask, View, parse_view

from .encoding import TileTokens, pinned_frames, stream_identity

MAX_VIEW_BYTES = 1 << 62
"""Bytes of all tiles of a view, missing frames included: JSON has no larger integers."""
K = TypeVar("K")
V = TypeVar("V")

KIND = "view"
_CACHED = 64
"""Plans and parsed views to cache: planning a list of a million frames takes a while."""
_MAX_STORED = 4 * MAX_VALUE
"""Bytes of listed positions whose JSON, of two characters or more for eight bytes, is too long
to be stored."""
_MAX_STORED_MASK = MAX_VALUE
"""The same of a mask, whose JSON is longer than its bytes."""
_CACHED_BYTES = 64 << 20
"""Bytes of listed positions to cache, of plans and as much again of parsed views."""


@dataclass(slots=True, eq=False)
class OpenView:
    """A view of a dataset whose files are open; the caller closes it."""

    dataset: OpenDataset
    view: View
    plan: Plan
    tokens: TileTokens

    def reader(self) -> TileReader:
        """Return a new reader of the tiles, for one thread at a time."""
        return self.dataset.reader(self.plan)

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


_PlanKey = tuple[str, str, bytes, bytes]
"""Owner, dataset, its fingerprint, and digest of the view."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A registered view."""

    dataset: str
    view: View
    digest: bytes


class Views:
    """Views of the datasets of a catalogue, registered in the namespace of their owner.

    A view names its dataset by id, which is looked up in the namespace of whoever uses the
    view. So two owners may have views of the same id over different datasets.

    Args:
        catalogue: the datasets.
        store: holds the registered views.
        keys: sign tokens.
    """

    def __init__(self, catalogue: Catalogue, store: StateStore, keys: KeyRing) -> None:
        self._catalogue = catalogue
        self._registered = Namespaces(store, KIND)
        self._keys = keys
        self._plans: OrderedDict[_PlanKey, Plan] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self, caller: Identity, dataset: str, spec: Mapping[str, Any], after: str | None = None
    ) -> OpenView:
        """Open a view of a dataset.

        Args:
            caller: the caller.
            dataset: id of the dataset.
            spec: the view, as JSON values.
            after: a token of the view, whose frames a growing dataset then has; None for those
                that are there.

        Raises:
            CoreError, ServiceError: the caller has no such dataset, or the view does not
                fit it.
        """
        return self._open(caller, dataset, parse_view(spec), after=after)

    def _open(
        self,
        caller: Identity,
        dataset: str,
        view: View,
        digest: bytes | None = None,
        after: str | None = None,
    ) -> OpenView:
        opened, frames = self._catalogue.open(caller, dataset), None
        with on_error(opened.close):
            if opened.spec.growing:
                opened = pin(opened, pinned_frames(self._keys, after))
                frames = opened.recording.frames
            if digest is None:
                _check_casting(opened, view)
                view = opened.typed(view)
                digest = view.digest()
            plan = self._plan(caller, opened, view, digest)
        identity = stream_identity(dataset, digest)
        tokens = TileTokens(self._keys, identity, opened.fingerprint, frames)
        return OpenView(opened, view, plan, tokens)

    def _plan(self, caller: Identity, dataset: OpenDataset, view: View, digest: bytes) -> Plan:
        key = (caller.owner, dataset.spec.id, dataset.fingerprint, digest)
        with self._lock:
            known = self._plans.get(key)
            if known is not None:
                self._plans.move_to_end(key)
                return known
        plan = dataset.plan(view)
        if plan.nbytes > MAX_VIEW_BYTES:
            raise SelectionError(
                f"the view has {plan.nbytes} bytes, more than {MAX_VIEW_BYTES}",
                hint="Select fewer positions, or skip those without a frame",
            )
        with self._lock:
            self._plans[key] = plan
            _shrink(self._plans, lambda known: known.positions.nbytes + known.view.nbytes)
        return plan

    def register(
        self, caller: Identity, dataset: str, spec: Mapping[str, Any]
    ) -> tuple[str, OpenView, bool]:
        """Register a view under the digest of its dataset and spec.

        Returns:
            Its id, the open view, and whether it is new to the caller.

        Raises:
            CoreError, ServiceError: as for ``open``.
        """
        view = parse_view(spec)
        # Before it is planned, which takes several times the memory of a mask.
        if view.nbytes > (_MAX_STORED_MASK if isinstance(view.select, Mask) else _MAX_STORED):
            raise RecordInvalidError(
                f"a view whose JSON is longer than {MAX_VALUE} bytes cannot be registered",
                hint="Send it with each request, to /tiles, /plan or /reduce",
            )
        opened = self._open(caller, dataset, view)
        value = {"dataset": dataset, "view": opened.view.to_json()}
        text = json.dumps(value, sort_keys=True).encode()
        ident = hashlib.blake2b(text, digest_size=12).hexdigest()
        with on_error(opened.close):
            return ident, opened, self._registered.create(caller.owner, ident, value)

    def registered(
        self, caller: Identity, ident: str, dataset: str | None = None, after: str | None = None
    ) -> OpenView:
        """Open a registered view.

        Args:
            caller: the caller.
            ident: id of the view.
            dataset: id of the dataset it must belong to; None for any.
            after: see ``open``.

        Raises:
            NotFoundError: the caller has no such view of that dataset.
        """
        owner, known = self._look_up(caller, ident, dataset)
        caller = caller.acting_for(owner)
        return self._open(caller, known.dataset, known.view, known.digest, after)

    def check(self, caller: Identity, ident: str, dataset: str) -> None:
        """Check that the caller has a registered view of a dataset.

        Raises:
            NotFoundError: it has none.
        """
        self._look_up(caller, ident, dataset)

    def delete(self, caller: Identity, ident: str, dataset: str) -> None:
        """Delete a registered view; ``admin`` deletes one of others for all of its owners.

        Raises:
            NotFoundError: the caller has no such view of that dataset.
        """
        self.check(caller, ident, dataset)
        for owner in self._registered.remove(caller.owner, ident, everyone=caller.is_admin):
            with self._lock:
                self._known.pop((owner, ident), None)

    def _look_up(self, caller: Identity, ident: str, dataset: str | None) -> tuple[str, _Known]:
        """Return an owner of a registered view, the caller if it is one, and the view."""
        owner, stored = caller.owner, b""
        try:
            stored = self._registered.record(owner, ident).value
        except RecordMissingError as e:
            others = self._registered.of_anyone(ident) if caller.is_admin else []
            if not others:
                raise NotFoundError(
                    f"there is no view {ident[:80]!r}",
                    hint="POST a view, such as {}, to /v1/datasets/{id}/views, and use its id",
                ) from e
            owner, stored = others[0].owner, others[0].record.value
        known = self._parse(owner, ident, stored)
        if dataset not in {None, known.dataset}:
            raise NotFoundError(f"there is no view {ident[:80]!r} of dataset {dataset!r}")
        return owner, known

    def _parse(self, owner: str, ident: str, stored: bytes) -> _Known:
        """Parse a stored view; cached, for the content of an id never changes."""
        with self._lock:
            known = self._known.get((owner, ident))
            if known is not None:
                self._known.move_to_end((owner, ident))
                return known
        value = json.loads(stored)["value"]
        view = parse_view(value["view"])
        known = _Known(value["dataset"], view, view.digest())
        with self._lock:
            self._known[owner, ident] = known
            _shrink(self._known, lambda known: known.view.nbytes)
        return known


def _check_casting(dataset: OpenDataset, view: View) -> None:
    """Check that a casting that is asked for has an effect: stored ones may have none.

    Raises:
        InvalidOptionError: it has none.
    """
    is_complex = dataset.recording.dtype.kind == "c" or dataset.corrections.is_complex
    # Sums over bins may exceed any integer; floats take all values, but no imaginary parts.
    wide = not view.bins
    if view.dtype is not None:
        wide = np.dtype(view.dtype).kind in ("c" if is_complex else "fc")
    if view.casting != "safe" and wide:
        raise InvalidOptionError(
            f"casting={view.casting} has no effect: every value fits the dtype that the view gets",
            hint="Add an integer dtype, such as '<u1', or leave casting out",
            option="casting",
        )


def _shrink(cache: OrderedDict[K, V], nbytes: Callable[[V], int]) -> None:
    """Remove the oldest entries of a cache that has too many, or too large ones."""
    total = sum(map(nbytes, cache.values()))
    while cache and (len(cache) > _CACHED or total > _CACHED_BYTES):
        total -= nbytes(cache.popitem(last=False)[1])


def padded(values: Array, shape: tuple[int, ...]) -> Array:
    """Fill up a tile at a border with zeros to the shape of all others."""
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[tuple(slice(0, length) for length in values.shape)] = values
    return whole
