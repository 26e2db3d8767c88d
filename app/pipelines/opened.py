"""A registered pipeline as it is stored, and as it is when its data is open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.datasets.opened import describe_schema
from app.errors import InvalidOptionError
from core.iterate.base import State
from core.pipelines.pipeline import Pipeline, PipelineSpec, parse_pipeline

from .profile import RequestProfiles
from .sources import PinnedSource, source_key
from .tokens import BatchTokens

_IDENTITY = 8


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
        return identity_of(self.ident)

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
            close_all(shared)
            raise

    def close(self) -> None:
        """Let go of the data."""
        close_all(self.sources)


def close_all(sources: Iterable[PinnedSource]) -> None:
    """Close the data of these sources."""
    for source in sources:
        source.dataset.close()


def identity_of(ident: str) -> bytes:
    """What tokens hold of a pipeline's id, 8 bytes."""
    return bytes.fromhex(ident)[:_IDENTITY]
