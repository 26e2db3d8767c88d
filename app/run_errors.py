"""Errors of durable runs and their uploads; see :mod:`app.errors`."""

from .service_error import LargerError, ServiceError


class RunExpiredError(ServiceError):
    """The run was not changed for as long as runs are kept."""

    code, status, title = "run-expired", 410, "Run expired"


class RunSealedError(ServiceError):
    """The run is sealed: it takes no more streams, bytes or inputs."""

    code, status, title = "run-sealed", 409, "Run sealed"


class PartitionTakenError(ServiceError):
    """Another stream of the run has this partition; the member ``stream`` names it."""

    code, status, title = "partition-taken", 409, "Partition taken"


class StreamLimitError(ServiceError):
    """The run can have no such stream: it has too many, or declares fewer partitions."""

    code, status, title = "stream-limit", 422, "Too many streams"


class IdempotencyError(ServiceError):
    """The Idempotency-Key was used before, for a different request."""

    code, status, title = "idempotency-key", 422, "Key used before"


class SealRefusedError(ServiceError):
    """The run cannot be sealed yet; the member ``streams`` says what is wrong with each stream."""

    code, status, title = "seal-refused", 409, "Not to be sealed"


class RunFailedError(ServiceError):
    """The run could not be computed; the member ``problem`` says why."""

    code, status, title = "run-failed", 409, "Run failed"


class ProcessDiedError(ServiceError):
    """Computing this has ended several processes, and is not tried again by itself."""

    code, status, title = "process-died", 500, "Process died"


class ReportNotReadyError(ServiceError):
    """The report is computed when the run is sealed; the member ``state`` says where it stands."""

    code, status, title = "report-not-ready", 409, "Report not ready"


class ReportMissingError(ServiceError):
    """The report was not requested of this run; POST it to the reports of the run."""

    code, status, title = "report-missing", 404, "Report not computed"


class OffsetMismatchError(ServiceError):
    """The upload continues at another offset than Upload-Offset says."""

    code, status, title = "offset-mismatch", 409, "Offset mismatch"


class UploadLengthError(ServiceError):
    """The length of the upload contradicts one that was declared, or the bytes sent."""

    code, status, title = "upload-length", 400, "Inconsistent length"


class UploadExcessError(LargerError):
    """The body has more bytes than the upload lacks, or an append may have."""

    code, status, title = "upload-excess", 413, "More than declared"


class UploadCompleteError(ServiceError):
    """The upload is complete, and takes no more bytes."""

    code, status, title = "upload-complete", 409, "Upload complete"


class UploadFailedError(ServiceError):
    """The uploaded stream is faulty; the member ``fault`` says how. Delete it, upload it again."""

    code, status, title = "stream-failed", 409, "Stream faulty"


class UploadTakenError(ServiceError):
    """Another request has continued or deleted the upload while this one was sending."""

    code, status, title = "upload-taken", 409, "Upload taken over"


class ChecksumError(ServiceError):
    """The bytes do not have the checksum that was sent with them; none of them was taken."""

    code, status, title = "checksum-mismatch", 460, "Checksum mismatch"


class DigestError(ServiceError):
    """The bytes do not have the digest that was sent with them."""

    code, status, title = "digest-mismatch", 400, "Digest mismatch"


class ProtocolVersionError(ServiceError):
    """The server does not speak this version of the upload protocol."""

    code, status, title = "upload-protocol", 412, "Protocol version not supported"


class MediaTypeError(ServiceError):
    """The body has another media type than the request requires."""

    code, status, title = "media-type", 415, "Media type not supported"
