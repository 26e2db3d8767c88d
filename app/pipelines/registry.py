"""The pipelines of the service: registered under their digest, opened on request.

A batch must be the same on every server, at any time, or not be served at all. Four values
decide which batch a request means:

    id            digest of the canonical spec and the version of the algorithms; its first
                  8 bytes, the *identity*, are in every token
    pins          items of each source that the order is computed over; a growing dataset
                  may have more by now, which the pipeline ignores
    fingerprint   digest of the bytes that the pinned items depend on, and of what the
                  catalogue declares them to mean
    state         position in the pipeline

The stored record of a pipeline has the first three as of its registration. A token has all
four (the pins of growing sources only: others cannot change without changing the
fingerprint), so the state store is needed for the spec alone. Opening compares:

    record (id, spec) ◀── id of the request
       │
       ├── token?  no: pins and fingerprint of the record, initial state
       │           yes: pins, fingerprint and state of the token
       ▼
    sources opened at these pins, their bytes fingerprinted
       │
       ├── another fingerprint, or too few items: 412, data changed
       ▼
    pipeline built, or taken from the cache by (owner, id, pins) if its files are unchanged,
    and all of its sources still the owner's

Records lie in the namespace of their owner, and name datasets and views by ids in it: equal
specs of two owners have the same id, but each its own data, pins and fingerprint.

Pinning, rather than following a dataset as it grows, keeps the order of a shuffle fixed
while items arrive. Registering a spec again after its data changed pins the record to the
new data; older tokens are then refused, as they would give other batches.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any

from app.datasets.catalogue import Catalogue
from app.datasets.files.file_set import on_error
from app.engine.request_budget import peak_bytes
from app.errors import BusyError, DataChangedError, NotFoundError
from app.http.identity import Identity
from app.state.base import RecordConflictError, RecordExistsError, RecordMissingError, StateStore
from app.state.ownership import Namespaces, OwnedRecord
from app.tiles.views import OpenView, Views
from app.tokens import KeyRing
from core.errors import CoreError, OptionError
from core.iterate.base import Indexed, State
from core.pipelines.pipeline import PipelineSpec, build_pipeline, parse_pipeline

from .opened import OpenPipeline, Registered, RequestProfiles, identity_of
from .sources import PinnedSource, open_source, source_key
from .tokens import BatchTokens, combine, split, verify

KIND = "pipeline"
_CACHED = 32
"""Pipelines that stay built for later requests."""
_LARGE = 128 << 20
"""Bytes held by a request after which its pipeline, with the batches it caches, is dropped."""
_ATTEMPTS = 5
"""Attempts to register a pipeline that other workers register at the same time."""

Pins = Mapping[str, int]
"""Number of items each source is pinned to, by source key."""
_BuiltKey = tuple[str, str, tuple[int, ...]]
"""Owner, id and pins of a pipeline."""


def _is_fresh(opened: OpenPipeline) -> bool:
    """Whether the data is unchanged since the pipeline was built."""
    try:
        return all(source.is_fresh() for source in opened.sources)
    except DataChangedError:
        return False


def _open_all(source: Callable[[str], PinnedSource], pins: Pins, fingerprint: bytes) -> None:
    """Open all sources.

    Raises:
        DataChangedError: a source lacks items or fields.
    """
    try:
        for key in pins:
            source(key)
    except CoreError as e:
        raise DataChangedError(
            f"the data has changed since the pipeline was registered: {e}",
            hint="Register the pipeline again, and start without after",
            was=fingerprint.hex(),
        ) from e


def _check(registered: Registered, tokens: BatchTokens, sources: Iterable[PinnedSource]) -> None:
    """Check that the data has the fingerprint of a record, or of the token put into it.

    Raises:
        DataChangedError: it has another; names the datasets that are not as they were registered,
            or all of them if only the token is of others.
    """
    pins = registered.pins()
    was = {source.get("pinned_fingerprint") for source in registered.sources}
    # What it was at another number of items, or when fewer things were recorded, nothing tells.
    changed = [
        source.key
        for source in sources
        if not was & {source.fingerprint.hex(), None} and source.count == pins[source.key]
    ]
    ids = {repr(json.loads(key)["dataset"]) for key in changed or registered.keys}
    tokens.check(registered.fingerprint, (" and " if changed else " or ").join(sorted(ids)))


def _named(view: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the id of a view if a source names it as ``{"id": id}``."""
    if isinstance(view, Mapping) and set(view) == {"id"}:
        return view["id"]
    return view


@lru_cache(maxsize=_CACHED)
def _parsed(ident: str, stored: bytes) -> Registered:
    """Parse a record, unless it is one of those parsed lately.

    Raises:
        NotFoundError: it is of another version of the service.
    """
    registered = Registered.of(ident, json.loads(stored)["value"])
    if registered.spec.digest.hex() != ident:
        # An earlier version of the algorithms built other batches from this spec.
        raise NotFoundError(
            f"pipeline {ident} was registered with another version of the service",
            hint="POST it to /v1/pipelines, and start without after",
        )
    return registered


def _missing(ident: str) -> NotFoundError:
    return NotFoundError(f"there is no pipeline {ident[:80]!r}", hint="POST it to /v1/pipelines")


class Pipelines:
    """Pipelines over the datasets of a catalogue.

    Args:
        catalogue: the datasets.
        views: the views of the datasets.
        store: holds the records of registered pipelines.
        keys: sign tokens.
    """

    def __init__(
        self, catalogue: Catalogue, views: Views, store: StateStore, keys: KeyRing
    ) -> None:
        self._catalogue = catalogue
        self._views = views
        self._records = Namespaces(store, KIND)
        self._keys = keys
        self._built: OrderedDict[_BuiltKey, OpenPipeline] = OrderedDict()
        self._lock = threading.Lock()

    def register(self, caller: Identity, values: Mapping[str, Any]) -> tuple[OpenPipeline, bool]:
        """Register a pipeline under its digest, for the caller.

        A registered pipeline keeps its pins while its data is unchanged. If the data
        changed, it is pinned to the new data, and older tokens are refused.

        Returns:
            The open pipeline, which the caller closes, and whether its record is new.

        Raises:
            PipelineError: the spec is invalid; names the stage and field.
            CoreError, ServiceError: a dataset cannot be opened.
            BusyError: other workers keep registering it at the same time.
        """
        spec = parse_pipeline(values)
        ident = spec.digest.hex()
        for _ in range(_ATTEMPTS):
            seen = self._seen(caller, ident)
            try:
                return self._open(caller, self._own(caller, ident), None), False
            except NotFoundError:
                pass
            except DataChangedError:
                self._forget(caller.owner, ident)
            opened, registered = self._pin(caller, spec, ident)
            raced = suppress(RecordExistsError, RecordConflictError, RecordMissingError)
            with raced, on_error(opened.close):
                self._store_record(caller, registered, seen)
                self._cache(caller, opened)
                return opened, True
        raise BusyError("other requests are registering the pipeline", retry_after=1)

    def _seen(self, caller: Identity, ident: str) -> OwnedRecord | None:
        """Return the present record; None if there is none."""
        try:
            return self._records.get(caller.owner, ident)
        except RecordMissingError:
            return None

    def _store_record(
        self, caller: Identity, registered: Registered, seen: OwnedRecord | None
    ) -> None:
        """Create the record, or replace the previous one.

        Raises:
            RecordExistsError, RecordConflictError, RecordMissingError: another request was first.
        """
        value = registered.to_json()
        if seen is None:
            self._records.insert(caller.owner, registered.ident, value)
        else:
            self._records.replace(seen, value)

    def _pin(
        self, caller: Identity, spec: PipelineSpec, ident: str
    ) -> tuple[OpenPipeline, Registered]:
        """Build a pipeline over the current data, and the record that pins it."""
        issued = datetime.fromtimestamp(int(time.time()) // 60 * 60, UTC)
        opened = self._build(caller, spec, {}, issued)
        sources = tuple(source.describe() for source in opened.sources)
        return opened, Registered(ident, spec, sources, opened.tokens.fingerprint, issued)

    def ids(self, caller: Identity, after: str = "", limit: int = 1000) -> list[str]:
        """List up to ``limit`` ids after ``after``, in order; everybody's for ``admin``."""
        if caller.is_admin:
            return self._records.all_ids(after, limit)
        return self._records.ids(caller.owner, after, limit)

    def open(self, caller: Identity, ident: str, after: str | None = None) -> OpenPipeline:
        """Open a pipeline at a position; the caller closes it.

        Args:
            caller: the caller.
            ident: id of the pipeline.
            after: token to continue after; None to start at the beginning.

        Raises:
            NotFoundError: the caller has no such pipeline.
            TokenMalformedError, TokenForgedError, TokenRetiredError, TokenForeignError: the
                token does not belong to this pipeline.
            DataChangedError: the data changed since the token was issued or the pipeline
                registered.
            StateError: the pipeline has no such position.
            CoreError, ServiceError: the data cannot be read.
        """
        try:
            registered = self._own(caller, ident)
        except RecordMissingError as e:
            others = self._records.of_anyone(ident) if caller.is_admin else []
            if not others:
                raise _missing(ident) from e
            caller = caller.acting_for(others[0].owner)
            registered = self._own(caller, ident)
        return self._open(caller, registered, after)

    def delete(self, caller: Identity, ident: str) -> None:
        """Delete a pipeline; ``admin`` deletes one of others for all of its owners.

        Raises:
            NotFoundError: the caller has no such pipeline.
        """
        try:
            owners = self._records.remove(caller.owner, ident, everyone=caller.is_admin)
        except RecordMissingError as e:
            raise _missing(ident) from e
        for owner in owners:
            self._forget(owner, ident)

    def _own(self, caller: Identity, ident: str) -> Registered:
        """Return the caller's record of a pipeline.

        Raises:
            RecordMissingError: it has none.
            NotFoundError: the record is of another version of the service.
        """
        return _parsed(ident, self._records.record(caller.owner, ident).value)

    def _open(self, caller: Identity, registered: Registered, after: str | None) -> OpenPipeline:
        issued = registered.issued
        state: State | None = None
        pins = registered.pins()
        if after is not None:
            verified = verify(self._keys, after, identity_of(registered.ident))
            registered = replace(registered, fingerprint=verified.token.fingerprint)
            issued = verified.issued
            state, counts = split(verified.token.state, registered.growing)
            pins = registered.pins(counts)
        shared = self._shared(caller, registered, pins)
        tokens = replace(shared.tokens, issued=issued)
        start = shared.pipeline.initial if state is None else state
        opened = replace(shared, tokens=tokens, start=start)
        with on_error(opened.close):
            opened.pipeline.check(start)
        return opened

    def _shared(self, caller: Identity, registered: Registered, pins: Pins) -> OpenPipeline:
        """Return the cached pipeline if its data is unchanged; else build it."""
        key = (caller.owner, registered.ident, tuple(pins.values()))
        with self._lock:
            cached = self._built.get(key)
            if cached is not None:
                self._built.move_to_end(key)
                cached.share()
        if cached is not None:
            with on_error(cached.close):
                if self._is_owned(caller, cached) and _is_fresh(cached):
                    _check(registered, cached.tokens, cached.sources)
                    return cached
            cached.close()
        opened = self._build(caller, registered.spec, pins, registered.issued, registered)
        self._cache(caller, opened)
        return opened

    def _is_owned(self, caller: Identity, opened: OpenPipeline) -> bool:
        """Whether the caller still has the datasets and views, declared as they were.

        Raises:
            NotFoundError: the caller no longer has one.
        """
        owned = True
        for source in opened.sources:
            values = json.loads(source.key)
            dataset, view = values["dataset"], _named(values["options"].get("view"))
            if isinstance(view, str):
                self._views.check(caller, view, dataset)
            owned = owned and self._catalogue.spec(caller, dataset) == source.dataset.spec
        return owned

    def _build(
        self,
        caller: Identity,
        spec: PipelineSpec,
        pins: Pins,
        issued: datetime,
        registered: Registered | None = None,
    ) -> OpenPipeline:
        """Open the sources of a pipeline and build it.

        Args:
            caller: whose datasets and views the spec names.
            spec: the spec.
            pins: the pins; empty to pin each source to all of its items.
            issued: issue time of the tokens.
            registered: has the fingerprint that the data must have; None for any.
        """
        ident = spec.digest.hex()
        sources: dict[str, PinnedSource] = {}
        open_view = partial(self._view, caller)

        def source(key: str) -> PinnedSource:
            if key not in sources:
                sources[key] = open_source(caller, self._catalogue, open_view, key, pins.get(key))
                opened.callback(sources[key].dataset.close)
            return sources[key]

        def open_one(dataset: str, options: Mapping[str, Any]) -> Indexed:
            self._check_known(caller, dataset, "labels" if "scan" in options else "dataset")
            return source(source_key(dataset, options)).indexed

        def tokens() -> BatchTokens:
            ordered = [sources[key] for key in sorted(sources)]
            counts = tuple(source.count for source in ordered if source.growing)
            data = combine(source.fingerprint for source in ordered)
            return BatchTokens(self._keys, identity_of(ident), data, counts, issued)

        with ExitStack() as opened:
            if registered is not None:
                # Before building, which may fail in confusing ways on changed data.
                _open_all(source, pins, registered.fingerprint)
                _check(registered, tokens(), sources.values())
            profiles = RequestProfiles()
            pipeline = build_pipeline(spec, open_one, wrap=profiles.wrap)
            ordered = tuple(sources[key] for key in sorted(sources))
            found = OpenPipeline(ident, pipeline, ordered, tokens(), pipeline.initial, profiles)
            opened.pop_all()
        return found

    def _check_known(self, caller: Identity, dataset: str, field: str) -> None:
        """Check that a source, which begins a pipeline, names a dataset of the caller.

        Raises:
            NotFoundError: it does not; names the stage and ``field``.
        """
        try:
            self._catalogue.spec(caller, dataset)
        except NotFoundError as e:
            nearest = get_close_matches(dataset[:80], self._catalogue.ids(caller), 1)
            guess = f": did you mean {nearest[0]!r}?" if nearest else ""
            detail = f"source: {field}: {e}{guess}"
            raise NotFoundError(detail, hint=e.hint, stage=0, field=field) from e

    def _view(self, caller: Identity, dataset: str, value: Any) -> OpenView:  # noqa: ANN401 - JSON
        """Open the view a source names: by id, by ``{"id": id}``, or by its spec."""
        value = _named(value)
        if isinstance(value, str):
            return self._views.registered(caller, value, dataset)
        if not isinstance(value, Mapping):
            raise OptionError("view is neither an id nor a view spec")
        return self._views.open(caller, dataset, value)

    # -- the cache of built pipelines ----------------------------------------------------

    def _cache(self, caller: Identity, opened: OpenPipeline) -> None:
        """Share a pipeline with later requests; the caller still has to close it."""
        key = (caller.owner, opened.ident, tuple(source.count for source in opened.sources))
        opened.share()
        with self._lock:
            previous = self._built.pop(key, None)
            self._built[key] = opened
            evicted = [] if previous is None else [previous]
            while len(self._built) > _CACHED:
                evicted.append(self._built.popitem(last=False)[1])
        for pipeline in evicted:
            pipeline.close()

    def _drop(self, is_over: Callable[[_BuiltKey, OpenPipeline], bool]) -> None:
        """Close the cached pipelines of which ``is_over`` is true."""
        with self._lock:
            keys = [key for key, cached in self._built.items() if is_over(key, cached)]
            evicted = [self._built.pop(key) for key in keys]
        for pipeline in evicted:
            pipeline.close()

    def release(self, opened: OpenPipeline) -> None:
        """Close a pipeline after a request; drop it if it may cache much."""
        opened.close()
        if peak_bytes() > _LARGE:
            self._drop(lambda _, cached: cached.pipeline is opened.pipeline)

    def _forget(self, owner: str, ident: str) -> None:
        self._drop(lambda key, _: key[:2] == (owner, ident))

    def close(self) -> None:
        """Close all cached pipelines."""
        self._drop(lambda _key, _cached: True)
