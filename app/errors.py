"""What a client is told when something is wrong: one table from error to status.

The errors of the engine come with their codes; those of the service are here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from core import errors as core


class ServiceError(Exception):
    """Base of what the service itself refuses.

    Attributes:
        hint: what to do about it.
        more: further members of the problem document.
        retry_after: seconds after which to try again, or None.
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        retry_after: int | None = None,
        **more: Any,  # noqa: ANN401 - JSON values
    ) -> None:
        super().__init__(detail)
        self.hint = hint
        self.retry_after = retry_after
        self.more = more


class BadRequestError(ServiceError):
    """The request contradicts itself or HTTP."""

    code = "bad-request"


class FramingError(ServiceError):
    """The chunks of the body are not what HTTP says."""

    code = "framing"


class CodingError(ServiceError):
    """A body that is not what its Content-Encoding says, or was cut."""

    code = "content-encoding"


class UnauthorizedError(ServiceError):
    """No key, or none that is known."""

    code = "unauthorized"


class NotFoundError(ServiceError):
    """Nothing is there."""

    code = "not-found"


class NotAcceptableError(ServiceError):
    """None of the formats asked for can be made."""

    code = "not-acceptable"


class StalledError(ServiceError):
    """The body stopped coming."""

    code = "stalled"


class TokenMalformedError(ServiceError):
    """What should be a token is none."""

    code = "token-malformed"


class TokenForgedError(ServiceError):
    """The signature of a token is not right, or its key is unknown."""

    code = "token-forged"


class TokenRetiredError(ServiceError):
    """The token's key may only be used to refresh it."""

    code = "token-retired"


class TokenForeignError(ServiceError):
    """The token is of a request for something else."""

    code = "token-foreign"


class DataChangedError(ServiceError):
    """The data is not what the token stands for."""

    code = "data-changed"


class InputGoneError(ServiceError):
    """An auxiliary file is not there, or no longer."""

    code = "input-gone"


class TooLargeError(ServiceError):
    """More than the service accepts."""

    code = "too-large"


class RangeError(ServiceError):
    """A range of which nothing is there."""

    code = "range"


class BombError(ServiceError):
    """A body that decodes to many times its size."""

    code = "decompression-bomb"


class UnsupportedCodingError(ServiceError):
    """A Content-Encoding that is not understood."""

    code = "unsupported-encoding"


class InvalidOptionError(ServiceError):
    """An option that does not exist, or has a value it cannot have."""

    code = "option"


class BusyError(ServiceError):
    """No buffers are left for another request."""

    code = "busy"


class DrainingError(ServiceError):
    """The server is about to stop."""

    code = "draining"


class StorageFullError(ServiceError):
    """Rows that wait could not be stored."""

    code = "storage-full"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a problem code stands for."""

    status: int
    title: str
    explanation: str


_SERVICE: dict[type[ServiceError], tuple[int, str]] = {
    ServiceError: (500, "Internal error"),
    BadRequestError: (400, "Bad request"),
    FramingError: (400, "Broken chunks"),
    CodingError: (400, "Broken compression"),
    UnauthorizedError: (401, "Key needed"),
    NotFoundError: (404, "Not found"),
    NotAcceptableError: (406, "No such format"),
    StalledError: (408, "The body stopped coming"),
    TokenMalformedError: (400, "Not a token"),
    TokenForgedError: (403, "Forged token"),
    TokenRetiredError: (410, "Token of a retired key"),
    TokenForeignError: (409, "Token of another request"),
    DataChangedError: (412, "The data is not what the token stands for"),
    InputGoneError: (410, "Input gone"),
    TooLargeError: (413, "Too large"),
    RangeError: (416, "Range not there"),
    BombError: (413, "Decompression bomb"),
    UnsupportedCodingError: (415, "Unsupported Content-Encoding"),
    InvalidOptionError: (422, "Invalid option"),
    BusyError: (503, "Busy"),
    DrainingError: (503, "Draining"),
    StorageFullError: (503, "Storage full"),
}

_REFUSED = {
    core.OptionError: "Invalid option",
    core.ReportError: "The report does not fit",
    core.EventOrderError: "Events not in order",
    core.SampleOrderError: "Samples not in order",
    core.LossNotFiniteError: "A loss is not a number",
    core.LossNegativeError: "A loss is negative",
    core.PipelineError: "The pipeline cannot be",
    core.TransformError: "A transform failed",
}
"""Well formed, but refused by the options in force: 422."""

_MALFORMED = {
    core.InputError: "Unusable input",
    core.EmptyStreamError: "Empty stream",
    core.HeaderError: "Not a loss stream",
    core.TruncatedError: "Truncated stream",
    core.IncompleteError: "Incomplete stream",
    core.ExcessError: "More than declared",
    core.MismatchError: "Partitions that do not belong together",
    core.EventIdError: "Invalid event id",
    core.EventReopenedError: "Event reopened",
    core.BlockIdError: "Invalid item or summary id",
    core.BlockRepeatedError: "Item or summary repeated",
    core.ExposureError: "Invalid exposure",
    core.TerminatorError: "Invalid block end",
    core.SampleRangeError: "Sample out of range",
    core.SampleRepeatedError: "Sample repeated",
    core.StreamError: "Invalid stream",
}

_CORE: dict[type[core.CoreError], tuple[int, str]] = {
    **{kind: (422, title) for kind, title in _REFUSED.items()},
    **{kind: (400, title) for kind, title in _MALFORMED.items()},
    core.UnsupportedStreamError: (415, "Unsupported stream"),
    core.LimitError: (413, "Too large"),
    core.StateError: (409, "Unusable state"),
    core.FormatError: (422, "Unusable file"),
    core.AmbiguousFormatError: (422, "Format not clear"),
    core.ShapeError: (422, "Shapes do not fit"),
    core.SelectionError: (422, "Nothing there to select"),
    core.CastingError: (422, "The type cannot hold the values"),
    core.RepairError: (422, "A pixel cannot be repaired"),
    core.PositionError: (416, "Behind the end"),
}

_PLACES = ("offset", "event", "block", "hint", "stage", "field", "position")
"""What errors of the engine say of where they are; each of them some."""

_OTHERS = {
    "path-refused": Kind(403, "Path refused", "A path outside of the directories that are served."),
    "file-missing": Kind(404, "File missing", "A file of a dataset is not there."),
    "head-exists": Kind(409, "Exists already", "Something else has this id already."),
    "head-conflict": Kind(409, "Changed meanwhile", "It is no longer what was seen."),
    "store": Kind(503, "Store failed", "What the service keeps could not be read or written."),
    "read-failed": Kind(503, "Reading failed", "A disk failed while a dataset was read."),
    "method-not-allowed": Kind(405, "Method not allowed", "The route has other methods."),
    "unprocessable": Kind(422, "Invalid request", "A parameter or the JSON body is not valid."),
    "headers-too-large": Kind(431, "Headers too large", "The request's headers are too large."),
    "headers-too-slow": Kind(408, "Slow headers", "The request's headers did not come in time."),
    "not-implemented": Kind(501, "Not implemented", "A Transfer-Encoding other than chunked."),
    "cut-off": Kind(503, "Cut off", "The server stopped before the answer had begun."),
}


def _explain(error: type[Exception]) -> str:
    return (error.__doc__ or "").strip().split("\n\n")[0]


KINDS: dict[str, Kind] = {
    **_OTHERS,
    **{e.code: Kind(*known, _explain(e)) for e, known in _CORE.items()},
    **{e.code: Kind(*known, _explain(e)) for e, known in _SERVICE.items()},
}
"""Every problem code there is."""


@dataclass(slots=True)
class Problem:
    """A problem document (RFC 9457)."""

    code: str
    status: int
    title: str
    detail: str
    members: dict[str, Any] = field(default_factory=dict)
    retry_after: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Its members, those that are known."""
        known = {name: value for name, value in self.members.items() if value is not None}
        return {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **known,
        }


class ProblemError(Exception):
    """A problem that is already described."""

    def __init__(self, found: Problem) -> None:
        super().__init__(found.detail)
        self.problem = found


def problem(code: str, detail: str, **members: Any) -> Problem:  # noqa: ANN401 - JSON values
    """A problem of a known code."""
    kind = KINDS[code]
    return Problem(code, kind.status, kind.title, detail, members)


def problem_of(error: Exception) -> Problem:
    """The problem document of an error; of an unexpected one, without its words."""
    if isinstance(error, core.CoreError):
        place = {name: getattr(error, name, None) for name in _PLACES}
        found = problem(error.code, error.message, **place)
        for kind in type(error).__mro__:
            if kind in _CORE:
                found.status, found.title = _CORE[kind]
                break
        return found
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, ServiceError):
        found = problem(error.code, str(error), hint=error.hint, **error.more)
        found.retry_after = error.retry_after
        return found
    return problem("internal", "the server failed; its log says why")
