"""Problems: one table from every error to the status and document that a client gets.

The engine's errors carry their codes with them (``core.errors``); the errors of the
service are defined here. The first paragraph of an error's docstring is its explanation
at ``/problems/<code>``, so it addresses the client.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from core import errors as core

from . import run_errors
from .service_error import LargerError
from .service_error import ServiceError as ServiceError  # noqa: PLC0414 - for those who raise others


class BadRequestError(ServiceError, problem=("bad-request", 400, "Bad request")):
    """The request contradicts itself or violates HTTP."""


class FramingError(ServiceError, problem=("framing", 400, "Malformed chunks")):
    """The body's chunked transfer coding is malformed."""


class CodingError(ServiceError, problem=("content-encoding", 400, "Malformed compressed body")):
    """The body does not decode as its Content-Encoding declares, or was cut."""


class UnauthorizedError(ServiceError, problem=("unauthorized", 401, "API key required")):
    """The request carries no API key, or one that is unknown, revoked or expired."""


class ForbiddenError(ServiceError, problem=("forbidden", 403, "Scope missing")):
    """The API key is known, but lacks the scope that the request needs."""


class OriginRefusedError(ServiceError, problem=("origin-refused", 403, "Another site")):
    """A page of another site sent the request, or it names a host that may be another's.

    So no site can act through the browsers of the users of a service.
    """


class NotFoundError(ServiceError, problem=("not-found", 404, "Not found")):
    """No resource exists at this address."""


class NotAcceptableError(ServiceError, problem=("not-acceptable", 406, "Format not available")):
    """None of the requested formats is available for this resource."""


class StalledError(ServiceError, problem=("stalled", 408, "Body stalled")):
    """The client stopped sending before the end of its body."""


class TokenMalformedError(ServiceError, problem=("token-malformed", 400, "Malformed token")):
    """The value is not a token, or was damaged on the way."""


class TokenForgedError(ServiceError, problem=("token-forged", 403, "Token not authentic")):
    """The token's signature is invalid, or this server does not have its key."""


class TokenRetiredError(ServiceError, problem=("token-retired", 410, "Token key retired")):
    """The token's key has been retired: it refreshes tokens but no longer resumes streams."""


class TokenForeignError(ServiceError, problem=("token-foreign", 409, "Token of another request")):
    """The token belongs to a different request."""


class DataChangedError(ServiceError, problem=("data-changed", 412, "Data changed")):
    """The data differs from the data for which the token, address or entity tag was issued."""


class InputGoneError(ServiceError, problem=("input-gone", 410, "Input not available")):
    """The auxiliary file has expired or was never uploaded."""


class TooLargeError(LargerError, problem=("too-large", 413, "Too large")):
    """The request exceeds a size limit of this server.

    The member ``limit`` names it, ``allowed`` is its value, and ``setting`` the variable with which
    an operator changes it, null where it is fixed.
    """


class RangeError(ServiceError, problem=("range", 416, "Range not satisfiable")):
    """The requested range lies outside the resource."""


class BombError(LargerError, problem=("decompression-bomb", 413, "Decompression bomb")):
    """The body expands far beyond its compressed size."""


class UnsupportedCodingError(
    ServiceError, problem=("unsupported-encoding", 415, "Unsupported Content-Encoding")
):
    """The body's Content-Encoding is not supported."""


class InvalidOptionError(ServiceError, problem=("option", 422, "Invalid option")):
    """An option is unknown, has an invalid value or contradicts another option."""


class WholeStreamError(
    ServiceError, problem=("report-needs-whole-stream", 422, "Report needs the whole stream")
):
    """A report has rows only once the whole stream is known, and this is a part of one."""


class DatasetUnreadableError(
    ServiceError, problem=("dataset-unreadable", 422, "Dataset unreadable")
):
    """Decoding a file of the dataset crashed, took too long or needed too much memory.

    Files are decoded by isolated processes, so that only this request failed.
    """


class BusyError(ServiceError, problem=("busy", 503, "Busy")):
    """The server has no memory, threads or connections left for another request.

    The members ``limit`` and ``setting``, where present, name what is used up.
    """


class ShareExceededError(ServiceError, problem=("share-exceeded", 429, "Share exceeded")):
    """Your requests in progress hold as much of this server as one owner may; wait for them."""


class RateLimitedError(ServiceError, problem=("rate-limited", 429, "Too many requests")):
    """You sent more requests than one owner may in a time; the header RateLimit tells."""


class EngineUnavailableError(
    ServiceError, problem=("engine-unavailable", 503, "Cluster unavailable")
):
    """The cluster that computes for this server cannot be reached, or has no worker of its version.

    Nothing is lost: what was computed so far is not computed again.
    """


class DrainingError(ServiceError, problem=("draining", 503, "Shutting down")):
    """The server is shutting down and accepts no new work."""


class StorageFullError(ServiceError, problem=("storage-full", 503, "Storage full")):
    """The server could not write to its data directory."""


class QuotaExceededError(ServiceError, problem=("quota-exceeded", 429, "Quota exceeded")):
    """You already store as much of this as you may; delete some of it, or ask for more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The meaning of a problem code."""

    status: int
    title: str
    explanation: str


_SERVICE: dict[type[ServiceError], tuple[int, str]] = {
    kind: (kind.status, kind.title)
    for kind in (*globals().values(), *vars(run_errors).values())
    if isinstance(kind, type) and issubclass(kind, ServiceError) and "status" in vars(kind)
}

_REFUSED = {
    core.OptionError: "Invalid option",
    core.ReportError: "Report not possible",
    core.ItemUnknownError: "Item without a summary",
    core.EventOrderError: "Events out of order",
    core.SampleOrderError: "Samples out of order",
    core.LossNotFiniteError: "Loss not finite",
    core.LossNegativeError: "Negative loss",
    core.PipelineError: "Invalid pipeline",
    core.TransformError: "Transform failed",
    core.BudgetExceededError: "Budget exceeded",
}
"""Well formed, but refused under the options in force: 422."""

_MALFORMED = {
    core.InputError: "Unusable input",
    core.EmptyStreamError: "Empty stream",
    core.HeaderError: "Not a loss stream",
    core.TruncatedError: "Truncated stream",
    core.IncompleteError: "Incomplete stream",
    core.ExcessError: "More data than declared",
    core.ConcatenatedError: "Streams joined to one",
    core.MismatchError: "Mismatched partitions",
    core.EventIdError: "Invalid event id",
    core.EventReopenedError: "Event reopened",
    core.BlockIdError: "Invalid item or summary id",
    core.BlockRepeatedError: "Item or summary repeated",
    core.ExposureError: "Invalid exposure",
    core.TerminatorError: "Invalid end of block",
    core.SampleRangeError: "Sample out of range",
    core.SampleRepeatedError: "Sample repeated",
    core.StreamError: "Invalid stream",
}

_CORE: dict[type[core.CoreError], tuple[int, str]] = {
    **{kind: (422, title) for kind, title in _REFUSED.items()},
    **{kind: (400, title) for kind, title in _MALFORMED.items()},
    core.UnsupportedStreamError: (415, "Unsupported stream"),
    core.WorkStoppedError: (503, "Stopped"),
    core.CancelledError: (503, "Cancelled"),
    core.LimitError: (413, "Too large"),
    core.StateError: (409, "Unusable state"),
    core.FormatError: (422, "Unusable file"),
    core.AmbiguousFormatError: (422, "Ambiguous format"),
    core.ShapeError: (422, "Shape mismatch"),
    core.SelectionError: (422, "Empty or invalid selection"),
    core.CastingError: (422, "Values do not fit the type"),
    core.RepairError: (422, "Pixel cannot be repaired"),
    core.PositionError: (416, "Position past the end"),
}

_LOCATION = (
    *("source", "offset", "event", "block", "hint", "stage", "field", "position"),
    *("stage_name", "budget", "limit", "allowed", "setting", "inputs", "option"),
)
"""Attributes that locate a fault; each error of the engine has some of them."""
_SETTINGS = {"max_samples": "THALWEG_MAX_SAMPLES", "max_blocks": "THALWEG_MAX_BLOCKS"}
"""Limits of the engine that are settings of the service."""

_TOO_LARGE = 413
_BITS = 63
"""Of the largest whole number that every JSON library reads."""

_OTHERS = {
    "internal": Kind(500, "Internal error", "The server failed unexpectedly; its log has details."),
    "path-refused": Kind(403, "Path refused", "The path lies outside the served directories."),
    "file-missing": Kind(404, "File missing", "A file of the dataset does not exist."),
    "head-exists": Kind(409, "Already exists", "Another resource has this id."),
    "head-conflict": Kind(
        409, "Conflicting change", "The resource was changed by another request at the same time."
    ),
    "store": Kind(503, "Store failed", "The server could not read or write its stored state."),
    "read-failed": Kind(503, "Read failed", "The disk failed while a dataset was being read."),
    "method-not-allowed": Kind(
        405, "Method not allowed", "The route exists, but does not support this method."
    ),
    "unprocessable": Kind(422, "Invalid request", "A parameter or the JSON body is invalid."),
    "headers-too-large": Kind(431, "Headers too large", "The request's headers are too large."),
    "headers-too-slow": Kind(
        408, "Headers too slow", "The request's headers did not arrive in time."
    ),
    "not-implemented": Kind(
        501, "Not implemented", "The only supported Transfer-Encoding is chunked."
    ),
    "starting": Kind(
        503,
        "Starting",
        "The service has just been started, and compiles the machine code that it computes with."
        " That takes minutes, once on a machine; `thalweg-server warmup` does it beforehand.",
    ),
    "cut-off": Kind(503, "Cut off", "The server stopped before it had begun its answer."),
}
"""Problems without an error class here, by code."""


def _explain(error: type[Exception]) -> str:
    return (error.__doc__ or "").strip().split("\n\n")[0].replace("``", "")


KINDS: dict[str, Kind] = {
    **_OTHERS,
    **{e.code: Kind(*known, _explain(e)) for e, known in _CORE.items()},
    **{e.code: Kind(*known, _explain(e)) for e, known in _SERVICE.items()},
}
"""Every problem code of the service."""


@dataclass(slots=True)
class Problem:
    """A problem document (RFC 9457)."""

    code: str
    status: int
    title: str
    detail: str
    members: dict[str, Any] = field(default_factory=dict)
    """Extension members; those that are None are left out of the document."""
    retry_after: int | None = None
    """Value of the Retry-After header, in seconds."""
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers of the answer."""

    def to_json(self) -> dict[str, Any]:
        """Return the document as a JSON object."""
        present = {
            name: _written(value)
            for name, value in self.members.items()
            # That nobody can change a limit is worth knowing.
            if value is not None or (self.status, name) == (_TOO_LARGE, "setting")
        }
        return {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **present,
        }


def _written(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return a number that a client sent, as a text if JSON's readers do not take it as it is."""
    return str(value) if isinstance(value, int) and value.bit_length() > _BITS else value


class ProblemError(Exception):
    """Carries a finished problem document to the error handlers."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def problem(code: str, detail: str, **members: Any) -> Problem:  # noqa: ANN401 - JSON values
    """Return a problem document for one of KINDS.

    Raises:
        KeyError: the code is unknown.
    """
    kind = KINDS[code]
    return Problem(code, kind.status, kind.title, detail, members)


def new_request_id() -> str:
    """Return an id for a request that brings none."""
    # Not of the system's randomness: that gives up the interpreter's lock, and is not needed.
    return f"{random.getrandbits(64):016x}"


def problem_of(error: Exception) -> Problem:
    """Return the problem document of an error; an unexpected error's text stays private."""
    if isinstance(error, core.CoreError):
        location = {name: getattr(error, name, None) for name in _LOCATION}
        if isinstance(error, core.LimitError):
            location["setting"] = setting = _SETTINGS.get(error.limit)
            if setting and error.hint:
                location["hint"] = error.hint.replace(error.limit, f"the service's {setting}", 1)
        place = "" if error.source is None else f"{error.source}: "
        document = problem(error.code, place + error.message, **location)
        # Several classes may share a code: the class decides.
        for kind in type(error).__mro__:
            if kind in _CORE:
                document.status, document.title = _CORE[kind]
                break
        return document
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, ServiceError):
        document = problem(error.code, str(error), hint=error.hint, **error.members)
        document.retry_after = error.retry_after
        if isinstance(error, RangeError):
            document.headers["Content-Range"] = f"bytes */{error.members['length']}"
        return document
    return problem("internal", "the server failed; its log says why")
