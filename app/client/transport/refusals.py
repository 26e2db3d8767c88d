"""Answers that are not what was asked for."""

from __future__ import annotations

from ..errors import ProblemError, problem_error
from .effects import Finish, Receive, Steps
from .requests import Head, Reply

_NOT_MODIFIED = 304
"""What was asked for."""
_PROBLEM_SIZE = 1 << 16
"""Bytes of a problem document that are read."""


def refused(head: Head) -> Steps:
    """Read the problem document behind a head, and raise it.

    Raises:
        ProblemError: always.
    """
    body = memoryview(bytearray(_PROBLEM_SIZE))
    size = 0
    while size < len(body):
        count: int = yield Receive(body[size:])
        if not count:
            yield Finish()
            break
        size += count
    raise _problem(head, bytes(body[:size]))


def checked(reply: Reply) -> Reply:
    """The reply, if it is a good one.

    Raises:
        ProblemError: it is not.
    """
    status = reply.head.status
    if status // 100 == 2 or status == _NOT_MODIFIED:  # noqa: PLR2004 - success
        return reply
    raise _problem(reply.head, reply.body)


def _problem(head: Head, body: bytes) -> ProblemError:
    headers = head.headers
    return problem_error(
        head.status, body, headers.get("content-type", ""), headers.get("retry-after")
    )
