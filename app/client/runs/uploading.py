"""How far an upload is, and what its requests and answers hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..transport.requests import Body, Head


@dataclass(frozen=True, slots=True)
class Uploading:
    """How far an upload is.

    Attributes:
        partition: of the run.
        bytes: that the service has committed.
        total: bytes of the stream, None if unknown.
        sent: bytes sent by this call, those sent again included.
    """

    partition: int
    bytes: int
    total: int | None
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stream that is stored whole.

    Attributes:
        stream: its id.
        partition: of the run.
        bytes: of the stream.
        sent: bytes sent by this call: fewer if another call began, more after cuts.
    """

    stream: str
    partition: int
    bytes: int
    sent: int


Observe: TypeAlias = Callable[[Uploading], None]


@dataclass(frozen=True, slots=True)
class UploadState:
    """What another process needs to go on.

    Attributes:
        run: its id.
        partition: of the run.
        stream: its id.
        source: identity of the source, None if it has none.
        offset: bytes committed.
        passed: digest of these, if they cannot be read again.
    """

    run: str
    partition: int
    stream: str
    source: Mapping[str, Any] | None
    offset: int
    passed: str | None

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> UploadState:
        """The state that a file holds.

        Raises:
            KeyError, TypeError, ValueError: it holds none.
        """
        return cls(
            str(content["run"]),
            int(content["partition"]),
            str(content["stream"]),
            content["source"],
            int(content["offset"]),
            content["passed"],
        )

    def json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)


class CountedBody:
    """A body that tells how many bytes of it were asked for."""

    def __init__(self, body: Body, count: Callable[[int], None]) -> None:
        self._body = body
        self._count = count

    @property
    def length(self) -> int | None:
        """Number of bytes, if known."""
        return self._body.length

    def views(self) -> Iterator[memoryview]:
        """Pieces of the body."""
        for view in self._body.views():
            yield view
            self._count(len(view))

    def interrupt(self) -> None:
        """Stop another thread that waits for a piece."""
        self._body.interrupt()


def header(head: Head, name: str) -> str:
    """A header of an answer.

    Raises:
        ProtocolError: it is missing.
    """
    try:
        return head.headers[name]
    except KeyError as e:
        raise ProtocolError(f"the answer has no {name}") from e


def number(head: Head, name: str) -> int:
    """A header of an answer that is a number.

    Raises:
        ProtocolError: it is missing, or something else.
    """
    text = header(head, name)
    if not text.isdecimal():
        raise ProtocolError(f"{name} of the answer is {text!r}")
    return int(text)
