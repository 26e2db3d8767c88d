"""A registered pipeline: its stored record, and the pipeline open over its data.

The stages of an open pipeline are timed for each request separately.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.datasets.opened import describe_schema
from app.errors import InvalidOptionError
from core.errors import OptionError
from core.iterate.base import Stage, State
from core.iterate.wrapped import Profile, timed
from core.pipelines.pipeline import Pipeline, PipelineSpec, parse_pipeline

from .sources import PinnedSource, source_key
from .tokens import BatchTokens

_IDENTITY = 8


class RequestProfiles(Profile):
    """A profile that forwards times to the profile of the request the thread works for.

    A built pipeline is shared by requests that run at once, so its stages cannot hold
    the profile of any of them; they look it up in a thread-local variable instead.
    """

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self._requested = threading.local()

    @contextmanager
    def into(self, profile: Profile) -> Iterator[None]:
        """Record the times of this thread in ``profile`` until the block ends."""
        self._requested.profile = profile
        try:
            yield
        finally:
            self._requested.profile = None

    def current(self) -> Profile | None:
        """Return the profile of the request; None if none is set."""
        profile: Profile | None = getattr(self._requested, "profile", None)
        return profile

    def wrap(self, stage: Stage, name: str) -> Stage:
        """Wrap a stage so that it is timed."""
        return timed(stage, self, name)


@dataclass(frozen=True, slots=True)
class Registered:
    """The stored record of a pipeline."""

    ident: str
    spec: PipelineSpec
    sources: tuple[Mapping[str, Any], ...]
    """Values of ``PinnedSource.describe``, ordered by source key."""
    fingerprint: bytes
    """Fingerprint of the data at registration."""
    issued: datetime

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the sources."""
        return tuple(source_key(source["dataset"], source["options"]) for source in self.sources)

    def pins(self, counts: Sequence[int] | None = None) -> dict[str, int]:
        """Return the number of items each source is pinned to, by source key.

        Args:
            counts: items of the growing sources, from a token; None for the counts of the
                registration.
        """
        growing = iter(counts or ())
        return {
            key: next(growing) if counts is not None and source["growing"] else source["count"]
            for key, source in zip(self.keys, self.sources, strict=True)
        }

    @property
    def growing(self) -> int:
        """Number of growing sources."""
        return sum(source["growing"] for source in self.sources)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {
            "spec": self.spec.to_json(),
            "sources": list(self.sources),
            "fingerprint": self.fingerprint.hex(),
            "issued": int(self.issued.timestamp()),
        }

    @classmethod
    def of(cls, ident: str, values: Mapping[str, Any]) -> Registered:
        """Parse the JSON values of a record."""
        return cls(
            ident,
            parse_pipeline(values["spec"]),
            tuple(values["sources"]),
            bytes.fromhex(values["fingerprint"]),
            datetime.fromtimestamp(values["issued"], UTC),
        )


@dataclass(slots=True, eq=False)
class OpenPipeline:
    """A pipeline whose data is open; the caller closes it.

    Requests share built pipelines, since reading never changes one.
    """

    ident: str
    pipeline: Pipeline
    sources: tuple[PinnedSource, ...]
    """Ordered by source key."""
    tokens: BatchTokens
    start: State
    """State at which the request begins."""
    profiles: RequestProfiles
    """Route the times of stages to the request that runs them."""

    def etag(self, *parts: object) -> str:
        """Return the strong entity tag of an answer; reads no data.

        Args:
            parts: what the answer depends on besides the starting state.
        """
        tokens = self.tokens
        position = [*self.start, *tokens.pins, int(tokens.issued.timestamp()), tokens.keys.signer]
        text = "-".join(str(part) for part in (*position, *parts))
        return f'"{tokens.identity.hex()}-{tokens.fingerprint.hex()}-{text}"'

    def check_rank(self, rank: int, world: int) -> None:
        """Check that a rank exists and receives rows.

        Raises:
            InvalidOptionError: ``rank`` is not below ``world``, or a batch has fewer rows.
        """
        if rank >= world:
            fault, hint = "needs world: how many readers there are", "Add world="
            if world > 1:
                fault = f"does not exist: a world of {world} has ranks 0 to {world - 1}"
                hint = "Count readers from 0, or give the number of all as world="
            raise InvalidOptionError(f"rank {rank} {fault}", hint=hint, option="rank")
        try:
            self.pipeline.check_ranks(rank, world)
        except OptionError as e:
            raise InvalidOptionError(e.message, hint=e.hint, option="world") from e

    def is_over(self, state: State) -> bool:
        """Whether it is known that no batch follows a state."""
        batches = self.pipeline.batches
        return batches is not None and self.pipeline.sequence(state) >= batches

    def notes(self, state: State) -> list[str]:
        """Tell people why no batch follows a state, or which items were left out."""
        if state == self.pipeline.initial:
            return [f"there is no batch: {self.pipeline.emptiness()}"]
        return self.pipeline.notes

    def describe(self) -> dict[str, Any]:
        """Describe the pipeline, as JSON values."""
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
            "notes": pipeline.notes,
            "token": self.tokens.token(pipeline.initial),
        }

    def share(self) -> None:
        """Keep the data open for another user, who must call ``close``.

        Raises:
            ValueError: the data is closed already.
        """
        with ExitStack() as shared:
            for source in self.sources:
                source.dataset.share()
                shared.callback(source.dataset.close)
            shared.pop_all()

    def close(self) -> None:
        """Close the data."""
        for source in self.sources:
            source.dataset.close()


def identity_of(ident: str) -> bytes:
    """Return the identity that tokens carry: the first 8 bytes of the pipeline's digest."""
    return bytes.fromhex(ident)[:_IDENTITY]
