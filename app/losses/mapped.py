"""Files of loss streams in memory, where their blocks can be read again at any place."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core.errors import InputError

from .sources import Source


class MappedStreams:
    """Regular files, mapped into memory: the pages that the system keeps of them, not copied.

    Args:
        sources: open files of a known size.

    Raises:
        OSError: a file cannot be mapped.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._words: list[npt.NDArray[np.int32]] = []
        for source in sources:
            size = source.size or 0
            octets = mmap.mmap(source.fd, size, prot=mmap.PROT_READ) if size else b""
            self._words.append(np.frombuffer(octets, np.int32, size // 4))

    def words(self, stream: int) -> npt.NDArray[np.int32]:
        """All words of a stream, by its index.

        Raises:
            InputError: the file is shorter or longer than it was when it was opened.
        """
        source = self._sources[stream]
        # Reading what is mapped beyond the end of a file would end the process.
        if os.fstat(source.fd).st_size != source.size:
            raise InputError("it changed while it was read", source=source.name)
        return self._words[stream]

    def name(self, stream: int) -> str:
        """What errors call a stream."""
        return self._sources[stream].name
