"""One batch as a whole answer, at an address that never changes."""

from __future__ import annotations

from app.http.answers import WholeAnswer
from app.http.compression import compressor
from app.http.media_types import MEDIA_TYPES
from app.http.negotiation import Headers, answer_coding
from app.http.ranges import not_modified
from core.errors import PositionError

from .encoding import batch_headers, encode_batch, make_batch
from .opened import OpenPipeline
from .registry import Pipelines
from .schemas import BatchQuery

MEDIA = {
    "frames": MEDIA_TYPES["frames"],
    "arrow": MEDIA_TYPES["arrow"],
    "npy": "application/x-npy",
}
"""Media type of each format."""
_IMMUTABLE = "public, max-age=31536000, immutable"


def one_batch(
    pipelines: Pipelines, ident: str, query: BatchQuery, form: str, requested: Headers
) -> WholeAnswer:
    """Answer with the batch ``query.offset`` batches after a token.

    Args:
        pipelines: the registered pipelines.
        ident: id of the pipeline.
        query: which batch, and whose rows of it.
        form: one of MEDIA.
        requested: headers of the request.

    Raises:
        NotFoundError: there is no such pipeline.
        PositionError: there is no such batch.
        NotAcceptableError: the batch cannot be encoded like this.
        CoreError, ServiceError: the batch cannot be made.
    """
    opened = pipelines.open(ident, query.after)
    try:
        opened.check_rank(query.rank, query.world)
        coding = answer_coding(requested)
        etag = opened.etag(query.offset, query.rank, query.world, form, coding or "identity")
        headers = _headers(etag, form, coding, addressed=query.after is not None)
        if not_modified(requested, etag):
            return WholeAnswer(304, headers)
        data, more = _encoded(opened, query, form)
        if coding is not None:
            press = compressor(coding)
            data = press.compress(data, flush=False) + press.end()
        return WholeAnswer(200, {**headers, **more}, data)
    finally:
        opened.close()


def _headers(etag: str, form: str, coding: str | None, *, addressed: bool) -> dict[str, str]:
    """Headers that follow from the request alone.

    Args:
        etag: of the answer.
        form: of the batch.
        coding: compression of the answer.
        addressed: whether a token says which data the batch is of.
    """
    headers = {
        "Content-Type": MEDIA[form],
        "ETag": etag,
        "Cache-Control": _IMMUTABLE if addressed else "no-cache",
        "Vary": "Accept, Accept-Encoding",
    }
    if coding is not None:
        headers["Content-Encoding"] = coding
    return headers


def _encoded(opened: OpenPipeline, query: BatchQuery, form: str) -> tuple[bytes, dict[str, str]]:
    """The batch, and what the headers say of it.

    Raises:
        PositionError: there is no such batch.
    """
    state = opened.pipeline.skip(opened.start, query.offset)
    step = opened.pipeline.step(state, query.rank, query.world)
    if step is None:
        batches = opened.pipeline.batches
        raise PositionError(
            "the pipeline ends before that batch",
            hint=None if batches is None else f"It has {batches} batches",
        )
    batch = make_batch(opened, step)
    return encode_batch(opened, batch, form), batch_headers(batch)
