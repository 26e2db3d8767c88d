"""The decoders that tests share: worker processes, as the service has them."""

from __future__ import annotations

from multiprocessing.util import Finalize

from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool
from tests.side_by_side import AT_START

DECODERS = DecoderPool.__new__(DecoderPool)


def _begin() -> None:
    """Have workers of this process: what was made before it was forked counts those of all."""
    DECODERS.__init__(DecoderLimits(workers=2))  # type: ignore[misc]
    Finalize(None, DECODERS.close, exitpriority=0)


_begin()
AT_START.append(_begin)
