"""Which format files are of, and the front door to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...errors import AmbiguousFormatError, FormatError
from ..recording import FileInfo, Format, Hints, RangeReader, Recording
from . import empad, frms6, mib, seq_companions, ser
from .blo import Blo
from .dm import Dm
from .k2is import K2is
from .mrc import Mrc
from .npy import Npy
from .raw import Raw
from .raw_csr import RawCsr
from .seq import Seq
from .source import extension
from .tvips import Tvips

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        fmt.name: fmt
        for fmt in (
            Raw(),
            Npy(),
            empad.Empad(),
            mib.Mib(),
            Tvips(),
            Seq(),
            Blo(),
            frms6.Frms6(),
            Mrc(),
            K2is(),
            RawCsr(),
            ser.Ser(),
            Dm(),
        )
    }
)
"""Every format, by its name in catalogues and requests."""

HEAD = 4096
"""Bytes of a file that are looked at."""

EXAMINED = 16
"""Frame files that are looked at; the others of a recording are like them."""

_EXTENSIONS = {"k2is": "bin", "raw_csr": "toml", "empad": "raw"}
_COMPANIONS: Mapping[str, Callable[[str], bool]] = {
    "mib": mib.is_companion,
    "frms6": frms6.is_companion,
    "empad": lambda _: True,
    "k2is": lambda name: extension(name) == "gtg",
    "raw_csr": lambda _: True,
    "seq": lambda name: seq_companions.kind_of(name) is not None,
    "ser": ser.is_companion,
}
_TEXTS = {"hdr", "xml", "toml"}


def _of_its_name(fmt: str, name: str) -> bool:
    return extension(name) == _EXTENSIONS.get(fmt, fmt)


def _explains(fmt: str, seen: Mapping[str, bool]) -> bool:
    """Whether each file is of a format by its content, its name, or as a companion."""
    companion = _COMPANIONS.get(fmt)
    return all(
        ok or _of_its_name(fmt, name) or (companion is not None and companion(name))
        for name, ok in seen.items()
    )


def detect(files: Sequence[FileInfo], reader: RangeReader) -> Format:
    """The format of files, by what they begin with; names only decide between several.

    Raises:
        AmbiguousFormatError: none or several fit.
    """
    texts = [i for i, file in enumerate(files) if extension(file.name) in _TEXTS]
    others = [i for i in range(len(files)) if i not in set(texts)]
    examined = [*texts[:EXAMINED], *others[:EXAMINED]]
    heads = {index: reader.read(index, 0, HEAD) for index in examined}
    seen = {
        name: {files[i].name: fmt.looks_like(files[i], head) for i, head in heads.items()}
        for name, fmt in FORMATS.items()
    }
    candidates = [name for name in FORMATS if any(seen[name].values())]
    if len(candidates) > 1:
        candidates = [n for n in candidates if _explains(n, seen[n])] or candidates
    if len(candidates) > 1:
        named = [n for n in candidates if any(_of_its_name(n, f) for f in seen[n])]
        candidates = named or candidates
    if len(candidates) == 1:
        return FORMATS[candidates[0]]
    source = files[0].name if files else None
    if candidates:
        raise AmbiguousFormatError(
            f"the files could be {' or '.join(candidates)}",
            source=source,
            offset=0,
            hint="Name the format",
        )
    raise AmbiguousFormatError(
        "no known format begins like this",
        source=source,
        offset=0,
        hint=f"Name the format, one of {', '.join(FORMATS)}; headerless files need dtype and "
        "sig_shape",
    )


class _Reordered:
    """The files of a reader in another order."""

    def __init__(self, reader: RangeReader, order: Sequence[int]) -> None:
        self._reader = reader
        self._order = order

    def read(self, file: int, start: int, stop: int) -> bytes:
        return self._reader.read(self._order[file], start, stop)


def understand(
    files: Sequence[FileInfo],
    reader: RangeReader,
    hints: Hints | None = None,
    *,
    name: str | None = None,
) -> Recording:
    """What is in these files, in whatever order they come.

    Without a ``name`` the format is detected. Files no format knows are taken as
    headerless when dtype and sig_shape are given. The extents of the answer count files
    as they were passed.

    Raises:
        AmbiguousFormatError: no format was named, and none or several fit.
        FormatError: the name is not one, or the files are damaged or contradict each other.
        ShapeError: the hints do not fit the data.
    """
    hints = hints or Hints()
    if not files:
        raise FormatError("a dataset without files", hint="Check its paths")
    if name is not None and name not in FORMATS:
        raise FormatError(f"no format is named {name!r}", hint=f"Known: {', '.join(FORMATS)}")
    if all(file.size == 0 for file in files) and not hints.growing:
        raise FormatError("the file is empty", source=files[0].name, offset=0)
    if name is None:
        try:
            fmt = detect(files, reader)
        except AmbiguousFormatError as error:
            if hints.dtype is None or hints.sig_shape is None or " or " in error.message:
                raise
            fmt = FORMATS["raw"]
    else:
        fmt = FORMATS[name]
    order = fmt.order([file.name for file in files])
    recording = fmt.understand([files[i] for i in order], _Reordered(reader, order), hints)
    extents = tuple(replace(extent, file=order[extent.file]) for extent in recording.extents)
    return replace(recording, extents=extents)
