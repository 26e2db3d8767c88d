"""The IETF draft "Resumable Uploads for HTTP", in the versions that clients speak.

A request says with ``Upload-Draft-Interop-Version`` which version it speaks. They differ so:

    version            5                 6                       8                  9
    type of PATCH      any               application/partial-upload, in all three
    104                Location          Location                and Upload-Limit   and Upload-Limit
    progress by 104    Upload-Offset, in all
    answer to HEAD     Upload-Offset, Upload-Complete, and Upload-Limit, which 5 ignores

9 lets the server leave out headers that 8 requires of it, which are sent all the same, and has
GET answer as HEAD does, which all have here. A request without the header is taken as 9: plain
HTTP clients can upload, and learn nothing by 104, since many take that for the final answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from app.errors import BadRequestError, Problem
from app.http.negotiation import Headers, joined
from app.losses.options import number, upload_complete
from app.run_errors import (
    MediaTypeError,
    OffsetMismatchError,
    UploadCompleteError,
    UploadLengthError,
)
from core.errors import EmptyStreamError

from ..records import RunRecord, StreamRecord
from .appending import AppendRequest
from .checksums import Checksum, parse_digest
from .upload_protocol import Answer, Creation, has_body, media_type, metadata_of, offset_of

VERSIONS = ("5", "6", "8", "9")
MEDIA_TYPE = "application/partial-upload"
HEADER = "Upload-Draft-Interop-Version"
_UNTYPED = "5"
"""The version in which appends have no media type of their own."""
_TYPES = "https://iana.org/assignments/http-problem-types#"
_PROBLEMS = {
    OffsetMismatchError.code: "mismatching-upload-offset",
    UploadLengthError.code: "inconsistent-upload-length",
    UploadCompleteError.code: "completed-upload",
}
_MEMBERS = {"expected_offset": "expected-offset", "provided_offset": "provided-offset"}


class Ietf:
    """See UploadProtocol.

    Args:
        version: that of the request; None if it names none.
        most: maximum bytes of an upload.
    """

    def __init__(self, version: str | None, most: int) -> None:
        self._version = version if version in VERSIONS else None
        self._most = most

    def creation(self, headers: Headers) -> Creation:
        """See UploadProtocol."""
        last = upload_complete(headers)
        if last is None:
            # A plain POST: all data is in this request.
            last = True
        length, sent = number(headers, "Upload-Length"), number(headers, "Content-Length")
        if last and sent is not None and length not in {None, sent}:
            raise UploadLengthError(
                f"Upload-Length is {length}, and the request has all {sent} bytes"
            )
        body = has_body(headers)
        if length == 0 or (last and not body):
            raise EmptyStreamError("the stream is empty", offset=0)
        metadata, partition = metadata_of(headers)
        append = None
        if body:
            whole = sent if last and length is None else length
            append = AppendRequest(0, last, whole, sent, _content_digest(headers))
        digest = joined(headers, "Repr-Digest")
        if digest is not None:
            parse_digest(digest, "Repr-Digest")
        return Creation(append, length, metadata, partition, digest)

    def append(self, headers: Headers) -> AppendRequest:
        """See UploadProtocol."""
        if self._version != _UNTYPED and media_type(headers) != MEDIA_TYPE:
            raise MediaTypeError(
                f"the Content-Type is {media_type(headers)[:80]!r}", hint=f"Send {MEDIA_TYPE}"
            )
        last = upload_complete(headers)
        if last is None:
            raise BadRequestError(
                "there is no Upload-Complete",
                hint="Send ?1 with the last bytes of the stream, ?0 before",
            )
        length, sent = number(headers, "Upload-Length"), number(headers, "Content-Length")
        digest = _content_digest(headers)
        return AppendRequest(offset_of(headers), last, length, sent, digest)

    def created(self, run: RunRecord, stream: StreamRecord, *, appended: bool) -> Answer:  # noqa: ARG002
        """See UploadProtocol."""
        return Answer(201, self._headers(run, stream), describes=True)

    def appended(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """See UploadProtocol."""
        complete = stream.complete
        return Answer(200 if complete else 204, self._headers(run, stream), describes=complete)

    def offset(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """See UploadProtocol."""
        length = {} if stream.length is None else {"Upload-Length": str(stream.length)}
        return Answer(204, {**self._headers(run, stream), **length})

    def _headers(self, run: RunRecord, stream: StreamRecord) -> dict[str, str]:
        return {
            **self._echo(),
            "Cache-Control": "no-store",
            "Upload-Offset": str(stream.offset),
            "Upload-Complete": "?1" if stream.complete else "?0",
            "Upload-Limit": upload_limit(self._most, run),
        }

    def _echo(self) -> dict[str, str]:
        return {} if self._version is None else {HEADER: self._version}

    def deleted(self) -> Answer:
        """See UploadProtocol."""
        return Answer(204, {**self._echo(), "Cache-Control": "no-store"})

    def refine(self, problem: Problem) -> None:
        """See UploadProtocol."""
        name = _PROBLEMS.get(problem.code)
        if name is not None:
            problem.members["type"] = _TYPES + name
        for own, other in _MEMBERS.items():
            if own in problem.members:
                problem.members[other] = problem.members[own]
        problem.headers.update(self._echo())
        if "expected_offset" in problem.members:
            problem.headers["Upload-Complete"] = "?0"
        if problem.code == UploadCompleteError.code:
            problem.headers["Upload-Complete"] = "?1"

    def interim(self, offset: int | None, location: str | None) -> Mapping[str, str] | None:
        """See UploadProtocol."""
        if self._version is None:
            return None
        headers = self._echo()
        if location is not None:
            headers["Location"] = location
            if self._version not in {"5", "6"}:
                headers["Upload-Limit"] = upload_limit(self._most, None)
        if offset is not None:
            headers["Upload-Offset"] = str(offset)
        return headers


def upload_limit(most: int, run: RunRecord | None) -> str:
    """Return the value of Upload-Limit; ``run`` bounds the age of its uploads."""
    limits = f"max-size={most}, min-size=0"
    if run is not None and run.expires is not None:
        limits += f", max-age={max(int(run.expires - time.time()), 0)}"
    return limits


def _content_digest(headers: Headers) -> tuple[Checksum, ...]:
    text = joined(headers, "Content-Digest")
    return () if text is None else parse_digest(text, "Content-Digest")
