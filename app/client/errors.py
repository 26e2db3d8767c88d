"""The error tree of the client.

* ThalwegError
    * ProblemError: the service refused, and says why (a problem document)
    * ConnectionFailed: the service could not be reached, or the connection broke
    * ProtocolError: an answer violates the contract, or was cut
    * ProducerFailed: the command whose output was posted failed
    * SourceError: the stream to post cannot be read, or has changed
    * StateError: a state file does not fit the call
        * OtherFileError: another process writes the file, or it is no state file
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from .hints import hint_of

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""Reasons that OpenSSL gives where a service speaks without TLS."""
_LASTING = _NO_TLS | {"CERTIFICATE_VERIFY_FAILED"}


class ThalwegError(Exception):
    """Base of all errors that the client raises on purpose."""


class ProblemError(ThalwegError):
    """The service refused, or the stream is wrong; the contents of its problem document.

    Attributes:
        status: HTTP status.
        code: stable identifier of the kind of problem, for programs.
        title: the kind of problem, for people.
        detail: what is wrong in this case.
        offset: byte of the stream where the fault is, or None.
        event: id of the event that holds the fault, or None.
        hint: what to do about it, in terms of Python, or None.
        token: last position whose rows have all been answered, or None.
        resume_offset: stream offset in bytes that belongs to ``token``, or None.
        retry_after: seconds to wait before another try, or None.
        problem: the whole document.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.retry_after = retry_after
        self.code = str(problem.get("code", f"http-{status}"))
        self.title = str(problem.get("title", f"HTTP status {status}"))
        self.detail = str(problem.get("detail") or self.title)
        self.offset: int | None = problem.get("offset")
        self.event: int | None = problem.get("event")
        self.hint = hint_of(self.problem)
        self.token: str | None = problem.get("token")
        self.resume_offset: int | None = problem.get("resume_offset")
        super().__init__(self.detail)

    def __str__(self) -> str:
        return self.said(self.hint)

    def said(self, hint: str | None) -> str:
        """What is wrong and where, and what to do about it."""
        stage = self.problem.get("stage")
        is_named = f"(stage {stage}," in self.detail
        known = {"byte": self.offset, "event": self.event, "stage": None if is_named else stage}
        places = ", ".join(f"{name} {at}" for name, at in known.items() if at is not None)
        field = str(self.problem.get("field") or "")
        places += f", {field}" if places and field not in self.detail else ""
        place = f" (at {places})" if places else ""
        return f"[{self.code}] {self.detail}{place}{f'. {hint}' if hint else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.problem, self.retry_after)


class ConnectionFailed(ThalwegError):  # noqa: N818 - says what happened
    """The service could not be reached, or the connection broke.

    Attributes:
        lasts: whether another try would fail as well.
    """

    lasts = False

    @classmethod
    def to(cls, host: str, port: int | None, error: BaseException) -> ConnectionFailed:
        """The failure of a connection to a host, from the error of the library beneath."""
        text, place = str(error) or type(error).__name__, host if port is None else f"{host}:{port}"
        cause: BaseException | None = error
        reasons = set()
        while cause is not None:
            reasons.add(getattr(cause, "reason", None))
            if isinstance(cause, ConnectionRefusedError):
                text = "refused: is the service running?"
            cause = cause.__cause__ or cause.__context__
        if reasons & _NO_TLS:
            text = f"the service speaks http, not https: use http://{place}"
        failed = cls(f"connection to {place}: {text}")
        failed.lasts = bool(reasons & _LASTING)
        return failed


class ProtocolError(ThalwegError):
    """An answer violates the contract: it is damaged, out of order, or cut."""


class ProducerFailed(ThalwegError):  # noqa: N818 - says what happened
    """The command whose output was posted failed; its last event may be incomplete.

    Attributes:
        returncode: exit code of the command; negative: the signal that ended it.
    """

    def __init__(self, command: str, returncode: int) -> None:
        self.command = command
        self.returncode = returncode
        ending = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
        super().__init__(f"{command} ended with {ending}: its output may be incomplete")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.command, self.returncode)


class SourceError(ThalwegError):
    """The stream to post cannot be read, or has changed."""


class StateError(ThalwegError):
    """A state file is damaged, in use, or of another call."""


class OtherFileError(StateError):
    """Another process writes the file, or it is no state file: it is left alone."""


def problem_error(status: int, body: bytes, headers: Mapping[str, str]) -> ProblemError:
    """The error that an answer reports, be it a problem document or a proxy's page.

    Args:
        status: HTTP status.
        body: of the answer, perhaps truncated.
        headers: by their names in lower case; a date as Retry-After is ignored.
    """
    content_type, retry_after = headers.get("content-type", ""), headers.get("retry-after")
    problem: Any = None
    if "json" in content_type:
        with contextlib.suppress(ValueError):
            problem = json.loads(body)
    if not isinstance(problem, dict):
        text = body[:200].decode("utf-8", "replace").strip() if "html" not in content_type else ""
        problem = {"detail": text or f"HTTP status {status}"}
    seconds = float(retry_after) if retry_after and retry_after.strip().isdigit() else None
    return ProblemError(status, problem, seconds)


def check_fingerprint(was: str | None, now: str) -> None:
    """Compare the fingerprint that data has with the one that it had; None for any.

    Raises:
        ProblemError: it has changed (code ``data-changed``).
    """
    if was not in {None, now}:
        raise data_changed(f"the data had the fingerprint {was} and has {now} now")


def data_changed(detail: str, hint: str = "Open the dataset anew") -> ProblemError:
    """The error for changed data, where the client notices it before the service, or knows more."""
    problem = {"code": "data-changed", "title": "Data changed", "status": 412, "detail": detail}
    return ProblemError(412, {**problem, "hint": hint})
