"""Sparse frames (raw_csr): recognised, so that the refusal can give the reason."""

from __future__ import annotations

from ..recording import FileInfo, Hints
from .format import Format
from .layout import Found
from .source import Source, extension


class RawCsr(Format):
    """A sparse matrix of frames by pixels, in three files and a TOML description.

    The size of a frame depends on its number of hits, and its values are in two files. A
    recording needs contiguous frames of equal size, so sparse frames cannot be one.
    """

    name = "raw_csr"
    extensions = ("toml",)
    description = "toml"
    names_its_files = True
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the format by the file type in the TOML."""
        return extension(file.name) == "toml" and b"raw_csr" in head.lower()

    def find(self, source: Source, hints: Hints) -> Found:  # noqa: ARG002 - see Format
        """Refuse the files.

        Raises:
            FormatError: always.
        """
        _, described = self.split(source)
        raise source.fault(
            described[0] if described else 0,
            "sparse frames (raw_csr) are not supported",
            hint="Write dense frames, for example with scipy.sparse and numpy.save",
        )
