"""A digest of content that continues from a state of 16 bytes, wherever a stream was cut.

A stream comes in many requests, to many processes, and hash functions do not give their
state away. So the digest is a chain over groups of a fixed size, whatever the requests were:

    chain k = xxh3(chain k-1 | group k)          total = xxh3(chain of whole groups | the rest)

To go on after a cut, the bytes since the last whole group are read again.
"""

from __future__ import annotations

import xxhash

from ..records import ContentDigest

GROUP = 4 << 20
"""Bytes of a group."""
_START = bytes(16)


class ContentHasher:
    """Digests the bytes of one stream.

    Args:
        digest: of the bytes before; None at the beginning.
        offset: number of these bytes. The first bytes to be added are those from
            :attr:`start` on.
    """

    def __init__(self, digest: ContentDigest | None = None, offset: int = 0) -> None:
        self.start = offset - offset % GROUP
        """Offset of the first byte of the unfinished group."""
        self._chain = _START if digest is None else bytes.fromhex(digest.chain)
        self._hash = xxhash.xxh3_128(self._chain)
        self._left = GROUP

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        at = 0
        while at < len(data):
            part = data[at : at + self._left]
            self._hash.update(part)
            at += len(part)
            self._left -= len(part)
            if not self._left:
                self._chain = self._hash.digest()
                self._hash = xxhash.xxh3_128(self._chain)
                self._left = GROUP

    def digest(self) -> ContentDigest:
        """Return the digest of all bytes so far."""
        return ContentDigest(self._chain.hex(), self._hash.hexdigest())
