"""Opening what a dataset is made of: frames that lie in files, or arrays in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import InvalidOptionError
from core.errors import FormatError
from core.tiles.formats.detect import understand
from core.tiles.recording import Hints, Recording

from .files.arrays import ArrayFrames, BlockArray, recording_of
from .files.file_set import FileSet
from .files.fingerprints import fingerprint, store_fingerprint
from .files.roots import Roots
from .files.zarr_files import StoredArray, StoreFiles, open_store
from .items.base import Items
from .items.lines import LineItems
from .items.losses import LossItems
from .items.tables import TableItems
from .spec import DatasetSpec

HDF5, ZARR = "hdf5", "zarr"
ARRAY_FORMATS = (HDF5, ZARR)
"""Formats of arrays with a name in the file, besides those of the engine."""
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_HDF5_AT = (0, 512, 1024, 2048, 4096, 8192)
"""Bytes the magic can begin at: something else may lie before it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The open files of a dataset, and what is in them."""

    files: FileSet
    recording: Recording
    arrays: tuple[BlockArray, ...]
    """What the frames are read from; empty if they lie in the files as the recording says."""

    def array_frames(self) -> ArrayFrames:
        """A source of frames out of the arrays, for one thread."""
        return ArrayFrames(self.arrays, len(self.recording.sig_shape))

    def fingerprint(self) -> bytes:
        """8 bytes; other bytes if a file changes.

        Raises:
            DataChangedError: a file changed since it was opened.
            ReadFailedError: the disk failed.
        """
        if isinstance(self.files, StoreFiles):
            return store_fingerprint(self.files, self.files.described)
        return fingerprint(self.files)


def open_items(roots: Roots, spec: DatasetSpec) -> tuple[FileSet, Items]:
    """The files of a dataset of items, and what is in them; the caller closes them.

    Raises:
        CoreError, ServiceError: what is wrong with the files.
    """
    patterns = list(spec.files) if spec.glob is None else [spec.glob]
    files = FileSet(roots.expand(patterns), roots.open, growing=spec.growing)
    try:
        return files, _items(files, spec)
    except BaseException:
        files.close()
        raise


def _items(files: FileSet, spec: DatasetSpec) -> Items:
    if spec.format == "loss":
        return LossItems(files, spec.float_width or 4)
    if spec.format == "lines":
        return LineItems(files)
    return TableItems(files, spec.format or "")


def open_recording(
    roots: Roots,
    patterns: Sequence[str],
    hints: Hints,
    *,
    form: str | None = None,
    array: str | None = None,
) -> Source:
    """The files some paths and patterns name, and what is in them; the caller closes them.

    Args:
        roots: the only places files may lie in.
        patterns: files, or one directory that is a store of arrays.
        hints: what the owner says.
        form: name of the format; None to find out by content.
        array: which array of the file, where it can have several.

    Raises:
        CoreError, ServiceError: what is wrong with the files.
    """
    top = roots.directory(patterns[0]) if len(patterns) == 1 else None
    files: FileSet
    stored = None
    if top is not None:
        files, stored = open_store(roots, top, array)
    else:
        files = FileSet(roots.expand(patterns), roots.open, growing=hints.growing)
    try:
        return understand_source(files, stored, hints, form=form, array=array)
    except BaseException:
        files.close()
        raise


def understand_source(
    files: FileSet,
    stored: StoredArray | None,
    hints: Hints,
    *,
    form: str | None = None,
    array: str | None = None,
) -> Source:
    """What is in open files; see open_recording.

    Args:
        files: all files of the dataset.
        stored: what is known of the array, if they are a store.
        hints: what the owner says.
        form: name of the format; None to find out by content.
        array: which array of the file, where it can have several.

    Raises:
        CoreError, ServiceError: what is wrong with the files.
    """
    arrays: tuple[BlockArray, ...]
    if stored is not None and isinstance(files, StoreFiles):
        if form not in {None, ZARR}:
            raise FormatError(f"a directory is no {form} dataset", source=files.top.name)
        form, arrays = ZARR, (_zarr(files, stored),)
    elif form == HDF5 or (form is None and is_hdf5(files)):
        form, arrays = HDF5, _hdf5(files, array)
    elif form == ZARR:
        raise FormatError("a zarr store is one directory", hint="Name the directory alone")
    elif array is not None:
        raise InvalidOptionError(
            f"array is for {' and '.join(ARRAY_FORMATS)}", hint="Leave it out", option="array"
        )
    else:
        return Source(files, understand(files.infos, files, hints, name=form), ())
    if hints.growing:
        raise FormatError(
            f"{form} cannot be read while it grows", hint="Register it when it is whole"
        )
    recording = recording_of(form, files, arrays, hints)
    plain = all(each.offset is not None for each in arrays)
    return Source(files, recording, () if plain else arrays)


def is_hdf5(files: FileSet) -> bool:
    """Whether the first file begins as HDF5 does, perhaps behind something else."""
    magic = len(_HDF5_MAGIC)
    return any(files.read(0, at, at + magic) == _HDF5_MAGIC for at in _HDF5_AT)


def _hdf5(files: FileSet, array: str | None) -> tuple[BlockArray, ...]:
    try:
        from .files.hdf5 import open_hdf5  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise _missing("h5py", HDF5) from e
    return tuple(open_hdf5(files, file, array) for file in range(len(files)))


def _zarr(files: StoreFiles, stored: StoredArray) -> BlockArray:
    try:
        from .files.zarr_source import open_zarr  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise _missing("zarr", ZARR) from e
    return open_zarr(files, stored)


def _missing(package: str, extra: str) -> FormatError:
    return FormatError(
        f"{extra} files are read with the package {package}, which is not installed",
        hint=f"Install the extra {extra}: pip install 'thalweg-server[{extra}]'",
    )
