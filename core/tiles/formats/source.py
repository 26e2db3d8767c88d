"""Reading the headers of a recording's files, with errors that name file and byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...errors import FormatError
from ..recording import FileInfo, RangeReader

TEXT_LIMIT = 1 << 20
"""Bytes of a companion file in text form; the largest seen have about 20 KiB."""

GROWING_HINT = (
    "If the file is still being written, declare the dataset growing; "
    "else copy it again from where it came"
)

_DIGITS = re.compile("([0-9]+)")


class Source:
    """The files of a recording and the way to read them."""

    def __init__(self, files: Sequence[FileInfo], reader: RangeReader) -> None:
        self.files = files
        self._reader = reader

    def fault(
        self, file: int, message: str, *, offset: int = 0, hint: str | None = None
    ) -> FormatError:
        """An error at a byte of a file, to be raised."""
        return FormatError(message, source=self.files[file].name, offset=offset, hint=hint)

    def exactly(self, file: int, start: int, size: int, what: str) -> bytes:
        """These bytes, all of them.

        Raises:
            FormatError: the file ends before.
        """
        data = self._reader.read(file, start, start + size)
        if len(data) != size:
            raise self.fault(
                file,
                f"the file ends inside {what}: {len(data)} of {size} bytes are there",
                offset=min(start + len(data), self.files[file].size),
                hint=GROWING_HINT,
            )
        return data

    def text(self, file: int, encoding: str = "utf-8") -> str:
        """A whole companion file; bytes that are no text become replacement characters.

        Raises:
            FormatError: it is larger than such files are.
        """
        return self.octets(file).decode(encoding, errors="replace")

    def octets(self, file: int) -> bytes:
        """A whole companion file, as bytes.

        Raises:
            FormatError: it is larger than such files are.
        """
        size = self.files[file].size
        if size > TEXT_LIMIT:
            raise self.fault(
                file,
                f"a companion file of {size} bytes; at most {TEXT_LIMIT} are read",
                offset=TEXT_LIMIT,
                hint="Check that it is what its name says",
            )
        return self.exactly(file, 0, size, "the companion file")


def extension(name: str) -> str:
    """What follows the last dot, in lower case, or nothing."""
    return name.rpartition(".")[2].lower() if "." in name else ""


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts runs of digits by their value, of any length."""
    key = []
    for part in _DIGITS.split(name):
        digits = part.isascii() and part.isdigit()
        value = part.lstrip("0") if digits else part
        key.append((0, len(value), value) if digits else (1, 0, value))
    return key


def numeric_order(
    names: Sequence[str], is_companion: Callable[[str], bool] = lambda _: False
) -> list[int]:
    """Indices of names by the numbers in them; companion files come last."""

    def key(index: int) -> tuple[bool, list[tuple[int, int, str]], str]:
        return is_companion(names[index]), _natural(names[index]), names[index]

    return sorted(range(len(names)), key=key)


def only(source: Source, indices: Sequence[int], what: str) -> int:
    """The one file of a kind of which there must be exactly one.

    Raises:
        FormatError: there is none, or more than one.
    """
    if not indices:
        raise FormatError(f"there is no {what}", hint=f"Add the {what} to the dataset's files")
    if len(indices) > 1:
        raise source.fault(
            indices[1],
            f"a second {what}, besides {source.files[indices[0]].name}",
            hint="Make a dataset of each",
        )
    return indices[0]
