"""What the store keeps of runs and their streams: two kinds of records, and blobs of bytes.

    record  run     <owner's namespace>.<run>               spec, state, streams it was sealed with
    record  stream  <owner's namespace>.<run>.<partition>   id, durable offset, extents, cursor
    blob    stream  <run>.<stream>.<fence>                  bytes that one request appended

Every append has a *fence* of its own, a number that it takes by raising that of the record by a
random step (``next_fence``), and writes to a blob of its own. Its commits swap the record, so they
fail once another request has raised the fence, and what it wrote after its last commit is never
read. The stream is the list of its *extents*, the parts of these blobs that were committed:

    fence 1   |########## committed ##########|.. lost the fence ..|
    fence 2                                   |##### committed ####|
    extents   (1, 0, a)                       (2, a, b)

A partition has one record, whose key is its number: who creates it first has the partition, and
listing gives the order of partitions. The id of a stream is that number and an end drawn at
random: a stream that is deleted and uploaded again has another id.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeAlias

from app.losses.tokens import decode_position, encode_position
from app.state.base import damaged
from app.state.ownership import OwnedRecord
from app.times import LAST_SECOND, MAX_DAYS
from core.losses.events import Position

RUN = "run"
STREAM = "stream"
SEGMENT = "segment"
REPORT = "report"
"""Kind of the files that are computed from a run, as is SEGMENT; see ``published``."""
OWN = "own"
"""Variant of the options and inputs that a run was sealed with."""
MAX_PARTITION = 999_999
RunState: TypeAlias = Literal["created", "uploading", "sealed", "computing", "done", "failed"]
OPEN_STATES: tuple[RunState, ...] = ("created", "uploading", "failed")
"""States in which a run takes streams; one that failed can be repaired and sealed again."""
_ALL: tuple[RunState, ...] = (*OPEN_STATES, "sealed", "computing", "done", "failed")
_STATES: dict[str, RunState] = {state: state for state in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One version of something in the store."""

    owned: OwnedRecord | None = field(default=None, compare=False, repr=False)
    """The version in the store that this was read from."""

    @property
    def generation(self) -> int:
        """Number of the version, from 1."""
        return 0 if self.owned is None else self.owned.record.generation

    @property
    def version(self) -> OwnedRecord:
        """What to compare with before it is changed, which was read from the store."""
        assert self.owned is not None  # noqa: S101 - as said
        return self.owned


@dataclass(frozen=True, slots=True)
class RunRecord(Stored):
    """One version of a run."""

    id: str
    owner: str
    spec: Mapping[str, Any]
    """As it was requested, in canonical form; see ``RunSpec``."""
    inputs: Mapping[str, str]
    """Digests of the inputs, by name: those of the spec, and those bound since."""
    state: RunState
    created: float
    """Seconds since 1970."""
    expires: float | None
    """When it is removed if nothing changes it, in seconds since 1970; None for never."""
    days: float | None
    """Lifetime after the last change, in days; None for no end."""
    streams: Mapping[int, str]
    """Ids of the streams that it was sealed with last, by partition."""
    problem: Mapping[str, Any] | None = None
    """Why it failed: members of a problem document."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """What sealing computed; its keys belong to the module that seals."""
    term: str = ""
    """Drawn when it is created, and whenever it is sealed; see ``has``."""
    closing: bool = False
    """Whether somebody is looking at its streams to seal it."""

    @property
    def is_open(self) -> bool:
        """Whether it takes streams."""
        return self.state in OPEN_STATES

    def has(self, stream: StreamRecord) -> bool:
        """Whether a stream is one of the run, or was until it was deleted.

        The run was sealed with it, or it was created since. A stream that is none of a run never
        becomes one, even of a run that is created again by its key: terms do not come back.
        """
        return self.streams.get(stream.partition) == stream.id or stream.term == self.term

    @property
    def files(self) -> str:
        """Beginning of the names of its reports: those of an earlier term are of other streams."""
        return f"{self.id}.{self.term}" if self.term else self.id

    def encode(self) -> dict[str, Any]:
        """Return the value of its record, as JSON values."""
        streams = {str(partition): ident for partition, ident in self.streams.items()}
        return {name: getattr(self, name) for name in _OF_RUN} | {"streams": streams}

    @classmethod
    def decode(cls, owned: OwnedRecord) -> Self:
        """Return the run in a record.

        Raises:
            StoreDamagedError: the record does not hold one.
        """
        value = owned.value
        try:
            kept = _kept(value, _OF_RUN) | {
                "state": _STATES[value["state"]],
                "created": _moment(value["created"]),
                "expires": None if value["expires"] is None else _moment(value["expires"]),
                # Earlier versions took settings of any length.
                "days": None if value["days"] is None else min(float(value["days"]), MAX_DAYS),
                "streams": {int(number): str(each) for number, each in value["streams"].items()},
            }
            # Without its value, which is all of the above once more.
            return cls(owned.ident, owned.owner, **kept, owned=replace(owned, value=None))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise damaged(RUN, owned.ident) from e


@dataclass(frozen=True, slots=True)
class Extent:
    """Committed bytes of one blob: its first ``length`` bytes."""

    fence: int
    start: int
    """Offset in the stream."""
    length: int

    @property
    def stop(self) -> int:
        """Offset in the stream after them."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class ContentDigest:
    """A digest of a stream's first bytes that continues from a few bytes of state.

    ``chain`` is that of whole groups of :data:`~.content.GROUP` bytes, 32 hexadecimal digits,
    and ``total`` that of all bytes up to the durable offset.
    """

    chain: str
    total: str


@dataclass(frozen=True, slots=True)
class StreamRecord(Stored):
    """One version of a stream: the upload of one partition."""

    run: str
    id: str
    owner: str
    partition: int
    """1 to ``MAX_PARTITION``."""
    created: float
    """Seconds since 1970."""
    length: int | None = None
    """Declared length in bytes; None if it is not known yet."""
    complete: bool = False
    """Whether the client said that these are all bytes, and the stream is faultless."""
    offset: int = 0
    """Durable bytes."""
    fence: int = 0
    """Number of the last append."""
    appending: bool = False
    """Whether that append may still be running, in whichever process."""
    extents: tuple[Extent, ...] = ()
    cursor: Position = field(default_factory=Position)
    """Where the first event begins that is not known to be complete, at most ``offset``."""
    digest: ContentDigest | None = None
    """Digest of the durable bytes; None before the first."""
    events: int = 0
    """Complete events; those of a complete stream are all."""
    metadata: str = ""
    """Upload-Metadata as the client sent it."""
    expected_digest: str | None = None
    """Repr-Digest that the whole has to have, as the client sent it."""
    fault: Mapping[str, Any] | None = None
    """Why it failed: members of a problem document."""
    touched: float = 0.0
    """When it last changed, in seconds since 1970."""
    term: str = ""
    """Lifetime of the run when it was created."""
    deleted: bool = False
    """Whether its deletion has begun: it is gone, unless the run is sealed with it."""

    @property
    def state(self) -> Literal["created", "uploading", "complete", "failed"]:
        """What became of it so far."""
        if self.fault is not None:
            return "failed"
        if self.complete:
            return "complete"
        return "uploading" if self.offset else "created"

    @property
    def is_untouched(self) -> bool:
        """Whether nothing came of it: its creator never learned of it, perhaps."""
        return self.state == "created" and not self.appending

    def is_declared_as(self, other: StreamRecord) -> bool:
        """Whether the creation of another one declares what that of this one did."""
        lengths = {self.length, other.length}
        if None not in lengths and len(lengths) > 1:
            return False
        return (self.metadata, self.expected_digest) == (other.metadata, other.expected_digest)

    @property
    def fences(self) -> set[int]:
        """Fences of the appends that it has bytes of."""
        return {extent.fence for extent in self.extents}

    def length_of(self, fence: int) -> int:
        """Return how many bytes it has of an append."""
        return sum(extent.length for extent in self.extents if extent.fence == fence)

    @property
    def key(self) -> str:
        """Id of its record in the owner's namespace."""
        return stream_key(self.run, self.id)

    def blob(self, fence: int) -> str:
        """Return the id of the blob that an append writes to."""
        return f"{self.run}.{self.id}.{fence}"

    def encode(self) -> dict[str, Any]:
        """Return the value of its record, as JSON values."""
        header, summary_set, place = encode_position(self.cursor)
        return {name: getattr(self, name) for name in _OF_STREAM} | {
            "extents": [[e.fence, e.start, e.length] for e in self.extents],
            "cursor": [*header, summary_set, *place],
            "digest": None if self.digest is None else [self.digest.chain, self.digest.total],
        }

    @classmethod
    def decode(cls, owned: OwnedRecord) -> Self:
        """Return the stream in a record.

        Raises:
            StoreDamagedError: the record does not hold one.
        """
        value = owned.value
        run, _, _ = owned.ident.partition(".")
        try:
            kept = _kept(value, _OF_STREAM) | {
                **{name: int(value[name]) for name in ("partition", "offset", "fence", "events")},
                "length": None if value["length"] is None else int(value["length"]),
                "created": _moment(value["created"]),
                "extents": tuple(Extent(*map(int, extent)) for extent in value["extents"]),
                "cursor": decode_position(value["cursor"]),
                "digest": None if value["digest"] is None else ContentDigest(*value["digest"]),
                "touched": _moment(value["touched"]),
            }
            # Without its value, which is all of the above once more.
            record = cls(run=run, owner=owned.owner, **kept, owned=replace(owned, value=None))
            if not _is_whole(record):
                raise damaged(STREAM, owned.ident)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise damaged(STREAM, owned.ident) from e
        return record


_BESIDE = {"run", "owner", "owned"}
"""Members of a run or stream that its record does not hold."""
_OF_RUN = [f.name for f in fields(RunRecord) if f.name not in {"id", *_BESIDE}]
_OF_STREAM = [f.name for f in fields(StreamRecord) if f.name not in _BESIDE]
_ADDED = {"term", "closing", "deleted"}
"""Members that earlier versions did not have."""


def _kept(value: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the members of a run or stream that its record holds.

    Raises:
        KeyError: one is missing.
    """
    return {name: value[name] for name in names if name not in _ADDED or name in value}


def _moment(seconds: float) -> float:
    """Return a stored time that calendars have, so that it can be shown."""
    return min(max(float(seconds), 0.0), LAST_SECOND)


def _is_whole(record: StreamRecord) -> bool:
    """Whether the extents of a stream join, and end at its offset."""
    at = 0
    for extent in record.extents:
        if extent.start != at or extent.length <= 0:
            return False
        at = extent.stop
    return at == record.offset >= record.cursor.offset


def labelled(run: RunRecord, label: str | None) -> RunRecord:
    """Return a run with another label."""
    spec = {name: value for name, value in run.spec.items() if name != "label"}
    return replace(run, spec=spec if label is None else {**spec, "label": label})


def next_fence(stream: StreamRecord) -> int:
    """Draw the fence of the next append.

    Where older records are restored, it is not that of an append which they do not know of: the
    fences of a stream say which bytes it has.
    """
    return stream.fence + 1 + int(secrets.token_hex(3), 16)


def stream_key(run: str, stream: str) -> str:
    """Return the id of a stream's record in the namespace of its owner: that of its partition."""
    return f"{run}.{stream.partition('-')[0]}"


def stream_id(partition: int, suffix: str) -> str:
    """Return the id of a stream of a partition."""
    return f"{partition:06d}-{suffix}"
