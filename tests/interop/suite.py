"""Requirements of upload protocols: what each says, and how a server is asked about it.

A requirement is a function that talks to a server and says nothing if all is well. It raises
``Broken`` if the server does something else, and ``Absent`` if the server says that it does not
have what the requirement is about. The first line of its docstring is its text in tables.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np

from tests.interop.wire import Answer, Connection, NoAnswer, absolute, ask

Level = Literal["MUST", "SHOULD", "MAY"]
Outcome = Literal["ok", "broken", "absent"]


class Broken(Exception):  # noqa: N818 - the outcome
    """The server does not do what it has to."""


class Absent(Exception):  # noqa: N818 - the outcome
    """The server does not have this part of the protocol, and says so."""


@dataclass(frozen=True)
class Server:
    """The server under test.

    Attributes:
        url: where uploads are created; every ``{n}`` in it becomes another number each time.
        headers: sent with every request.
        content: what is uploaded; at least 1,000 bytes.
        numbers: of uploads.
    """

    url: str
    headers: Mapping[str, str]
    content: bytes
    numbers: Iterator[int]

    def creation_url(self) -> str:
        return self.url.replace("{n}", str(next(self.numbers)))

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        return ask(method, url, {**self.headers, **headers}, body)

    def begin(self, method: str, url: str, headers: Mapping[str, str]) -> Connection:
        """Send a request up to its body."""
        connection = Connection(url)
        connection.head(method, url, {**self.headers, **headers})
        return connection

    def located(self, answer: Answer) -> str:
        location = answer.header("Location")
        if location is None:
            broken("the answer has no Location", answer)
        return absolute(self.url, location)


@dataclass(frozen=True)
class Requirement:
    """A requirement of a protocol."""

    dialect: str
    part: str
    level: Level
    check: Callable[[Server], None]

    @property
    def text(self) -> str:
        return (self.check.__doc__ or self.check.__name__).strip().splitlines()[0].rstrip(".")


@dataclass(frozen=True)
class Result:
    """How a server did."""

    requirement: Requirement
    outcome: Outcome
    detail: str = ""


def run(requirements: Iterable[Requirement], server: Server) -> list[Result]:
    """Ask a server about each requirement."""
    return [_outcome(requirement, server) for requirement in requirements]


def _outcome(requirement: Requirement, server: Server) -> Result:
    try:
        requirement.check(server)
    except Absent as e:
        return Result(requirement, "absent", str(e))
    except (Broken, NoAnswer, OSError, ValueError) as e:
        return Result(requirement, "broken", str(e) or type(e).__name__)
    return Result(requirement, "ok")


def broken(why: str, answer: Answer | None = None) -> NoReturn:
    """Report a breach.

    Raises:
        Broken: always.
    """
    seen = "" if answer is None else f" ({answer.status} {answer.body[:80].decode('latin-1')!r})"
    raise Broken(why + seen)


def expect_status(answer: Answer, *statuses: int) -> Answer:
    if answer.status not in statuses:
        broken(f"{answer.status} instead of {' or '.join(map(str, statuses))}", answer)
    return answer


def expect_refusal(answer: Answer) -> Answer:
    if not 400 <= answer.status < 500:
        broken(f"{answer.status} instead of a refusal", answer)
    return answer


def expect_success(answer: Answer) -> Answer:
    if not 200 <= answer.status < 300:
        broken(f"{answer.status} instead of success", answer)
    return answer


def expect_header(answer: Answer, name: str, value: str | None = None) -> str:
    """The value of a header."""
    found = answer.header(name)
    if found is None:
        broken(f"{name} is missing", answer)
    if value is not None and found != value:
        broken(f"{name}: {found} instead of {value}", answer)
    return found


def expect_none(answer: Answer, name: str) -> None:
    found = answer.header(name)
    if found is not None:
        broken(f"{name}: {found} should not be there", answer)


def digest_header(algorithm: str, digest: bytes) -> str:
    """A checksum as tus writes it."""
    return f"{algorithm} {base64.b64encode(digest).decode()}"


def loss_stream(events: int = 400, samples: int = 10, first: int = 1) -> bytes:
    """A stream of summary losses: for a server that looks at what it is sent.

    Args:
        events: number of events, of one block each.
        samples: of each block.
        first: id of the first event.
    """
    pair = np.dtype([("sidx", "<i4"), ("loss", "<f4")])
    head = [("event", "<i4"), ("summary", "<i4"), ("exposure", "<f4")]
    blocks = np.zeros(events, np.dtype([*head, ("pairs", pair, samples + 2)]))
    ids = np.arange(first, first + events)
    blocks["event"], blocks["summary"], blocks["exposure"] = ids, 1, 1e6
    sidx = np.array([-1, *range(1, samples + 1)])
    blocks["pairs"]["sidx"][:, :-1] = sidx
    blocks["pairs"]["loss"][:, :-1] = ids[:, None] % 97 + np.abs(sidx)
    return struct.pack("<iii", 3 << 24 | 1, samples, 1) + blocks.tobytes()
