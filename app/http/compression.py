"""Compressing answers as they are made."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

from backports.zstd import CompressionParameter, ZstdCompressor
from isal import isal_zlib

_WRAP_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1


class Compressor(Protocol):
    """Compresses one answer."""

    def compress(self, data: bytes, *, flush: bool) -> bytes:
        """The next bytes; ``flush`` if the client is to be able to read them at once."""

    def end(self) -> bytes:
        """The last bytes."""


class _Gzip:
    def __init__(self) -> None:
        self._stream: Any = isal_zlib.compressobj(_LEVEL, wbits=_WRAP_GZIP)

    def compress(self, data: bytes, *, flush: bool) -> bytes:
        made: bytes = self._stream.compress(data)
        if flush:
            made += self._stream.flush(isal_zlib.Z_SYNC_FLUSH)
        return made

    def end(self) -> bytes:
        made: bytes = self._stream.flush()
        return made


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


_MAKERS: dict[str, type[_Gzip | _Zstd]] = {"zstd": _Zstd, "gzip": _Gzip}

CODINGS = tuple(_MAKERS)
"""What answers can be compressed with, the best first."""


def compressor(coding: str) -> Compressor:
    """A compressor for one of CODINGS."""
    return _MAKERS[coding]()
