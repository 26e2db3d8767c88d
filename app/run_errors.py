"""Errors of durable runs and their uploads; see :mod:`app.errors`."""

from .service_error import LargerError, ServiceError


class RunExpiredError(ServiceError, problem=("run-expired", 410, "Run expired")):
    """The run was not changed for as long as runs are kept."""


class RunSealedError(ServiceError, problem=("run-sealed", 409, "Run sealed")):
    """The run is sealed: it takes no more streams, bytes or inputs."""


class PartitionTakenError(ServiceError, problem=("partition-taken", 409, "Partition taken")):
    """Another stream of the run has this partition; the member ``stream`` names it."""


class StreamLimitError(ServiceError, problem=("stream-limit", 422, "Too many streams")):
    """The run can have no such stream: it has too many, or declares fewer partitions."""


class IdempotencyError(ServiceError, problem=("idempotency-key", 422, "Key used before")):
    """The Idempotency-Key was used before, for a different request."""


class SealRefusedError(ServiceError, problem=("seal-refused", 409, "Not to be sealed")):
    """The run cannot be sealed yet; the member ``streams`` says what is wrong with each stream."""


class RunFailedError(ServiceError, problem=("run-failed", 409, "Run failed")):
    """The run could not be computed; the member ``problem`` says why."""


class ProcessDiedError(ServiceError, problem=("process-died", 500, "Process died")):
    """Computing this has ended several processes, and is not tried again by itself."""


class ReportNotReadyError(ServiceError, problem=("report-not-ready", 409, "Report not ready")):
    """The report is computed when the run is sealed; the member ``state`` says where it stands."""


class ReportMissingError(ServiceError, problem=("report-missing", 404, "Report not computed")):
    """The report was not requested of this run; POST it to the reports of the run."""


class OffsetMismatchError(ServiceError, problem=("offset-mismatch", 409, "Offset mismatch")):
    """The upload continues at another offset than Upload-Offset says."""


class UploadLengthError(ServiceError, problem=("upload-length", 400, "Inconsistent length")):
    """The length of the upload contradicts one that was declared, or the bytes sent."""


class UploadExcessError(LargerError, problem=("upload-excess", 413, "More than declared")):
    """The body has more bytes than the upload lacks, or an append may have."""


class UploadCompleteError(ServiceError, problem=("upload-complete", 409, "Upload complete")):
    """The upload is complete, and takes no more bytes."""


class UploadFailedError(ServiceError, problem=("stream-failed", 409, "Stream faulty")):
    """The uploaded stream is faulty; the member ``fault`` says how. Delete it, upload it again."""


class UploadTakenError(ServiceError, problem=("upload-taken", 409, "Upload taken over")):
    """Another request has continued or deleted the upload while this one was sending."""


class ChecksumError(ServiceError, problem=("checksum-mismatch", 460, "Checksum mismatch")):
    """The bytes do not have the checksum that was sent with them; none of them was taken."""


class DigestError(ServiceError, problem=("digest-mismatch", 400, "Digest mismatch")):
    """The bytes do not have the digest that was sent with them."""


class ProtocolVersionError(
    ServiceError, problem=("upload-protocol", 412, "Protocol version not supported")
):
    """The server does not speak this version of the upload protocol."""


class MediaTypeError(ServiceError, problem=("media-type", 415, "Media type not supported")):
    """The body has another media type than the request requires."""
