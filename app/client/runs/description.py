"""Runs and streams as the service describes them, and what calls about them are given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from xxhash import xxh3_128

from ..errors import ProblemError, ProtocolError
from ..losses.requests import StreamOptions
from ..losses.sources import Source, SourceLike

_UNPROCESSABLE = 422
_GROUP = 4 << 20
"""Bytes of a group of a stream's digest."""
FINISHED = ("done", "failed")
"""States that a run does not leave by itself."""

Perspective: TypeAlias = Literal["gul", "il", "ri", "rl"]
PARALLEL = 4
"""Uploads at a time."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was when the service was asked.

    Attributes:
        id: of the run.
        state: created, uploading, sealed, computing, done or failed.
        problem: why it failed: members of a problem document; None if it did not.
        document: all that the service said.
    """

    id: str
    state: str
    problem: Mapping[str, Any] | None
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Run:
        """The run that a JSON object describes.

        Raises:
            ProtocolError: it describes none.
        """
        ident, state, problem = (document.get(name) for name in ("id", "state", "problem"))
        if not isinstance(ident, str) or not isinstance(state, str):
            raise ProtocolError("the answer describes no run")
        return cls(ident, state, problem if isinstance(problem, dict) else None, document)

    def check(self) -> None:
        """Raise what the run failed of, if it has failed.

        Raises:
            ProblemError: it has.
        """
        if self.state == "failed":
            problem = self.problem or {"code": "run-failed", "detail": "the run has failed"}
            status = problem.get("status")
            raise ProblemError(status if isinstance(status, int) else _UNPROCESSABLE, problem)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a run: one partition, as it was when the service was asked.

    Attributes:
        id: of the stream.
        partition: from 1.
        offset: bytes that are stored.
        length: bytes of the whole stream, None if not known yet.
        state: created, uploading, complete or failed.
        events: complete events that are stored.
        fault: why it failed: members of a problem document; None if it did not.
        digest: of its bytes, as the contract defines it; None before it is complete.
    """

    id: str
    partition: int
    offset: int
    length: int | None
    state: str
    events: int
    fault: Mapping[str, Any] | None
    digest: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole stream is stored."""
        return self.state == "complete"

    def holds(self, source: Source) -> bool:
        """Whether it is complete and has the bytes of a source whose size is known.

        Raises:
            SourceError: the source cannot be read.
        """
        if not self.complete or self.offset != source.size:
            return False
        chain = bytes(16)
        # The digest that the service carries on between requests: a group's begins with the last.
        for start in range(0, self.offset + 1, _GROUP):
            hashed = xxh3_128(chain)
            for view in source.views(start, min(start + _GROUP, self.offset)):
                hashed.update(view)
            chain = hashed.digest()
        return chain.hex() == self.digest

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Stream:
        """The stream that a JSON object describes.

        Raises:
            ProtocolError: it describes none.
        """
        length, fault = document.get("length"), document.get("fault")
        try:
            return cls(
                str(document["id"]),
                int(document["partition"]),
                int(document["offset"]),
                None if length is None else int(length),
                str(document["state"]),
                int(document["events"]),
                fault if isinstance(fault, dict) else None,
                document.get("digest"),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise ProtocolError(f"the answer describes no stream: {e}") from e


RunLike: TypeAlias = "str | Run"
"""A run, or its id."""


class RunOptions(StreamOptions, total=False):
    """Options of a run; those left out have the server's defaults."""

    partitions: int
    """Number of streams; sealing requires all of them."""
    quantiles: str | float | Iterable[float]
    return_periods: str | int | Iterable[int]
    sets: str | int | Iterable[int]
    summary_ids: str | int | Iterable[int]


class ReportOptions(TypedDict, total=False):
    """What a report is made of, and as what it is written."""

    set: int
    """The summary set, of a run with several."""
    summary_ids: str | int | Iterable[int]
    """Only rows of these summaries: numbers, or text such as ``1,5,10-20``."""
    event_ids: str | int | Iterable[int]
    """Only rows of these events, in the same way."""
    variant: str
    """What ``add_reports`` returned, for a further report."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition to upload.

    Attributes:
        partition: which one it is, from 1.
        source: its stream, as for ``client.losses.post``.
        exec: a command to run instead, whose output is the stream; once its turn has come.
        state: file that lets another process go on. Of parts that are uploaded together all files
            stay until all parts are stored, so that the same call can be made again.
        replace: whether to delete the stream that the partition has, unless ``state`` goes on
            with it.
    """

    partition: int
    source: SourceLike | None = None
    exec: Sequence[str] | None = None
    state: str | os.PathLike[str] | None = None
    replace: bool = False
