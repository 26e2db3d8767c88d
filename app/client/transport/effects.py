"""Effects: what an operation wants done, and what it is sent back.

Everything the client does over the network is written once, as a generator that does no
input or output itself. It *yields* an effect, such as "send this request" or "wait two
seconds", and is *sent* the result; a failure is *thrown* into it at the same place. Two
shells perform effects, one with blocking calls and one for asyncio, so that the two clients
share every decision and cannot drift apart::

    operation (a generator)            shell (blocking or asyncio)
      yield Ask(request)        ──▶      sends it
      head                      ◀──      status and headers of the answer
      yield Receive(buffer)     ──▶      fills the buffer
      count                     ◀──
      yield Finish()            ──▶      keeps the connection for the next request
      return result             ──▶      what the caller of ``run`` gets

``Deliver`` is not performed by a shell. It hands an item (a tile, a batch, a table) to
whoever drives the generator with ``next_item``, which passes all other effects on. So
operations compose: writing a view to a file drives the stream of its tiles, and both are
driven by one shell.

A ``finally`` clause of an operation must not yield: it also runs when the operation is
abandoned, and nobody is there to perform an effect then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from .requests import Head, Request

T = TypeVar("T")

BLOCK = 1 << 20
"""Bytes moved at once: with less, the work per piece shows; more gains nothing."""


class Body(Protocol):
    """The bytes sent with a request."""

    @property
    def length(self) -> int | None:
        """Their number, if known."""

    def views(self) -> Iterator[memoryview]:
        """Pieces of about 1 MiB, each valid until the next one is asked for."""

    def interrupt(self) -> None:
        """Stop another thread that waits for a piece."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request; the result is the Head of its answer.

    Attributes:
        request: what to send.
        body: bytes to send with it; the request's own body if None.
        duplex: read the answer while the body is being sent.
        interim: called with interim answers (1xx), which only come in duplex; perhaps from
            another thread, but from no two at once.
    """

    request: Request
    body: Body | None = None
    duplex: bool = False
    interim: Callable[[Head], None] | None = None


@dataclass(frozen=True, slots=True)
class Receive:
    """Fill a view with the next bytes of the answer; the result is their number, 0 at the end."""

    view: memoryview


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer has been read: keep the connection for another request."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The rest of the answer is not wanted: close the connection and stop sending."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for a number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Run a function that may block, away from the event loop; the result is its result.

    Attributes:
        function: reads or writes files, pipes or memory.
        interrupt: makes the function return early. Without it, a cancelled operation waits
            for the function, so that its files can be closed safely.
    """

    function: Callable[[], Any]
    interrupt: Callable[[], None] | None = None


class Job(Protocol):
    """Steps that run beside those that spawned them."""

    def done(self) -> bool:
        """Whether they have returned or failed."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Run steps beside these, with a connection of their own; the result is a Job."""

    steps: Steps[Any]


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for a job; the result is what its steps returned, or raised."""

    job: Any


@dataclass(frozen=True, slots=True)
class Deliver:
    """An item for whoever drives the steps with ``next_item``."""

    item: Any


Effect: TypeAlias = Ask | Receive | Finish | Drop | Sleep | Work | Spawn | Join | Deliver
Steps: TypeAlias = Generator[Effect, Any, T]
"""An operation that returns T."""


def next_item(steps: Steps[Any]) -> Steps[Any]:
    """Run steps up to the next item they deliver; None after the last one."""
    try:
        effect = next(steps)
        while not isinstance(effect, Deliver):
            try:
                result = yield effect
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is theirs
                effect = steps.throw(error)
            else:
                effect = steps.send(result)
    except StopIteration:
        return None
    return effect.item
