"""Pipelines over datasets: registered under their digest, opened when they are asked for."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.datasets.catalogue import Catalogue
from app.errors import BusyError, DataChangedError, NotFoundError
from app.state.base import (
    HeadConflictError,
    HeadExistsError,
    HeadInvalidError,
    HeadMissingError,
    StateStore,
)
from app.tiles.views import OpenView, Views
from app.tokens import KeyRing
from core.errors import CoreError, OptionError
from core.iterate.base import Indexed, State
from core.pipelines.pipeline import PipelineSpec, build_pipeline, parse_pipeline

from .opened import OpenPipeline, Registered, close_all, identity_of
from .profile import RequestProfiles
from .sources import PinnedSource, open_source, source_key
from .tokens import BatchTokens, combined, split, verify

KIND = "pipeline"
_CACHED = 32
"""Pipelines that stay built for the next request."""
_TRIES = 5

Pins = Mapping[str, int]
"""Items that sources are pinned to, by their keys."""


def _is_fresh(known: OpenPipeline) -> bool:
    """Whether the data is what it was when the pipeline was built."""
    try:
        return all(source.is_fresh() for source in known.sources)
    except DataChangedError:
        return False


def _open_all(
    source: Callable[[str], PinnedSource],
    pins: Pins,
    fingerprint: bytes,
    tokens: Callable[[], BatchTokens],
) -> None:
    """Open the sources, which must have this fingerprint.

    Raises:
        DataChangedError: they have another, or not what is wanted of them any more.
    """
    try:
        for key in pins:
            source(key)
    except CoreError as e:
        raise DataChangedError(
            f"the data is not what the pipeline was registered for: {e}",
            hint="Register the pipeline anew, and begin without after",
            was=fingerprint.hex(),
        ) from e
    tokens().check(fingerprint)


class Pipelines:
    """Pipelines over the datasets of a catalogue.

    Args:
        catalogue: the datasets.
        views: of the datasets.
        store: keeps what was registered.
        keys: sign tokens.
    """

    def __init__(
        self, catalogue: Catalogue, views: Views, store: StateStore, keys: KeyRing
    ) -> None:
        self._catalogue = catalogue
        self._views = views
        self._store = store
        self._keys = keys
        self._built: OrderedDict[tuple[str, tuple[int, ...]], OpenPipeline] = OrderedDict()
        self._parsed: OrderedDict[str, tuple[bytes, Registered]] = OrderedDict()
        self._lock = threading.Lock()

    def register(self, values: Mapping[str, Any]) -> tuple[OpenPipeline, bool]:
        """Keep a pipeline under its digest; (it, to be closed, and whether it is new).

        One that is kept already stays pinned as it is while its data allows; if that
        changed, it is pinned anew, and tokens from before are refused.

        Raises:
            PipelineError: what is wrong with it, with its stage and field.
            CoreError, ServiceError: what is wrong with its datasets.
        """
        spec = parse_pipeline(values)
        ident = spec.digest.hex()
        for _ in range(_TRIES):
            try:
                return self._open(self._registered(ident), None), False
            except NotFoundError:
                pass
            except DataChangedError:
                self._forget(ident)
            opened, made = self._pinned(spec, ident)
            try:
                self._store_head(made)
            except (HeadExistsError, HeadConflictError, HeadMissingError):
                opened.close()
                continue
            except BaseException:
                opened.close()
                raise
            self._keep(opened)
            return opened, True
        raise BusyError("the pipeline is being registered by others", retry_after=1)

    def _store_head(self, made: Registered) -> None:
        """Keep a registration in the place of the one before."""
        try:
            seen = self._store.get(KIND, made.ident)
        except HeadMissingError:
            self._store.create(KIND, made.ident, made.to_json())
            return
        self._store.compare_and_swap(seen, made.to_json())

    def _pinned(self, spec: PipelineSpec, ident: str) -> tuple[OpenPipeline, Registered]:
        """A pipeline over the data as it is."""
        issued = datetime.fromtimestamp(int(time.time()) // 60 * 60, UTC)
        opened = self._build(spec, ident, {}, issued)
        sources = tuple(source.describe() for source in opened.sources)
        return opened, Registered(ident, spec, sources, opened.tokens.fingerprint, issued)

    def ids(self, after: str = "", limit: int = 1000) -> list[str]:
        """Ids of all pipelines, in order."""
        page = self._store.list(KIND, after=after, limit=limit)
        return [head.id for head in page.heads]

    def open(self, ident: str, after: str | None = None) -> OpenPipeline:
        """A pipeline at a place; whoever asked closes it.

        Args:
            ident: of the pipeline.
            after: token of the place; None for the beginning.

        Raises:
            NotFoundError: there is no such pipeline.
            TokenMalformedError, TokenForgedError, TokenRetiredError, TokenForeignError: the
                token is not one of this pipeline.
            DataChangedError: the data is not what the token, or the pipeline, is of.
            StateError: the token's place cannot be.
            CoreError, ServiceError: the data cannot be read.
        """
        return self._open(self._registered(ident), after)

    def _registered(self, ident: str) -> Registered:
        try:
            value = self._store.get(KIND, ident).value
        except (HeadMissingError, HeadInvalidError) as e:
            raise NotFoundError(
                f"there is no pipeline {ident[:80]!r}", hint="POST it to /v1/pipelines"
            ) from e
        with self._lock:
            known = self._parsed.get(ident)
            if known is not None and known[0] == value:
                self._parsed.move_to_end(ident)
                return known[1]
        registered = Registered.of(ident, value)
        if registered.spec.digest.hex() != ident:
            # Of an earlier version, which made other batches of the same spec.
            raise NotFoundError(
                f"pipeline {ident} is of another version of the service",
                hint="POST it to /v1/pipelines, and begin anew",
            )
        with self._lock:
            self._parsed[ident] = value, registered
            while len(self._parsed) > _CACHED:
                self._parsed.popitem(last=False)
        return registered

    def _open(self, registered: Registered, after: str | None) -> OpenPipeline:
        fingerprint, issued = registered.fingerprint, registered.issued
        state: State | None = None
        pins = registered.pins()
        if after is not None:
            verified = verify(self._keys, after, registered.identity)
            fingerprint, issued = verified.token.fingerprint, verified.issued
            state, counts = split(verified.token.state, registered.growing)
            pins = registered.pins(counts)
        shared = self._shared(registered, pins, fingerprint)
        tokens = replace(shared.tokens, issued=issued)
        start = shared.pipeline.initial if state is None else state
        opened = replace(shared, tokens=tokens, start=start)
        try:
            opened.pipeline.check(start)
        except BaseException:
            opened.close()
            raise
        return opened

    def _shared(self, registered: Registered, pins: Pins, fingerprint: bytes) -> OpenPipeline:
        """The built pipeline, if its data is still what it was; else built anew."""
        key = (registered.ident, tuple(pins.values()))
        with self._lock:
            known = self._built.get(key)
            if known is not None:
                self._built.move_to_end(key)
                known.share()
        if known is not None:
            if _is_fresh(known):
                try:
                    known.tokens.check(fingerprint)
                except BaseException:
                    known.close()
                    raise
                return known
            known.close()
        opened = self._build(
            registered.spec, registered.ident, pins, registered.issued, fingerprint
        )
        self._keep(opened)
        return opened

    def _build(
        self,
        spec: PipelineSpec,
        ident: str,
        pins: Pins,
        issued: datetime,
        fingerprint: bytes | None = None,
    ) -> OpenPipeline:
        """A pipeline over its data.

        Args:
            spec: of the pipeline.
            ident: of the pipeline.
            pins: what its sources are pinned to; empty for what there is.
            issued: time of its tokens.
            fingerprint: what the data must have; None for any.
        """
        sources: dict[str, PinnedSource] = {}

        def source(key: str) -> PinnedSource:
            if key not in sources:
                sources[key] = open_source(self._catalogue, self._view, key, pins.get(key))
            return sources[key]

        def open_one(dataset: str, options: Mapping[str, Any]) -> Indexed:
            return source(source_key(dataset, options)).indexed

        def tokens() -> BatchTokens:
            inorder = [sources[key] for key in sorted(sources)]
            counts = tuple(each.count for each in inorder if each.growing)
            data = combined(each.fingerprint for each in inorder)
            return BatchTokens(self._keys, identity_of(ident), data, counts, issued)

        try:
            if fingerprint is not None:
                # Before anything is built of it, which may fail for its being other data.
                _open_all(source, pins, fingerprint, tokens)
            profiles = RequestProfiles()
            pipeline = build_pipeline(spec, open_one, wrap=profiles.wrap)
            inorder = tuple(sources[key] for key in sorted(sources))
            return OpenPipeline(ident, pipeline, inorder, tokens(), pipeline.initial, profiles)
        except BaseException:
            close_all(list(sources.values()))
            raise

    def _view(self, dataset: str, value: Any) -> OpenView:  # noqa: ANN401 - JSON
        """A view as a source names it: its id, ``{"id": its id}``, or what it says."""
        if isinstance(value, Mapping) and set(value) == {"id"}:
            value = value["id"]
        if isinstance(value, str):
            return self._views.registered(value, dataset)
        if not isinstance(value, Mapping):
            raise OptionError("view is neither the id of a view nor a view")
        return self._views.open(dataset, value)

    # -- pipelines that stay built ------------------------------------------------------

    def _keep(self, opened: OpenPipeline) -> None:
        """Keep it for the next request; the caller still has to close it."""
        key = (opened.ident, tuple(source.count for source in opened.sources))
        opened.share()
        with self._lock:
            before = self._built.pop(key, None)
            self._built[key] = opened
            gone = [] if before is None else [before]
            while len(self._built) > _CACHED:
                gone.append(self._built.popitem(last=False)[1])
        for each in gone:
            each.close()

    def _forget(self, ident: str) -> None:
        with self._lock:
            keys = [key for key in self._built if key[0] == ident]
            gone = [self._built.pop(key) for key in keys]
        for each in gone:
            each.close()

    def close(self) -> None:
        """Let go of everything that is kept."""
        with self._lock:
            gone, self._built = list(self._built.values()), OrderedDict()
        for each in gone:
            each.close()
