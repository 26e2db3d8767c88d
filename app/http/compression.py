"""Compress answers while they are being sent."""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

from backports.zstd import CompressionParameter, ZstdCompressor
from isal import isal_zlib

_WRAP_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1


class _Gzip:
    def __init__(self) -> None:
        self._stream: Any = isal_zlib.compressobj(_LEVEL, wbits=_WRAP_GZIP)

    def compress(self, data: bytes, *, flush: bool) -> bytes:
        """Compress the next bytes; with ``flush``, the client can decode all of them."""
        compressed: bytes = self._stream.compress(data)
        if flush:
            compressed += self._stream.flush(isal_zlib.Z_SYNC_FLUSH)
        return compressed

    def end(self) -> bytes:
        """Return the last compressed bytes."""
        compressed: bytes = self._stream.flush()
        return compressed


class _Zstd:
    def __init__(self) -> None:
        self._stream = ZstdCompressor(
            options={
                CompressionParameter.compression_level: _LEVEL,
                CompressionParameter.checksum_flag: 1,
            }
        )

    def compress(self, data: bytes, *, flush: bool) -> bytes:
        if flush:
            return self._stream.compress(data, ZstdCompressor.FLUSH_BLOCK)
        return self._stream.compress(data)

    def end(self) -> bytes:
        return self._stream.flush()


Compressor: TypeAlias = _Gzip | _Zstd
"""Compresses one answer."""
_COMPRESSORS: dict[str, type[Compressor]] = {"zstd": _Zstd, "gzip": _Gzip}

CODINGS = tuple(_COMPRESSORS)
"""Content codings of answers, in the server's order of preference."""


def compressor(coding: str) -> Compressor:
    """Return a compressor for one of CODINGS."""
    return _COMPRESSORS[coding]()
