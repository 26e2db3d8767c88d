"""The resumable stream: open after a token, take frames, decide, reopen.

Rows, tiles, batches, raw bytes and reductions all arrive as one long answer that may break
at any byte. All of them resume in the same loop; a product fills in four things: what is
*done*, the *position* to resume from, one *attempt*, and the *cures* for refusals that can
be removed::

            ┌──────────────────────────────────────────────┐
            ▼                                              │
      done? ──yes──▶ return                                │
            │ no                                           │
            ▼                                              │
      attempt: Ask(request after position)                 │
               deliver item, move position  ◀─┐            │
               more frames ───────────────────┘            │
            │                                              │
            ├─ the answer ended as it should ── progress ──┤
            │                                              │
            ▼ broken, damaged, cut, or refused             │
      Drop; forget what was delivered but not settled      │
            │                                              │
            ├─ a cure is known and untried ── cure it ─────┤
            │                                              │
            └─ Backoff: wait, or give up by raising        │
                         └─────────────────────────────────┘

The position moves with each item that was delivered, never before, so nothing is lost or
delivered twice whatever the answer breaks on. Failures count against the limit only while
nothing moves: a stream of hours survives any number of cuts, a service that is gone fails
after about a minute.

The obvious alternative, retrying whole requests in the HTTP layer, would send a stream
again from its start and could not tell rows that were already handed out from new ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from ..errors import ConnectionFailed, ProblemError, ProtocolError, ThalwegError
from .answers import STATUS_OK, checked, exchange, refuse
from .effects import Ask, Drop, Sleep, Steps
from .requests import Head, Request, token_request
from .retry import Backoff

Cure: TypeAlias = Callable[[], Steps[None]]


class ResumableStream(ABC):
    """One answer, and further ones where it breaks off, until everything has arrived.

    Args:
        backoff: decides whether and when to try again.

    Attributes:
        token: position to resume from, if the stream has tokens.
    """

    def __init__(self, backoff: Backoff, token: str | None = None) -> None:
        self.token = token
        self._backoff = backoff
        self._tried: set[Cure] = set()

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is missing."""

    @property
    def position(self) -> object:
        """Where the next attempt resumes; it differs after progress."""
        return self.token

    @abstractmethod
    def _attempt(self) -> Steps[None]:
        """Open an answer at the position and take it to its end.

        Raises:
            ConnectionFailed, ProtocolError, ProblemError: it did not end as it should.
        """

    def _forget(self) -> Steps[None]:
        """Take back what was delivered after the position."""
        yield from ()

    def _lacks_only_the_end(self, failure: ThalwegError) -> bool:  # noqa: ARG002 - for others
        """Whether everything but the end had arrived before a failure."""
        return False

    def _cure(self, problem: ProblemError) -> Cure | None:
        """What removes the cause of a refusal, if anything does."""
        if problem.code == "token-retired" and self.token is not None:
            return self._refresh_token
        return None

    def run(self) -> Steps[None]:
        """Deliver the items of the stream.

        Raises:
            ProblemError: the service refused, or the data has changed.
            ConnectionFailed, ProtocolError: more failures in a row than are tolerated.
        """
        cure: Cure | None = None
        while not self.done:
            before, failure = self.position, None
            try:
                if cure is not None:
                    yield from cure()
                    cure, before = None, self.position
                yield from self._attempt()
            except (ConnectionFailed, ProtocolError, ProblemError) as error:
                failure = error
            if failure is None or self.position != before:
                self._backoff.progressed()
                self._tried.clear()
            if failure is not None:
                yield Drop()
                yield from self._forget()
                if self._lacks_only_the_end(failure):
                    return
                cure = yield from self._prepare_retry(failure, cure)

    def _prepare_retry(self, failure: ThalwegError, cure: Cure | None) -> Steps[Cure | None]:
        """Choose a cure for the next attempt, or wait; a cure that failed is tried again."""
        if cure is None and isinstance(failure, ProblemError):
            cure = self._cure(failure)
            if cure is not None and cure not in self._tried:
                self._tried.add(cure)
                return cure
            cure = None
        yield Sleep(self._backoff.delay(failure))
        self._tried.clear()
        return cure

    def _refresh_token(self) -> Steps[None]:
        assert self.token is not None  # noqa: S101 - see _cure
        reply = yield from exchange(token_request("refresh", self.token))
        self.token = checked(reply).text("token")

    def _open(self, request: Request) -> Steps[Head]:
        """Send a request; the head of its answer.

        Raises:
            ProblemError: the service refused it.
        """
        head: Head = yield Ask(request)
        if head.status != STATUS_OK:
            yield from refuse(head)
        return head
