"""Opening datasets: frames stored back to back, arrays stored in chunks, or items.

A detector that packs its pixels in a way no format here knows needs only a function of the
operator's for one frame, of an installed module, named in the catalogue file; files, selections,
corrections and streams are as for every other dataset. The function is code that runs in this
process, so only the operator can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from app.decoding.base import Decoders
from app.errors import InvalidOptionError
from core.errors import AmbiguousFormatError, FormatError, names_hint
from core.tiles.chunked import ArrayFrames
from core.tiles.formats import FORMATS, parse
from core.tiles.formats.arrays import BlockArray, are_located, recording_of, with_frames
from core.tiles.packing import Decoder, make_decoder
from core.tiles.recording import Hints, Recording

from .files.file_set import FileSet, on_error
from .files.fingerprints import fingerprint, store_fingerprint
from .files.foreign import required
from .files.hdf5 import open_hdf5
from .files.object_set import ObjectTop
from .files.places import bucket_directory, open_files
from .files.roots import FileMissingError, Roots
from .files.seekable import Cursors
from .files.zarr_files import DirectoryTop, Store, StoredArray, open_store
from .files.zarr_source import open_zarr
from .items.lines import LineItems
from .items.losses import LossItems
from .items.segments import Items
from .items.tables import TableItems
from .spec import ITEM_FORMATS, DatasetSpec

DecoderKey = tuple[str, str, tuple[int, ...], int]
"""A function, and dtype, shape and stored bytes of the frames that it decodes."""


def find_function(reference: str) -> Callable[..., None]:
    """Import a function by ``module:function``.

    Raises:
        InvalidOptionError: there is none.
    """
    module, _, name = reference.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as e:  # the operator's module may raise anything
        raise _invalid(reference, f"cannot be imported: {e}") from e
    if not callable(function):
        raise _invalid(reference, "is not a function")
    found: Callable[..., None] = function
    return found


def hints_of(spec: DatasetSpec) -> Hints:
    """Return hints by which packed frames are found: each as a row of bytes."""
    assert spec.frame_bytes is not None  # noqa: S101 - required with a decoder
    return replace(spec.hints, dtype=np.dtype("u1"), sig_shape=(spec.frame_bytes,))


def decoded(recording: Recording, spec: DatasetSpec) -> Recording:
    """Describe rows of bytes, found with ``hints_of``, as the frames they decode to."""
    assert spec.sig_shape is not None  # noqa: S101 - required with a decoder
    assert spec.dtype is not None  # noqa: S101 - likewise
    return replace(
        recording,
        sig_shape=spec.sig_shape,
        dtype=np.dtype(spec.dtype).newbyteorder("="),
        stored=None,
        decoder=spec.decoder,
        axes=(),
    )


def decoder_key(spec: DatasetSpec) -> DecoderKey | None:
    """Return what the decoder of an entry depends on; None if it names none."""
    if spec.decoder is None or spec.dtype is None or spec.sig_shape is None:
        return None
    assert spec.frame_bytes is not None  # noqa: S101 - required with a decoder
    return spec.decoder, spec.dtype, spec.sig_shape, spec.frame_bytes


def own_decoder(reference: str, dtype: str, sig_shape: tuple[int, ...], size: int) -> Decoder:
    """Make a decoder and decode a frame of zeros: a fault shows before data is read.

    Raises:
        InvalidOptionError: there is no such function, or it fails to compile or to decode it.
    """
    function = find_function(reference)
    decoder = make_decoder(
        reference, np.dtype(dtype).newbyteorder("="), lambda _shape: size, function
    )
    pixels: np.ndarray[Any, np.dtype[Any]] = np.zeros((1, int(np.prod(sig_shape))), decoder.dtype)
    try:
        decoder.decode(np.zeros(size, np.uint8), size, pixels, sig_shape)
    except Exception as e:  # so may the operator's function
        lines = str(e).strip().splitlines() or [type(e).__name__]
        raise _invalid(reference, f"cannot decode a frame of zeros: {lines[-1][:200]}") from e
    return decoder


def _invalid(reference: str, problem: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"decoder {reference!r} {problem}",
        hint="Name a function(raw, out, sig_shape) that numba can compile, of an installed module",
        option="decoder",
    )


HDF5, ZARR, RAW = "hdf5", "zarr", "raw"
ARRAY_FORMATS = (HDF5, ZARR)
"""Formats whose files hold named arrays, which isolated processes decode."""
_ITEMS = {"parquet": b"PAR1", "arrow": b"ARROW1"}
"""What files of items begin with, whose format has to be named."""
_TEXTS = {"csv", "tsv", "txt"}
_CONVERT = (
    "Convert text: to parquet, or by numpy.loadtxt and numpy.save to npy; or have each line as an"
    ' item, by "format": "lines"'
)
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_HDF5_OFFSETS = (0, 512, 1024, 2048, 4096, 8192)
"""Offsets the magic can begin at: other data may precede an HDF5 file."""


@dataclass(frozen=True, slots=True)
class Source:
    """The open files of an array dataset, and the layout of their contents."""

    files: FileSet
    recording: Recording
    arrays: tuple[BlockArray, ...]
    """Arrays to decode frames from; empty if frames lie in the files one by one."""
    decoder: Decoder | None = None
    """Decoder of packed frames, if it is the operator's own."""

    def array_frames(self) -> ArrayFrames:
        """Return a new source of frames decoded from the arrays, for one thread."""
        return ArrayFrames(self.arrays, len(self.recording.sig_shape))

    def fingerprint(self) -> bytes:
        """Compute the fingerprint of the files, 8 bytes.

        Raises:
            DataChangedError: a file changed since it was opened.
            ReadFailedError: the disk failed.
        """
        if isinstance(self.files, Store):
            return store_fingerprint(self.files, self.files.metadata)
        return fingerprint(self.files)


def open_items(
    roots: Roots,
    spec: DatasetSpec,
    decoders: Decoders | None = None,
    cursors: Cursors | None = None,
) -> tuple[FileSet, Items]:
    """Open the files of an item dataset and index their items; the caller closes the files.

    Args:
        roots: the directories that files may lie in.
        spec: the catalogue entry.
        decoders: read tables; None refuses them.
        cursors: keep where readers of compressed files stopped.

    Raises:
        CoreError, ServiceError: the files cannot be opened or understood.
    """
    patterns = list(spec.files) if spec.glob is None else [spec.glob]
    files = open_files(roots, patterns, growing=spec.growing)
    form = spec.format or ""
    with on_error(files.close):
        if form == "loss":
            return files, LossItems(files, spec.float_width or 4)
        if form == "lines":
            return files, LineItems(files, cursors)
        return files, TableItems(files, form, required(decoders, form))


def open_array(
    roots: Roots, spec: DatasetSpec, decoder: Decoder | None, decoders: Decoders | None = None
) -> Source:
    """Open the files of an array dataset; the caller closes them.

    Args:
        roots: the directories that files may lie in.
        spec: the catalogue entry.
        decoder: what its ``decoder`` names, if it does.
        decoders: read foreign formats; None refuses them.

    Raises:
        CoreError, ServiceError: the files cannot be opened or understood.
    """
    patterns = list(spec.files) if spec.glob is None else [spec.glob]
    if decoder is None:
        return open_recording(
            roots, patterns, spec.hints, decoders=decoders, form=spec.format, array=spec.array
        )
    source = open_recording(roots, patterns, hints_of(spec), decoders=decoders, form=RAW)
    return replace(source, recording=decoded(source.recording, spec), decoder=decoder)


def open_recording(  # noqa: PLR0913 - parts of a catalogue entry
    roots: Roots,
    patterns: Sequence[str],
    hints: Hints,
    *,
    decoders: Decoders | None = None,
    form: str | None = None,
    array: str | None = None,
) -> Source:
    """Open the files that paths and patterns name; the caller closes them.

    Args:
        roots: the directories that files may lie in.
        patterns: paths or patterns of files, or the path of one zarr store.
        hints: what the owner declares of the data.
        decoders: read HDF5 and zarr; None refuses them.
        form: name of the format; None to detect it.
        array: path of the array, in formats that hold several.

    Raises:
        CoreError, ServiceError: the files cannot be opened or understood.
    """
    files: FileSet
    stored = None
    top = roots.directory(patterns[0]) if len(patterns) == 1 and roots.roots else None
    if top is not None:
        files, stored = open_store(DirectoryTop(roots, top), array)
    else:
        try:
            files = open_files(roots, patterns, growing=hints.growing)
        except FileMissingError:
            found = bucket_directory(roots, patterns[0]) if len(patterns) == 1 else None
            if found is None:
                raise
            files, stored = open_store(ObjectTop(*found), array)
    with on_error(files.close):
        return parse_source(files, stored, hints, decoders=decoders, form=form, array=array)


def _of_items(files: FileSet, error: AmbiguousFormatError) -> AmbiguousFormatError:
    """Return a better error for files that no format of arrays recognises, if they are items."""
    head = files.read(0, 0, 6) if len(files) else b""
    for form, magic in _ITEMS.items():
        if head.startswith(magic):
            return AmbiguousFormatError(
                f"the file is a {form} file, whose rows only pipelines read",
                source=error.source,
                hint=f'Add "format": "{form}"',
            )
    hint = f"{error.hint}; files of items are {', '.join(ITEM_FORMATS)}, arrays {HDF5} or {ZARR}"
    if str(error.source).lower().rpartition(".")[2] in _TEXTS:
        hint = _CONVERT
    return AmbiguousFormatError(error.message, source=error.source, offset=error.offset, hint=hint)


def parse_source(  # noqa: PLR0913 - parts of a catalogue entry
    files: FileSet,
    stored: StoredArray | None,
    hints: Hints,
    *,
    decoders: Decoders | None = None,
    form: str | None = None,
    array: str | None = None,
) -> Source:
    """Determine the layout of the array in open files.

    Args:
        files: all files of the dataset.
        stored: metadata of the array, if the files are a zarr store.
        hints: what the owner declares of the data.
        decoders: read HDF5 and zarr; None refuses them.
        form: name of the format; None to detect it.
        array: path of the array, in formats that hold several.

    Raises:
        CoreError, ServiceError: the files cannot be understood, or there is no such format.
    """
    arrays: tuple[BlockArray, ...]
    notes: list[str] = []
    known = (*FORMATS, *ARRAY_FORMATS, *ITEM_FORMATS)
    if form is not None and form not in known:
        problem, hint = f"no format is named {form[:40]!r}", names_hint(form, known)
        if form.lower() in _TEXTS:
            hint = _CONVERT
        raise InvalidOptionError(problem, hint=hint, option="format")
    if stored is not None and isinstance(files, Store):
        if form not in {None, ZARR}:
            raise FormatError(
                f"a directory cannot be a {form} dataset",
                hint="Name the files, or omit the format",
                source=files.top.name,
            )
        form, arrays = ZARR, (open_zarr(files, stored, required(decoders, ZARR)),)
    elif form == HDF5 or (form is None and is_hdf5(files)):
        reader = required(decoders, HDF5)
        opened = [open_hdf5(files, file, array, reader) for file in range(len(files))]
        form, arrays = HDF5, tuple(opened)
        notes = [note for each in opened for note in each.notes]
    elif form == ZARR:
        raise FormatError(
            "a zarr store is a single directory", hint="Name the directory and nothing else"
        )
    elif array is not None:
        raise InvalidOptionError(
            f"array applies only to {' and '.join(ARRAY_FORMATS)}",
            hint="Omit array",
            option="array",
        )
    else:
        try:
            return Source(files, parse(files.infos, files, hints, name=form), ())
        except AmbiguousFormatError as e:
            raise _of_items(files, e) from e
    if hints.growing:
        raise FormatError(
            f"a growing dataset cannot be {form}", hint="Register it once it is complete"
        )
    arrays = tuple(with_frames(array, hints.sig_shape) for array in arrays)
    recording = recording_of(form, files.infos, arrays, hints)
    recording = replace(recording, notes=(*recording.notes, *notes))
    return Source(files, recording, () if are_located(arrays, recording.sig_shape) else arrays)


def is_hdf5(files: FileSet) -> bool:
    """Whether the first file is HDF5, at any of the offsets the format allows."""
    length = len(_HDF5_MAGIC)
    return any(files.read(0, at, at + length) == _HDF5_MAGIC for at in _HDF5_OFFSETS)
