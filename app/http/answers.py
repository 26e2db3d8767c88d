"""Answers that are complete before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from app.server.responses import Exchange

EXPOSED = (
    *("Accept-Ranges", "Content-Range", "ETag", "Thalweg-Dtype", "Thalweg-Origin"),
    *("Thalweg-Shape", "Thalweg-Tile-Shape", "Thalweg-Tiles"),
    *("Preference-Applied", "Thalweg-Completeness", "Thalweg-Token", "Thalweg-Batch"),
    *("Thalweg-Epoch", "Thalweg-Count", "Thalweg-Rows", "Thalweg-Offset", "Thalweg-Events"),
    *("Thalweg-Bytes", "Thalweg-Reopened-Check", "Thalweg-Events-Without-Occurrence"),
    *("Thalweg-Events-Only-In-Occurrence", "Thalweg-Selected-Rows"),
    "Thalweg-Blocks-Without-Exposure",
    *("Thalweg-Longest-Return-Period", "Thalweg-Missing-Summary-Ids"),
    *("Thalweg-Missing-Event-Ids", "Thalweg-Ledger-Bound", "Thalweg-Rates", "Thalweg-Notes"),
    *("Location", "Upload-Complete", "Upload-Defer-Length", "Upload-Draft-Interop-Version"),
    *("Upload-Expires", "Upload-Length", "Upload-Limit", "Upload-Metadata", "Upload-Offset"),
    *("Tus-Checksum-Algorithm", "Tus-Extension", "Tus-Max-Size", "Tus-Resumable"),
    *("Tus-Version", "X-Request-Id", "Retry-After", "RateLimit", "RateLimit-Policy"),
)
"""Headers of answers that scripts of other origins may read."""


def remark_headers(remarks: Mapping[str, int | str]) -> dict[str, str]:
    """Return remarks on an answer's rows as headers: ``Thalweg-Selected-Rows`` and so on."""
    return {f"Thalweg-{name.replace('_', '-').title()}": str(remarks[name]) for name in remarks}


def head_response(media_type: str, headers: Mapping[str, str]) -> Response:
    """Return an answer to HEAD without a Content-Length, which would cost as much as the body."""
    response = Response(headers=headers, media_type=media_type)
    del response.headers["content-length"]
    return response


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """Status, headers and body of an answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes | memoryview | None = None
    """The body; None to send headers alone."""
    length: int | None = None
    """Content-Length of an answer without its body, as to HEAD."""

    async def send(self, exchange: Exchange) -> None:
        """Send the answer."""
        length = self.length if self.data is None else len(self.data)
        await exchange.start(self.status, self.headers, content_length=length)
        if self.data is not None:
            await exchange.end(self.data)
