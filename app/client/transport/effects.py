"""What a post or a stream wants done: its effects, and what is sent back for each."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..losses.rows import Position
from ..pipelines.batch import Batch, EpochEnd
from ..tiles.plan import Tile
from .frames import Rows
from .requests import Request


@dataclass(frozen=True, slots=True)
class Skip:
    """Bytes of the source before this offset are not wanted.

    Attributes:
        offset: of the stream.
        passed: digest they must have, if known.
    """

    offset: int
    passed: str | None


@dataclass(frozen=True, slots=True)
class Fill:
    """Make the source's bytes up to ``stop`` available; answered with Filled."""

    stop: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request with the source's bytes; answered with the Head of the answer.

    Attributes:
        request: what to send.
        start: offset of the first byte of the body.
        stop: offset behind the last one; None: up to the end of the source.
        duplex: the answer is read while the body is sent.
    """

    request: Request
    start: int
    stop: int | None
    duplex: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request with its own small body; answered with the Head of the answer."""

    request: Request


@dataclass(frozen=True, slots=True)
class Receive:
    """Fill a view with the answer's next bytes; answered with how many, 0 at the end."""

    view: memoryview


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer has been read: the connection may be used again."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The answer will not be read further: close the connection, and stop sending."""


@dataclass(frozen=True, slots=True)
class Call:
    """Send a small request; answered with its Reply, whatever the status."""

    request: Request


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Release:
    """The source's bytes before this offset will not be needed again."""

    offset: int


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one report; handed out once."""

    report: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a table, to be kept apart until Settled; valid until the next effect."""

    data: memoryview | bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """What came since the last Settled is whole.

    Attributes:
        position: what goes on behind it; None at the end of the stream.
    """

    position: Position | None


@dataclass(frozen=True, slots=True)
class Undone:
    """What came since the last Settled is to be forgotten: it comes again."""


Item: TypeAlias = Table | Piece | Settled | Undone | Tile | Batch | EpochEnd
"""What is for the consumer; needs no answer."""
ITEMS = (Table, Piece, Settled, Undone, Tile, Batch, EpochEnd)
"""The same, for ``isinstance``."""
Effect: TypeAlias = (
    Skip | Fill | Send | Ask | Receive | Finish | Drop | Call | Sleep | Release | Item
)
Steps: TypeAlias = Generator[Effect, Any, None]
