"""Pipelines over datasets: registered under their digest, opened when they are asked for."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from app.errors import (
    BusyError,
    DataChangedError,
    InvalidOptionError,
    NotFoundError,
)
from app.services.open_datasets import describe_schema
from app.services.pipeline_profile import RequestProfiles
from app.services.pipeline_sources import PinnedSource, open_source, source_key
from app.services.pipeline_tokens import BatchTokens, combined, split, verify
from app.services.tiles import OpenView, Tiles
from app.storage.base import (
    HeadConflictError,
    HeadExistsError,
    HeadInvalidError,
    HeadMissingError,
    StateStore,
)
from app.tokens import KeyRing
from core.errors import CoreError, OptionError
from core.iterate.base import Indexed, State
from core.pipelines.pipeline import Pipeline, PipelineSpec, build_pipeline, parse_pipeline

KIND = "pipeline"
_CACHED = 32
"""Pipelines that stay built for the next request."""
_IDENTITY = 8
_TRIES = 5

Pins = Mapping[str, int]
"""Items that sources are pinned to, by their keys."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A pipeline as it is kept."""

    ident: str
    spec: PipelineSpec
    sources: tuple[Mapping[str, Any], ...]
    """As PinnedSource.describe has them, in the order of their keys."""
    fingerprint: bytes
    """Of the data when it was registered."""
    issued: datetime

    @property
    def identity(self) -> bytes:
        """What tokens have of it."""
        return bytes.fromhex(self.ident)[:_IDENTITY]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of its sources."""
        return tuple(source_key(each["dataset"], each["options"]) for each in self.sources)

    def pins(self, counts: Sequence[int] | None = None) -> dict[str, int]:
        """What its sources are pinned to.

        Args:
            counts: items of those that grow, out of a token; None for those of the
                registration.
        """
        growing = iter(counts or ())
        return {
            key: next(growing) if counts is not None and each["growing"] else each["count"]
            for key, each in zip(self.keys, self.sources, strict=True)
        }

    @property
    def growing(self) -> int:
        """How many of its sources grow."""
        return sum(each["growing"] for each in self.sources)

    def to_json(self) -> bytes:
        """As it is stored."""
        values = {
            "spec": self.spec.to_json(),
            "sources": list(self.sources),
            "fingerprint": self.fingerprint.hex(),
            "issued": int(self.issued.timestamp()),
        }
        return json.dumps(values, sort_keys=True).encode()

    @classmethod
    def of(cls, ident: str, stored: bytes) -> Registered:
        """What was stored."""
        values = json.loads(stored)
        return cls(
            ident,
            parse_pipeline(values["spec"]),
            tuple(values["sources"]),
            bytes.fromhex(values["fingerprint"]),
            datetime.fromtimestamp(values["issued"], UTC),
        )


@dataclass(slots=True, eq=False)
class OpenPipeline:
    """A pipeline whose data is open; whoever asked for it closes it.

    Built pipelines are shared: they never change when they are read.
    """

    ident: str
    pipeline: Pipeline
    sources: tuple[PinnedSource, ...]
    """In the order of their keys."""
    tokens: BatchTokens
    start: State
    """Where the request goes on."""
    profiles: RequestProfiles
    """Times its stages, for whoever wants to know."""

    def etag(self, *parts: object) -> str:
        """A strong entity tag of what follows from the place and these, without reading."""
        tokens = self.tokens
        about = [*self.start, *tokens.pins, int(tokens.issued.timestamp()), tokens.keys.signer]
        text = "-".join(str(part) for part in (*about, *parts))
        return f'"{tokens.identity.hex()}-{tokens.fingerprint.hex()}-{text}"'

    def check_rank(self, rank: int, world: int) -> None:
        """Accept a rank.

        Raises:
            InvalidOptionError, OptionError: there is no such rank, or no row for it.
        """
        if rank >= world:
            raise InvalidOptionError(
                f"rank is {rank}, but the ranks of a world of {world} are 0 to {world - 1}",
                option="rank",
            )
        self.pipeline.check_ranks(rank, world)

    def is_over(self, state: State) -> bool:
        """Whether it is known that no batch comes behind a state."""
        batches = self.pipeline.batches
        return batches is not None and self.pipeline.sequence(state) >= batches

    def describe(self) -> dict[str, Any]:
        """What is known of it, as JSON values."""
        pipeline = self.pipeline
        return {
            "id": self.ident,
            "spec": pipeline.spec.to_json(),
            "sources": [source.describe() for source in self.sources],
            "fingerprint": self.tokens.fingerprint.hex(),
            "schema": describe_schema(pipeline.schema),
            "batch_size": pipeline.batch_size,
            "batches": pipeline.batches,
            "batches_per_epoch": pipeline.batches_per_epoch,
            "state_numbers": len(pipeline.initial) + len(self.tokens.pins),
            "memory": pipeline.memory,
            "resume_work": pipeline.resume_work,
            "token": self.tokens.token(pipeline.initial),
        }

    def share(self) -> None:
        """Keep the data open for one more who will close it."""
        shared = []
        try:
            for source in self.sources:
                source.dataset.share()
                shared.append(source)
        except ValueError:
            _close(shared)
            raise

    def close(self) -> None:
        """Let go of the data."""
        _close(self.sources)


def _close(sources: Sequence[PinnedSource]) -> None:
    for source in sources:
        source.dataset.close()


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
        tiles: the datasets, and views of them.
        store: keeps what was registered.
        keys: sign tokens.
    """

    def __init__(self, tiles: Tiles, store: StateStore, keys: KeyRing) -> None:
        self._tiles = tiles
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
        catalogue = self._tiles.catalogue

        def source(key: str) -> PinnedSource:
            if key not in sources:
                sources[key] = open_source(catalogue, self._view, key, pins.get(key))
            return sources[key]

        def open_one(dataset: str, options: Mapping[str, Any]) -> Indexed:
            return source(source_key(dataset, options)).indexed

        def tokens() -> BatchTokens:
            inorder = [sources[key] for key in sorted(sources)]
            counts = tuple(each.count for each in inorder if each.growing)
            data = combined(each.fingerprint for each in inorder)
            return BatchTokens(self._keys, bytes.fromhex(ident)[:_IDENTITY], data, counts, issued)

        try:
            if fingerprint is not None:
                # Before anything is built of it, which may fail for its being other data.
                _open_all(source, pins, fingerprint, tokens)
            profiles = RequestProfiles()
            pipeline = build_pipeline(spec, open_one, wrap=profiles.wrap)
            inorder = tuple(sources[key] for key in sorted(sources))
            return OpenPipeline(ident, pipeline, inorder, tokens(), pipeline.initial, profiles)
        except BaseException:
            _close(list(sources.values()))
            raise

    def _view(self, dataset: str, value: Any) -> OpenView:  # noqa: ANN401 - JSON
        """A view as a source names it: its id, ``{"id": its id}``, or what it says."""
        if isinstance(value, Mapping) and set(value) == {"id"}:
            value = value["id"]
        if isinstance(value, str):
            return self._tiles.registered(value, dataset)
        if not isinstance(value, Mapping):
            raise OptionError("view is neither the id of a view nor a view")
        return self._tiles.open(dataset, value)

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
