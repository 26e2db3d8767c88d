"""What the two upload protocols have in common: the requests they express, and their headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

from app.errors import BadRequestError, Problem
from app.http.negotiation import Headers, joined
from app.losses.options import number

from ..records import MAX_PARTITION, RunRecord, StreamRecord
from .appending import AppendRequest

_DIGITS = 18
_METADATA = re.compile(r"[\x21-\x2b\x2d-\x7e]+( [A-Za-z0-9+/=]*)?")
MAX_METADATA = 4096
"""Characters of Upload-Metadata."""


@dataclass(frozen=True, slots=True)
class Creation:
    """A request to create an upload."""

    append: AppendRequest | None
    """The bytes in its body; None without any."""
    length: int | None = None
    metadata: str = ""
    """Upload-Metadata, as sent."""
    partition: int | None = None
    """From the metadata."""
    digest: str | None = None
    """Repr-Digest, as sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to an upload request."""

    status: int
    headers: Mapping[str, str]
    describes: bool = False
    """Whether its body is a description of the stream."""


class UploadProtocol(Protocol):
    """One of the protocols, as one request speaks it."""

    def creation(self, headers: Headers) -> Creation:
        """Return what a POST to the list of streams asks for.

        Raises:
            ServiceError: a header is missing or malformed.
        """

    def append(self, headers: Headers) -> AppendRequest:
        """Return what a PATCH asks for.

        Raises:
            ServiceError: a header is missing or malformed.
        """

    def created(self, run: RunRecord, stream: StreamRecord, *, appended: bool) -> Answer:
        """Return the answer to a creation, apart from Location."""

    def appended(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """Return the answer to an append."""

    def offset(self, run: RunRecord, stream: StreamRecord) -> Answer:
        """Return the answer to HEAD and GET."""

    def deleted(self) -> Answer:
        """Return the answer to DELETE."""

    def refine(self, problem: Problem) -> None:
        """Add to a problem what the protocol requires of it."""

    def interim(self, offset: int | None, location: str | None) -> Mapping[str, str] | None:
        """Return the headers of a 104 answer; None if the client takes none."""


def offset_of(headers: Headers) -> int:
    """Return Upload-Offset.

    Raises:
        BadRequestError: it is missing, or no number.
    """
    offset = number(headers, "Upload-Offset")
    if offset is None:
        raise BadRequestError(
            "there is no Upload-Offset", hint="Ask for it with HEAD, and continue there"
        )
    return offset


def media_type(headers: Headers) -> str:
    """Return the media type of the body without its parameters; empty if there is none."""
    return (joined(headers, "content-type") or "").partition(";")[0].strip().lower()


def has_body(headers: Headers) -> bool:
    """Whether a request has a body that may have bytes."""
    return "transfer-encoding" in headers or joined(headers, "content-length") not in {None, "0"}


def refuse_coding(headers: Headers) -> None:
    """Refuse bodies with a content coding: offsets count what is stored.

    Raises:
        BadRequestError: there is one.
    """
    coding = joined(headers, "content-encoding")
    if coding not in {None, "identity"}:
        raise BadRequestError(
            f"uploads have no Content-Encoding, as {str(coding)[:40]!r}",
            hint="Upload the stream as it is",
        )


def metadata_of(headers: Headers) -> tuple[str, int | None]:
    """Return Upload-Metadata as sent, and the partition in it.

    Raises:
        BadRequestError: it is malformed.
    """
    text = (joined(headers, "Upload-Metadata") or "").strip()
    if not text:
        return "", None
    pairs = [pair.strip() for pair in text.split(",")]
    if len(text) > MAX_METADATA or not all(map(_METADATA.fullmatch, pairs)):
        raise BadRequestError(
            "Upload-Metadata is malformed, or too long",
            hint=f"Send up to {MAX_METADATA} characters: key base64,key base64",
        )
    values = {key: value for key, _, value in (pair.partition(" ") for pair in pairs)}
    if len(values) < len(pairs):
        raise BadRequestError("Upload-Metadata has a key twice")
    return text, _partition(values.get("partition"))


def _partition(encoded: str | None) -> int | None:
    if encoded is None:
        return None
    try:
        digits = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        digits = b""
    value = int(digits) if digits.isdigit() and len(digits) <= _DIGITS else 0
    if not 1 <= value <= MAX_PARTITION:
        raise BadRequestError(
            "the partition in Upload-Metadata is not a number of a partition",
            hint=f"It is 1 to {MAX_PARTITION}, in decimal digits, in base64",
        )
    return value


def http_date(seconds: float) -> str:
    """Return a time in seconds since 1970 as HTTP has it."""
    return formatdate(seconds, usegmt=True)
