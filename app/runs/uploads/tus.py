"""The upload protocol tus 1.0, with the extensions that :data:`EXTENSIONS` names."""

from __future__ import annotations

from collections.abc import Mapping

from app.errors import BadRequestError, Problem
from app.http.negotiation import Headers, joined
from app.losses.options import number
from app.run_errors import MediaTypeError, ProtocolVersionError
from core.errors import EmptyStreamError

from ..records import RunRecord, StreamRecord
from .appending import AppendRequest
from .checksums import TUS_ALGORITHMS, parse_checksum
from .upload_protocol import (
    Answer,
    Creation,
    has_body,
    http_date,
    media_type,
    metadata_of,
    offset_of,
)

VERSION = "1.0.0"
MEDIA_TYPE = "application/offset+octet-stream"
EXTENSIONS = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "checksum",
    "expiration",
    "termination",
)
_COMMON = {"Tus-Resumable": VERSION, "Cache-Control": "no-store"}


class Tus:
    """See UploadProtocol."""

    @staticmethod
    def check_version(headers: Headers) -> None:
        """Check that the request speaks this version.

        Raises:
            ProtocolVersionError: it does not.
        """
        version = joined(headers, "Tus-Resumable")
        if version != VERSION:
            raise ProtocolVersionError(
                f"Tus-Resumable is {str(version)[:40]!r}, and this server speaks {VERSION}"
            )

    def creation(self, headers: Headers) -> Creation:
        """See UploadProtocol."""
        self.check_version(headers)
        length, deferred = number(headers, "Upload-Length"), joined(headers, "Upload-Defer-Length")
        if deferred not in {None, "1"} or (length is None) is (deferred is None):
            raise BadRequestError(
                "a creation has either Upload-Length or Upload-Defer-Length: 1",
                hint="Send the length of the stream in bytes, or defer it",
            )
        if "Upload-Concat" in headers:
            raise BadRequestError(
                "uploads cannot be concatenated", hint="Upload a stream for each partition"
            )
        if length == 0:
            raise EmptyStreamError("the stream is empty", offset=0)
        metadata, partition = metadata_of(headers)
        append = None
        if has_body(headers):
            append = self._append(headers, 0, length)
        return Creation(append, length, metadata, partition)

    def append(self, headers: Headers) -> AppendRequest:
        """See UploadProtocol."""
        self.check_version(headers)
        return self._append(headers, offset_of(headers), number(headers, "Upload-Length"))

    @staticmethod
    def _append(headers: Headers, offset: int, length: int | None) -> AppendRequest:
        if media_type(headers) != MEDIA_TYPE:
            raise MediaTypeError(
                f"the Content-Type is {media_type(headers)[:80]!r}", hint=f"Send {MEDIA_TYPE}"
            )
        checksum = joined(headers, "Upload-Checksum")
        return AppendRequest(
            offset,
            length=length,
            content_length=number(headers, "Content-Length"),
            checksums=() if checksum is None else (parse_checksum(checksum),),
        )

    def created(self, run: RunRecord, stream: StreamRecord, *, appended: bool) -> Answer:
        """See UploadProtocol."""
        offset = {"Upload-Offset": str(stream.offset)} if appended else {}
        return Answer(201, {**_COMMON, **_expires(run), **offset})

    def appended(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """See UploadProtocol."""
        return Answer(204, {**_COMMON, **_expires(run), "Upload-Offset": str(stream.offset)})

    def offset(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """See UploadProtocol."""
        length = {"Upload-Defer-Length": "1"}
        if stream.length is not None:
            length = {"Upload-Length": str(stream.length)}
        metadata = {"Upload-Metadata": stream.metadata} if stream.metadata else {}
        offset = {"Upload-Offset": str(stream.offset)}
        return Answer(200, {**_COMMON, **_expires(run), **offset, **length, **metadata})

    def deleted(self) -> Answer:
        """See UploadProtocol."""
        return Answer(204, _COMMON)

    def refine(self, problem: Problem) -> None:
        """See UploadProtocol."""
        problem.headers["Tus-Resumable"] = VERSION
        if problem.code == ProtocolVersionError.code:
            problem.headers["Tus-Version"] = VERSION

    def interim(self, offset: int | None, location: str | None) -> Mapping[str, str] | None:  # noqa: ARG002
        """See UploadProtocol."""
        return None


def _expires(run: RunRecord) -> dict[str, str]:
    return {} if run.expires is None else {"Upload-Expires": http_date(run.expires)}


def describe_server(most: int) -> dict[str, str]:
    """Return the headers by which OPTIONS describes the server."""
    return {
        "Tus-Resumable": VERSION,
        "Tus-Version": VERSION,
        "Tus-Extension": ",".join(EXTENSIONS),
        "Tus-Max-Size": str(most),
        "Tus-Checksum-Algorithm": ",".join(TUS_ALGORITHMS),
    }
