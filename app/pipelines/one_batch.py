"""One batch as an answer of its own, at an immutable address."""

from __future__ import annotations

from collections.abc import Callable

from app.http.answers import WholeAnswer
from app.http.compression import compressor
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import Headers, answer_coding
from app.http.ranges import not_modified
from core.errors import PositionError

from .encoding import batch_headers, encode_batch, make_batch
from .opened import OpenPipeline
from .schemas import BatchQuery

MEDIA = {
    "frames": MEDIA_TYPES["frames"],
    "arrow": MEDIA_TYPES["arrow"],
    "npy": "application/x-npy",
}
"""Media type of each format."""
_IMMUTABLE = "public, max-age=31536000, immutable"


def one_batch(
    open_at: Callable[[str | None], OpenPipeline],
    release: Callable[[OpenPipeline], None],
    query: BatchQuery,
    form: str,
    requested: Headers,
) -> WholeAnswer:
    """Answer with the batch ``query.offset`` batches after a token.

    Args:
        open_at: opens the pipeline after a token.
        release: closes it.
        query: the batch, and the rank whose rows of it to send.
        form: a key of ``MEDIA``.
        requested: headers of the request; ``If-None-Match`` may avoid building the batch.

    Raises:
        NotFoundError: there is no such pipeline.
        PositionError: the pipeline ends before that batch.
        NotAcceptableError: the format cannot hold the batch.
        CoreError, ServiceError: the batch cannot be built.
    """
    opened = open_at(query.after)
    try:
        opened.check_rank(query.rank, query.world)
        coding = answer_coding(requested)
        etag = opened.etag(query.offset, query.rank, query.world, form, coding or "identity")
        headers = _headers(etag, form, coding, immutable=query.after is not None)
        if not_modified(requested, etag):
            return WholeAnswer(304, headers)
        data, more = _encoded(opened, query, form)
        if coding is not None:
            encoder = compressor(coding)
            data = encoder.compress(data, flush=False) + encoder.end()
        return WholeAnswer(200, {**headers, **more}, data)
    finally:
        release(opened)


def _headers(etag: str, form: str, coding: str | None, *, immutable: bool) -> dict[str, str]:
    """Return the headers known before the batch is built.

    Args:
        etag: entity tag of the answer.
        form: a key of ``MEDIA``.
        coding: compression of the answer.
        immutable: whether the request has a token, which pins the data.
    """
    headers = {
        "Content-Type": MEDIA[form],
        "ETag": etag,
        "Cache-Control": _IMMUTABLE if immutable else "no-cache",
        "Vary": "Accept, Accept-Encoding",
    }
    if coding is not None:
        headers["Content-Encoding"] = coding
    return headers


def _encoded(opened: OpenPipeline, query: BatchQuery, form: str) -> tuple[bytes, dict[str, str]]:
    """Build and encode the batch; return it with the headers that describe it."""
    state = opened.pipeline.skip(opened.start, query.offset)
    step = opened.pipeline.step(state, query.rank, query.world)
    if step is None:
        batches = opened.pipeline.batches
        raise PositionError(
            "the pipeline ends before that batch",
            hint=None if batches is None else f"Use an offset within its {batches} batches",
        )
    batch = make_batch(opened, step)
    return encode_batch(opened, step, batch, form), batch_headers(batch)
