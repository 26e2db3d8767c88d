"""Datasets that grow, as they were: pinned to a number of frames, whatever came since.

A recording is read while it is written. Who has a plan of its first frames, or a token after some
of them, means these and no others, so their fingerprint covers the bytes of these alone::

    file      |frame 0|frame 1|frame 2|frame 3|fra
    pinned to 3       |---- covered ----------|      as long as these bytes stay, the pin holds
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.errors import DataChangedError
from core.tiles.formats import FORMATS
from core.tiles.recording import Extent, Recording

from .files.file_set import FileSet
from .files.fingerprints import prefix_fingerprint
from .opened import OpenDataset, Opened

_FINGERPRINT_SIZE = 8


def pin(dataset: OpenDataset, frames: int | None = None) -> OpenDataset:
    """Return a growing array as it was with so many frames, over the same open files.

    Args:
        dataset: the array.
        frames: in its files; None for those there are.

    Raises:
        DataChangedError: there are fewer.
    """
    found = dataset.recording
    count = found.frames if frames is None else frames
    if count > found.frames:
        raise DataChangedError(
            f"the files had {count:,} frames, and have {found.frames:,}",
            hint="They were cut or written anew: start without after",
        )
    nav_shape = (count,) if found.nav_shape == (found.frames,) else found.nav_shape
    recording = replace(found, extents=tuple(_first(found.extents, count)), nav_shape=nav_shape)
    pinned = replace(dataset, source=replace(dataset.source, recording=recording))
    pinned.fingerprint = pinned_fingerprint(dataset, frame_stops(found, dataset.files, count))
    return pinned


def _first(extents: Sequence[Extent], frames: int) -> Iterator[Extent]:
    """The extents of the first frames."""
    for extent in extents:
        if frames <= 0:
            return
        yield replace(extent, frames=min(frames, extent.frames))
        frames -= extent.frames


def frame_stops(recording: Recording, files: FileSet, frames: int) -> tuple[int, ...]:
    """Return the leading bytes of each file that the first ``frames`` frames depend on."""
    stops: dict[int, int] = {}
    for extent in recording.extents:
        count = min(frames, extent.frames)
        if count > 0:
            stop = extent.offset + (count - 1) * extent.stride + recording.frame_bytes
            stops[extent.file] = max(stops.get(extent.file, 0), stop)
        frames -= extent.frames
        if frames <= 0:
            break
    last = max(stops, default=-1)
    # A file without frames before the last one may be a header that describes the others.
    return tuple(stops.get(file, files.size(file)) for file in range(last + 1))


def pinned_fingerprint(dataset: Opened, stops: Sequence[int] | None) -> bytes:
    """Fingerprint the bytes that items depend on, and what the catalogue declares of them: 8 bytes.

    Args:
        dataset: the dataset.
        stops: leading bytes of each of the first files that count; None for all files whole.

    Raises:
        DataChangedError: a file changed other than by growing.
        ReadFailedError: the disk failed.
    """
    # Whether it grows shows in the stops.
    meaning = {n: value for n, value in dataset.spec.meaning().items() if n != "growing"}
    digest = hashlib.blake2b(
        json.dumps(meaning, sort_keys=True).encode(),
        digest_size=_FINGERPRINT_SIZE,
        person=b"thalweg-source-1",
    )
    if stops is None:
        digest.update(dataset.contents)
        return digest.digest()
    files, whole = dataset.files, []
    form = FORMATS.get(dataset.recording.format) if isinstance(dataset, OpenDataset) else None
    if form is not None:
        # A header after the last file with a pinned frame describes these frames too.
        further = range(len(stops), len(files))
        whole = [index for index in further if form.is_companion(files.name(index))]
    digest.update(prefix_fingerprint(files, stops, whole))
    return digest.digest()
