"""File formats: they locate the frames of a recording in its files.

Each format is a module with a subclass of :class:`~.format.Format`. The table below is the only
place that lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...errors import AmbiguousFormatError, FormatError, names_hint
from ..packing import Decoder
from ..recording import FileInfo, Hints, RangeReader, Recording
from .blo import Blo
from .dm import Dm
from .empad import Empad
from .files import GROWING_HINT, WHOLE_HINT, extension
from .format import Format
from .frms6 import Frms6
from .k2is import K2is
from .mib import Mib
from .mrc import Mrc
from .npy import Npy
from .raw import Raw, RawCsr
from .seq import Seq
from .ser import Ser
from .tvips import Tvips

__all__ = ["DECODERS", "FORMATS", "Format", "check_headerless", "detect", "parse"]

_FORMATS: tuple[Format, ...] = (
    *(Raw(), Npy(), Empad(), Mib(), Tvips(), Seq(), Blo()),
    *(Frms6(), Mrc(), K2is(), RawCsr(), Ser(), Dm()),
)

FORMATS: Mapping[str, Format] = MappingProxyType({form.name: form for form in _FORMATS})
"""All formats, by their name in catalogues and requests."""

DECODERS: Mapping[str, Decoder] = MappingProxyType(
    {decoder.name: decoder for form in _FORMATS for decoder in form.decoders}
)
"""All decoders of packed pixels, by the name used in recordings."""

HEAD = 4096
"""Number of bytes read from each examined file."""

EXAMINED = 16
"""Maximum number of frame files examined; the other files of a recording are alike."""

_FOREIGN = {
    b"\x1f\x8b\x08": "compressed with gzip",
    b"PK\3\4": "a zip archive, as npz files are",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x89PNG": "a PNG picture",
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
}
"""How files begin that hold others, or pixels in a form that is not read."""
_OWN = {b"\x89HDF": "hdf5", b"PAR1": "parquet", b"ARROW1": "arrow"} | {
    form.magic: form.name for form in FORMATS.values() if form.magic
}
"""How files of formats begin that have a magic string."""
_UNPACK = "Unpack or convert it, such as with numpy.save: frames are read where they lie"

_DESCRIPTIONS = {form.description for form in FORMATS.values()}


def detect(files: Sequence[FileInfo], reader: RangeReader) -> Format:
    """Detect the format of files by their first bytes, then by name if several fit.

    Raises:
        AmbiguousFormatError: no format or several fit.
    """
    return _only(_candidates(files, reader), files, reader)


def check_headerless(files: Sequence[FileInfo], reader: RangeReader) -> None:
    """Check that files do not begin like those of a known kind.

    Raises:
        AmbiguousFormatError: one does, so that its bytes are hardly frames without a header.
    """
    for index, file in enumerate(files[:EXAMINED]):
        head = reader.read(index, 0, 8)
        foreign = [text for magic, text in _FOREIGN.items() if head.startswith(magic)]
        own = [name for magic, name in _OWN.items() if head.startswith(magic)]
        if foreign or own:
            todo = f'Name its format: "{own[0]}"' if own else _UNPACK
            raise AmbiguousFormatError(
                f"it is {foreign[0] if foreign else f'a file of the format {own[0]}'}",
                source=file.name,
                offset=0,
                hint=f'{todo}. Bytes that only look so need "format": "raw" and "file_header"',
            )


def _candidates(files: Sequence[FileInfo], reader: RangeReader) -> list[Format]:
    """Formats that the files can be of, the fewest that content and names leave."""
    texts = [i for i, file in enumerate(files) if extension(file.name) in _DESCRIPTIONS]
    others = [i for i in range(len(files)) if i not in set(texts)]
    examined = [*texts[:EXAMINED], *others[:EXAMINED]]
    heads = {index: reader.read(index, 0, HEAD) for index in examined}
    seen = {
        name: {files[i].name: form.looks_like(files[i], head) for i, head in heads.items()}
        for name, form in FORMATS.items()
    }
    candidates = [name for name in FORMATS if any(seen[name].values())]
    if len(candidates) > 1:
        candidates = [n for n in candidates if _explains(FORMATS[n], seen[n])] or candidates
    if len(candidates) > 1:
        named = [n for n in candidates if any(FORMATS[n].has_name(f) for f in seen[n])]
        candidates = named or candidates
    return [FORMATS[name] for name in candidates]


def _only(candidates: Sequence[Format], files: Sequence[FileInfo], reader: RangeReader) -> Format:
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and files:
        check_headerless(files, reader)
    source = files[0].name if files else None
    if candidates:
        raise AmbiguousFormatError(
            f"the files could be {' or '.join(form.name for form in candidates)}",
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


def _explains(form: Format, seen: Mapping[str, bool]) -> bool:
    """Whether each file fits a format, by its contents or by its name."""
    return all(fits or form.explains(name) for name, fits in seen.items())


def parse(
    files: Sequence[FileInfo],
    reader: RangeReader,
    hints: Hints | None = None,
    *,
    name: str | None = None,
) -> Recording:
    """Describe the recording in some files; see :meth:`.Format.parse` on their order.

    Args:
        files: the files.
        reader: reader of their bytes.
        hints: properties declared by the owner.
        name: name of the format; None to detect it. Files that no format recognises are read
            as headerless if the hints give dtype and sig_shape.

    Returns:
        The recording. Its extents number the files as they were passed.

    Raises:
        AmbiguousFormatError: no format was named, and none or several fit.
        FormatError: the name is unknown, or the files are damaged or contradict each other.
        ShapeError: the hints do not fit the data.
    """
    hints = hints or Hints()
    if not files:
        raise FormatError("a dataset without files", hint="Check the paths of the dataset")
    if name is not None and name not in FORMATS:
        raise FormatError(f"no format is named {name!r}", hint=names_hint(name, FORMATS))
    if all(file.size == 0 for file in files) and not hints.growing:
        raise FormatError("the file is empty", source=files[0].name, offset=0)
    if name is None:
        candidates = _candidates(files, reader)
        described = hints.dtype is not None and hints.sig_shape is not None
        form = FORMATS["raw"] if described and not candidates else _only(candidates, files, reader)
    else:
        form = FORMATS[name]
    try:
        return form.parse(files, reader, hints)
    except FormatError as e:
        if hints.growing and e.hint == GROWING_HINT:
            e.hint = WHOLE_HINT
        if name not in {None, "raw"} and form not in _candidates(files, reader):
            e.hint = f"Is the format {name}? The file does not look like it. {e.hint or ''}".strip()
        raise
