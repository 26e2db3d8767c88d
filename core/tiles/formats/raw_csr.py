"""Sparse frames in three files and a TOML: recognised, and refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from ..recording import FileInfo, Hints, RangeReader, Recording
from .format import Format
from .source import Source, extension


class RawCsr(Format):
    """A sparse matrix of frames by pixels.

    A frame has as many bytes as it has hits, and they lie in two files. A recording
    holds frames of one size in one piece, so these cannot be one.
    """

    name = "raw_csr"
    extensions = ("toml",)
    description = "toml"
    names_its_files = True
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """By the file type that the TOML names."""
        return extension(file.name) == "toml" and b"raw_csr" in head.lower()

    def understand(
        self,
        files: Sequence[FileInfo],
        reader: RangeReader,
        hints: Hints,  # noqa: ARG002 - see Format
    ) -> Recording:
        """Refuse.

        Raises:
            FormatError: always.
        """
        described = [i for i in range(len(files)) if extension(files[i].name) == "toml"]
        raise Source(files, reader).fault(
            described[0] if described else 0,
            "sparse frames (raw_csr) are not supported",
            hint="Write dense frames, for example with scipy.sparse and numpy.save",
        )
