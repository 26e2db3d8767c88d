"""Requests, and what small answers hold: success or refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote, urlencode

from ..errors import ProtocolError, problem_error

STATUS_OK = 200
_STATUS_NOT_MODIFIED = 304
_STATUS_UNAVAILABLE = 503
BLOCK = 1 << 20
"""Bytes moved at once: with less, the work per piece shows; more gains nothing."""
OCTETS = {"Content-Type": "application/octet-stream"}
"""Headers of a body of bytes."""


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes sent with a request.

    Attributes:
        length: their number, if known.
        views: yields pieces of about 1 MiB, each valid until the next one is asked for.
        interrupt: stops another thread that waits for a piece.
    """

    length: int | None
    views: Callable[[], Iterator[memoryview]]
    interrupt: Callable[[], None]


class Job(Protocol):
    """An operation that runs beside the one that began it."""

    def done(self) -> bool:
        """Whether it has returned or failed."""

    def exception(self) -> BaseException | None:
        """What it raised, once it is done."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


Interim: TypeAlias = Callable[[Head], None]
"""Called with an answer that comes before the answer: one with a status of 1xx."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: of HTTP.
        target: path and query.
        headers: names in any case.
        body: a small body, or None.
        stream: bytes sent instead of a small body.
        duplex: whether to read the answer while the stream is being sent.
        interim: called with interim answers, which only come in duplex; perhaps from another
            thread, but from no two at once.
        patience: seconds of silence before the answer, where they may be more than others.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: Body | None = None
    duplex: bool = False
    interim: Interim | None = None
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A small answer with its whole body."""

    head: Head
    body: bytes

    def json(self) -> dict[str, Any]:
        """The JSON object in its body.

        Raises:
            ProtocolError: there is none.
        """
        try:
            value = json.loads(self.body)
        except ValueError as e:
            raise ProtocolError("the answer is not JSON") from e
        if not isinstance(value, dict):
            raise ProtocolError("the answer is not a JSON object")
        return value

    def text(self, name: str) -> str:
        """A string member of its JSON object.

        Raises:
            ProtocolError: there is none.
        """
        value = self.json().get(name)
        if not isinstance(value, str):
            raise ProtocolError(f"the answer has no {name}")
        return value


def path_of(*names: str) -> str:
    """The path of a resource, such as ``path_of("runs", run)``.

    Raises:
        ValueError: a name is empty, and would lead elsewhere.
    """
    if not all(names):
        raise ValueError(f"an id or name is empty: there is nothing at /v1/{'/'.join(names)}")
    return "/".join(["/v1", *(quote(name, safe="") for name in names)])


def query_of(**values: object) -> str:
    """The query of these options, but for those that are None; lists have commas."""
    texts = {name: _text(value) for name, value in values.items() if value is not None}
    return f"?{urlencode(texts, safe=',')}" if texts else ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def json_request(target: str, content: Mapping[str, Any], *, patience: float = 0.0) -> Request:
    """Post a JSON object.

    Raises:
        ValueError: it has a number that is not finite.
    """
    headers = {"Content-Type": "application/json"}
    try:
        body = json.dumps(content, allow_nan=False).encode()
    except ValueError as e:
        raise ValueError("a number is NaN or infinite, which cannot be sent") from e
    return Request("POST", target, headers, body, patience=patience)


def token_request(action: Literal["inspect", "refresh"], token: str) -> Request:
    """Ask the service about a token."""
    return json_request(f"/v1/tokens/{action}", {"token": token})


def checked(reply: Reply) -> Reply:
    """The reply, if its status is one of success.

    Raises:
        ProblemError: it is not.
    """
    status = reply.head.status
    if status // 100 == 2 or status == _STATUS_NOT_MODIFIED:  # noqa: PLR2004 - success
        return reply
    raise problem_error(status, reply.body, reply.head.headers)


def is_ready(reply: Reply) -> bool:
    """Whether an answer about readiness says yes.

    Raises:
        ProblemError: it is not such an answer.
    """
    if reply.head.status == _STATUS_UNAVAILABLE:
        return False
    return checked(reply).head.status == STATUS_OK
