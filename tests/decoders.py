"""The decoders that tests share: worker processes, as the service has them."""

from __future__ import annotations

import atexit

from app.decoding.base import DecoderLimits
from app.decoding.pool import DecoderPool

DECODERS = DecoderPool(DecoderLimits(workers=2))
atexit.register(DECODERS.close)
