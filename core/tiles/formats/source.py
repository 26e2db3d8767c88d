"""Access to headers and companion files, with errors that name the file and the byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...errors import FormatError
from ..recording import FileInfo, RangeReader

TEXT_LIMIT = 1 << 20
"""Maximum size of a companion file in bytes; the largest seen have about 20 KiB."""

GROWING_HINT = (
    "If the file is still being written, declare the dataset growing; "
    "otherwise copy it again from its source"
)

_DIGITS = re.compile("([0-9]+)")


class Source:
    """The files of a recording, and a reader for them."""

    def __init__(self, files: Sequence[FileInfo], reader: RangeReader) -> None:
        self.files = files
        self.reader = reader

    def fault(
        self, file: int, message: str, *, offset: int = 0, hint: str | None = None
    ) -> FormatError:
        """Create an error at a byte of a file, for the caller to raise."""
        return FormatError(message, source=self.files[file].name, offset=offset, hint=hint)

    def exactly(self, file: int, start: int, size: int, label: str) -> bytes:
        """Read exactly ``size`` bytes; ``label`` names them in the error.

        Raises:
            FormatError: the file ends before them.
        """
        data = self.reader.read(file, start, start + size)
        if len(data) != size:
            raise self.fault(
                file,
                f"the file ends inside {label}: {len(data)} of {size} bytes are present",
                offset=min(start + len(data), self.files[file].size),
                hint=GROWING_HINT,
            )
        return data

    def text(self, file: int, encoding: str = "utf-8") -> str:
        """Read a whole companion file as text; undecodable bytes become U+FFFD.

        Raises:
            FormatError: the file is larger than ``TEXT_LIMIT``.
        """
        return self.octets(file).decode(encoding, errors="replace")

    def octets(self, file: int) -> bytes:
        """Read a whole companion file as bytes.

        Raises:
            FormatError: the file is larger than ``TEXT_LIMIT``.
        """
        size = self.files[file].size
        if size > TEXT_LIMIT:
            raise self.fault(
                file,
                f"a companion file of {size} bytes; at most {TEXT_LIMIT} are read",
                offset=TEXT_LIMIT,
                hint="Check that the file is what its name suggests",
            )
        return self.exactly(file, 0, size, "the companion file")


def extension(name: str) -> str:
    """Return the part of a name after its last dot, in lower case; empty without a dot."""
    return name.rpartition(".")[2].lower() if "." in name else ""


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares runs of digits, of any length, by value."""
    key = []
    for part in _DIGITS.split(name):
        digits = part.isascii() and part.isdigit()
        value = part.lstrip("0") if digits else part
        key.append((0, len(value), value) if digits else (1, 0, value))
    return key


def numeric_order(
    names: Sequence[str], is_companion: Callable[[str], bool] = lambda _: False
) -> list[int]:
    """Return indices that sort names by the numbers in them, companion files last."""

    def key(index: int) -> tuple[bool, list[tuple[int, int, str]], str]:
        return is_companion(names[index]), _natural(names[index]), names[index]

    return sorted(range(len(names)), key=key)


def only(source: Source, indices: Sequence[int], label: str) -> int:
    """Return the only index; ``label`` names the kind of file in errors.

    Raises:
        FormatError: there is no such file, or more than one.
    """
    if not indices:
        raise FormatError(f"there is no {label}", hint=f"Add the {label} to the dataset's files")
    if len(indices) > 1:
        raise source.fault(
            indices[1],
            f"a second {label}, besides {source.files[indices[0]].name}",
            hint="Register each file as a dataset of its own",
        )
    return indices[0]
