"""Errors of durable runs and their uploads; see :mod:`app.errors`."""

from __future__ import annotations

from .service_error import LargerError, ServiceError


class RunExpiredError(ServiceError):
    """The run was not changed for as long as runs are kept."""

    code = "run-expired"


class RunSealedError(ServiceError):
    """The run is sealed: it takes no more streams, bytes or inputs."""

    code = "run-sealed"


class PartitionTakenError(ServiceError):
    """Another stream of the run has this partition; the member ``stream`` names it."""

    code = "partition-taken"


class StreamLimitError(ServiceError):
    """The run can have no such stream: it has too many, or declares fewer partitions."""

    code = "stream-limit"


class IdempotencyError(ServiceError):
    """The Idempotency-Key was used before, for a different request."""

    code = "idempotency-key"


class SealRefusedError(ServiceError):
    """The run cannot be sealed yet; the member ``streams`` says what is wrong with each stream."""

    code = "seal-refused"


class RunFailedError(ServiceError):
    """The run could not be computed; the member ``problem`` says why."""

    code = "run-failed"


class ProcessDiedError(ServiceError):
    """Computing this has ended several processes, and is not tried again by itself."""

    code = "process-died"


class ReportNotReadyError(ServiceError):
    """The report is computed when the run is sealed; the member ``state`` says where it stands."""

    code = "report-not-ready"


class ReportMissingError(ServiceError):
    """The report was not requested of this run; POST it to the reports of the run."""

    code = "report-missing"


class OffsetMismatchError(ServiceError):
    """The upload continues at another offset than Upload-Offset says."""

    code = "offset-mismatch"


class UploadLengthError(ServiceError):
    """The length of the upload contradicts one that was declared, or the bytes sent."""

    code = "upload-length"


class UploadExcessError(LargerError):
    """The body has more bytes than the upload lacks, or an append may have."""

    code = "upload-excess"


class UploadCompleteError(ServiceError):
    """The upload is complete, and takes no more bytes."""

    code = "upload-complete"


class UploadFailedError(ServiceError):
    """The uploaded stream is faulty; the member ``fault`` says how. Delete it, upload it again."""

    code = "stream-failed"


class UploadTakenError(ServiceError):
    """Another request has continued or deleted the upload while this one was sending."""

    code = "upload-taken"


class ChecksumError(ServiceError):
    """The bytes do not have the checksum that was sent with them; none of them was taken."""

    code = "checksum-mismatch"


class DigestError(ServiceError):
    """The bytes do not have the digest that was sent with them."""

    code = "digest-mismatch"


class ProtocolVersionError(ServiceError):
    """The server does not speak this version of the upload protocol."""

    code = "upload-protocol"


class MediaTypeError(ServiceError):
    """The body has another media type than the request requires."""

    code = "media-type"


RUN_ERRORS: dict[type[ServiceError], tuple[int, str]] = {
    RunExpiredError: (410, "Run expired"),
    RunSealedError: (409, "Run sealed"),
    PartitionTakenError: (409, "Partition taken"),
    StreamLimitError: (422, "Too many streams"),
    IdempotencyError: (422, "Key used before"),
    SealRefusedError: (409, "Not to be sealed"),
    RunFailedError: (409, "Run failed"),
    ProcessDiedError: (500, "Process died"),
    ReportNotReadyError: (409, "Report not ready"),
    ReportMissingError: (404, "Report not computed"),
    OffsetMismatchError: (409, "Offset mismatch"),
    UploadLengthError: (400, "Inconsistent length"),
    UploadExcessError: (413, "More than declared"),
    UploadCompleteError: (409, "Upload complete"),
    UploadFailedError: (409, "Stream faulty"),
    UploadTakenError: (409, "Upload taken over"),
    ChecksumError: (460, "Checksum mismatch"),
    DigestError: (400, "Digest mismatch"),
    ProtocolVersionError: (412, "Protocol version not supported"),
    MediaTypeError: (415, "Media type not supported"),
}
"""Status and title of each."""
