"""Files of loss streams in memory, where their blocks can be read again at any place."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engine.bus_errors import Watch, watch
from core.errors import InputError

from .sources import Source


class MappedStreams:
    """Regular files, mapped into memory: the pages that the system keeps of them, not copied.

    The maps are watched: a file that is cut while it is read is an error.

    Args:
        sources: open files of a known size.

    Raises:
        OSError: a file cannot be mapped.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._watches: list[Watch | None] = []
        self._words: list[npt.NDArray[np.int32]] = []
        for source in sources:
            size = source.size or 0
            octets = mmap.mmap(source.fd, size, prot=mmap.PROT_READ) if size else b""
            words = np.frombuffer(octets, np.int32, size // 4)
            self._words.append(words)
            self._watches.append(watch(words.ctypes.data, size) if size else None)

    def __del__(self) -> None:
        # The watches end before the addresses can belong to other maps.
        self._watches.clear()

    def words(self, stream: int) -> npt.NDArray[np.int32]:
        """All words of a stream, by its index.

        Raises:
            InputError: the file is shorter or longer than it was when it was opened.
        """
        source = self._sources[stream]
        if os.fstat(source.fd).st_size != source.size:
            raise InputError("it changed while it was read", source=source.name)
        return self._words[stream]

    def check(self, stream: int) -> None:
        """Check that what was read since ``words`` was there.

        Raises:
            InputError: the file was cut meanwhile, or its disk failed.
        """
        found = self._watches[stream]
        if found is not None and (missing := found.missing()) is not None:
            text = f"its bytes from {missing // mmap.PAGESIZE * mmap.PAGESIZE} on were missing"
            raise InputError(f"{text}: it was cut, or the disk failed", source=self.name(stream))

    def name(self, stream: int) -> str:
        """What errors call a stream."""
        return self._sources[stream].name
