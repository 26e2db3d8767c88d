"""Blocks that hold a file of a set open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .file_set import FileSet


class Hold:
    """Holds a file open for a block: a class, since a generator costs as much as a small read.

    Args:
        files: the set of the file.
        file: its index.
        look: whether to check first that the file is unchanged.
    """

    __slots__ = ("_file", "_files", "_look")

    def __init__(self, files: FileSet, file: int, *, look: bool) -> None:
        self._files = files
        self._file = file
        self._look = look

    def __enter__(self) -> int:
        descriptor = self._files.acquire(self._file)
        if self._look:
            try:
                self._files.look(self._file, descriptor)
            except BaseException:
                self._files.release(self._file)
                raise
        return descriptor

    def __exit__(self, *_: object) -> None:
        self._files.release(self._file)
