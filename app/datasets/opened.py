"""Datasets whose files are open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from app.errors import DataChangedError, InvalidOptionError
from core.arrays import Array, Octets
from core.errors import OptionError
from core.iterate.base import Schema
from core.tiles.corrections import Corrections
from core.tiles.formats import DECODERS, check_headerless
from core.tiles.frames import FileFrames, FrameSource
from core.tiles.plan import Plan, make_plan
from core.tiles.reader import TileReader
from core.tiles.recording import Axis, Recording
from core.tiles.view import MAX_DIMS, View

from .files.buffered import BufferedBackend
from .files.file_set import FileSet
from .items.segments import Items
from .opening import Source
from .spec import DatasetSpec

_STATED = frozenset({"npy", "hdf5", "zarr"})
"""Formats of arrays, whose shape is that of what was written; cameras often state a wrong one."""

MAX_POSITIONS = 1 << 32
"""Positions of a scan that are declared: a map of them takes 32 GiB."""


@dataclass(slots=True, eq=False)
class _Open:
    """A dataset whose files are open."""

    spec: DatasetSpec
    files: FileSet
    contents: bytes
    """8 bytes that change if a file changes."""
    fingerprint: bytes = field(init=False)
    """8 bytes that change if a file or what the entry declares does."""

    def __post_init__(self) -> None:
        """Compute the fingerprint."""
        self.fingerprint = self.spec.fingerprint(self.contents)

    @property
    def layout(self) -> str | None:
        """What the files hold; None if that may change."""
        return None

    @property
    def order(self) -> Sequence[int]:
        """Indices of the files as they are listed."""
        return range(len(self.files))

    def listing(self) -> list[dict[str, Any]]:
        """Describe the files, as JSON values."""
        infos = self.files.infos
        return [{"name": infos[k].name, "bytes": infos[k].size} for k in self.order]

    def check_registered(self) -> None:
        """Check that the files still hold what was registered.

        Raises:
            DataChangedError: they do not.
        """
        if self.spec.registered not in {None, self.layout}:
            raise DataChangedError(
                f"the files hold {self.layout}, but {self.spec.registered} was registered",
                hint="Delete the dataset, and register it again",
            )

    def share(self) -> Self:
        """Return the dataset for another user, who must call ``close`` too."""
        self.files.share()
        return self

    def close(self) -> None:
        """Close the dataset for one user; the last one closes the files."""
        self.files.close()

    def forget(self) -> None:
        """Close the dataset, and drop what it caches; other users keep what they hold."""
        self.close()


@dataclass(slots=True, eq=False)
class OpenDataset(_Open):
    """An array dataset whose files are open."""

    source: Source
    backend: BufferedBackend
    corrections: Corrections

    @property
    def recording(self) -> Recording:
        """Layout and metadata of the array in the files."""
        return self.source.recording

    @property
    def layout(self) -> str | None:
        """See above: name of the array, dtype and shape; of a pattern, the shape of a frame."""
        if self.spec.growing or self.spec.partial:
            return None
        found, scan = self.recording, () if self.spec.glob else self.recording.found_nav
        shape = [*scan, *found.sig_shape]
        return f"{found.metadata.get('array', '')} {found.dtype.str} {shape}".strip()

    @property
    def order(self) -> Sequence[int]:
        """See above: those with frames are in the order of these, whatever the entry has."""
        framed = dict.fromkeys(extent.file for extent in self.recording.extents)
        places = iter(framed)
        return [next(places) if k in framed else k for k in range(len(self.files))]

    def forget(self) -> None:
        """Drop cached memory maps and close; other users keep the maps they hold."""
        self.backend.close()
        self.close()

    @property
    def nav_shape(self) -> tuple[int, ...]:
        """Shape of the scan."""
        return self.spec.nav_shape or self.recording.nav_shape

    @property
    def sync_offset(self) -> int:
        """Index of the frame at which the scan begins; negative if frames are missing."""
        if self.spec.sync_offset is not None:
            return self.spec.sync_offset
        return self.recording.sync_offset

    def check_axes(self) -> None:
        """Check the axes of the entry; not those of entries of earlier servers, which stay valid.

        Raises:
            InvalidOptionError: they contradict the array, or one has no scale.
        """
        axes, scan = self.spec.axes, len(self.nav_shape)
        shape = self.nav_shape + self.recording.sig_shape
        if axes and len(axes) != len(shape):
            raise _wrong_axes(
                f"names {', '.join(repr(axis.name[:40]) for axis in axes[:MAX_DIMS])}, "
                f"but the array has {len(shape)} axes, of {list(shape)}",
                "Describe each axis, those of the scan first",
            )
        names = [axis.name for axis in axes]
        if twice := [name for name in names if names.count(name) > 1]:
            raise _wrong_axes(
                f"has the name {twice[0][:40]!r} twice", "Give each axis its own name"
            )
        for k, (axis, size) in enumerate(zip(axes, shape, strict=False)):
            grows = self.spec.growing and k < scan
            if axis.size not in {0, size} and not grows:
                raise _wrong_axes(
                    f"gives {axis.name[:40]!r} a size of {axis.size}, but it is {size}",
                    "Omit size, or correct it",
                )
            if axis.scale == 0:
                raise _wrong_axes(
                    f"gives {axis.name[:40]!r} a scale of 0", "Give the size of a step, or omit it"
                )

    def check_scan(self, offset: int | None) -> None:
        """Check that the entry's scan has as many positions as there are frames, one at least.

        Args:
            offset: frames before the scan that the entry leaves out; None if it does not say.

        Raises:
            InvalidOptionError: it has others, and the entry does not say that this is meant.
            SelectionError: none has a frame.
        """
        shape, found = self.spec.nav_shape, self.recording
        if not self.spec.growing:
            self.plan(View(missing="zero"))
        if shape is None:
            return
        positions = math.prod(shape)
        if positions > max(MAX_POSITIONS, found.frames):
            raise InvalidOptionError(
                f"nav_shape {list(shape)} has {positions:,} positions, more than {MAX_POSITIONS:,}",
                hint=f"Correct it: there are {found.frames:,} frames",
                option="nav_shape",
            )
        if self.spec.partial or self.spec.growing:
            return
        skipped = found.sync_offset if offset is None else offset
        if positions not in {found.frames, found.frames - skipped}:
            raise InvalidOptionError(
                f"nav_shape {list(shape)} has {positions:,} positions, but there are"
                f" {found.frames:,} frames of {list(found.sig_shape)} {found.dtype.str}",
                hint="Correct nav_shape, or dtype and sig_shape; add"
                ' "partial": true if frames are to be left out, or positions to stay empty',
                option="nav_shape",
            )

    def check_rows(self) -> None:
        """Check that the entry's scan has the rows of the array in the files; as above.

        Raises:
            InvalidOptionError: frames would move to other rows.
        """
        if self.recording.format in _STATED and self._folds():
            raise InvalidOptionError(
                f"nav_shape is stated as {list(self.nav_shape)}, but the files have a scan of"
                f" {list(self.recording.found_nav)}",
                hint="Leave nav_shape out",
                option="nav_shape",
            )

    def _folds(self) -> bool:
        """Whether the scan is declared to have other rows than the files say; a list has none."""
        own, found = ([n for n in s if n > 1] for s in (self.nav_shape, self.recording.found_nav))
        return min(len(own), len(found)) > 1 and own[1:] != found[1:]

    def check_headerless(self) -> None:
        """Check that what is read as headerless does not look like another kind of file.

        Raises:
            AmbiguousFormatError: it does, and the entry does not give both format and header.
        """
        deliberate = self.spec.format is not None and self.spec.file_header is not None
        if self.recording.format == "raw" and not deliberate:
            check_headerless(self.files.infos, self.files)

    def check_uncut(self) -> None:
        """Check that a scan, whose entry fitted the files, has not lost frames since.

        Raises:
            DataChangedError: it has, and would look like one that was recorded in part.
        """
        entry, found = self.spec, self.recording
        if entry.nav_shape is None or entry.partial or entry.growing:
            return
        positions = math.prod(entry.nav_shape)
        if positions > found.frames - min(self.sync_offset, 0):
            raise DataChangedError(
                f"the scan has {positions:,} positions, but the files have {found.frames:,} frames",
                hint='If they were not cut, declare the dataset anew with "partial": true',
            )

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Navigation axes, then signal axes."""
        shape = self.nav_shape + self.recording.sig_shape
        axes = self.spec.axes or self.recording.axes
        if len(axes) != len(shape):
            nav, sig = len(self.nav_shape), len(self.recording.sig_shape)
            names = [f"nav_{k}" for k in range(nav)] + [f"sig_{k}" for k in range(sig)]
            return tuple(Axis(n, size) for n, size in zip(names, shape, strict=True))
        return tuple(replace(axis, size=size) for axis, size in zip(axes, shape, strict=True))

    def frames(self) -> FrameSource:
        """Return a new source of the frames, for one thread."""
        if self.source.arrays:
            return self.source.array_frames()
        decode = None
        if self.recording.decoder is not None:
            decoder = self.source.decoder or DECODERS[self.recording.decoder]
            shape, size = self.recording.panel_shape, self.recording.frame_bytes

            def decode(octets: Octets, out: Array) -> None:
                pixels = out.reshape(len(out), -1)
                decoder.decode(octets.reshape(-1), size, pixels, shape)

        return FileFrames(self.recording, self.backend, decode)

    def typed(self, view: View) -> View:
        """Return a view with a dtype if it corrects integers and requests none.

        A corrected integer is a fraction, or negative: it becomes float32, and float64 if it has
        more than 2 bytes.
        """
        stored = self.recording.dtype
        if view.dtype or not view.corrections or not self.corrections or stored.kind not in "biu":
            return view
        wide = np.result_type(stored, np.float32, *([np.complex64] * self.corrections.is_complex))
        return replace(view, dtype=wide.newbyteorder("<").str)

    def divided(self, sig_shape: tuple[int, ...]) -> OpenDataset:
        """Return the array with its frames divided into smaller ones, over the same open files.

        Raises:
            OptionError: the smaller ones do not lie in the files one after another.
        """
        found = self.recording
        pixels, size = math.prod(found.sig_shape), math.prod(sig_shape)
        if pixels == size:
            return self
        plain = found.stored is not None and not (self.source.arrays or self.corrections)
        gaps = any(each.stride != found.frame_bytes for each in found.extents)
        if not plain or gaps or pixels % size or self.sync_offset:
            raise OptionError(
                f"the frames of {self.spec.id!r}, of {list(found.sig_shape)}, cannot be divided"
                f" into parts of {list(sig_shape)}",
                hint=f'Register it with "sig_shape": {list(sig_shape)}, or save it as npy',
            )
        extents = tuple(
            replace(each, frames=each.frames * pixels // size, stride=each.stride * size // pixels)
            for each in found.extents
        )
        frame_bytes = found.frame_bytes * size // pixels
        recording = replace(found, extents=extents, sig_shape=sig_shape, frame_bytes=frame_bytes)
        return replace(self, source=replace(self.source, recording=recording))

    def plan(self, view: View) -> Plan:
        """Plan the tiles of a view.

        Raises:
            CoreError: the view does not fit the array.
        """
        nav_shape, sync_offset = self.nav_shape, self.sync_offset
        return make_plan(self.recording, view, nav_shape=nav_shape, sync_offset=sync_offset)

    def reader(self, plan: Plan) -> TileReader:
        """Return a new reader of the tiles of a plan, for one thread at a time."""
        return TileReader(plan, self.recording, self.frames(), self.corrections)

    def sync_info(self) -> dict[str, int]:
        """Count the frames left out or missing at both ends of the scan."""
        positions, frames, sync = math.prod(self.nav_shape), self.recording.frames, self.sync_offset
        return {
            "frames_skipped_start": max(0, min(sync, frames)),
            "frames_ignored_end": max(0, frames - positions - sync),
            "frames_inserted_start": max(0, min(-sync, positions)),
            "frames_inserted_end": max(0, positions + sync - frames),
        }

    def notes(self) -> list[str]:
        """Return what people should know of the files and of the scan over them."""
        sync, entry, recording = self.sync_info(), self.spec, self.recording
        counts = {
            "frames before the scan are not used": sync["frames_skipped_start"],
            "frames after the scan are not used": sync["frames_ignored_end"],
            "positions at the beginning of the scan have no frame": sync["frames_inserted_start"],
            "positions at the end of the scan have no frame": sync["frames_inserted_end"],
        }
        notes = [f"{count:,} {text}" for text, count in counts.items() if count]
        if recording.format == "raw" and entry.nav_shape is None and not entry.growing:
            notes.append("nothing confirms dtype and sig_shape; with nav_shape they are checked")
        if recording.frames == 1 and len(recording.sig_shape) > 2:  # noqa: PLR2004
            notes.append("all axes are those of a frame: there is one, and no scan")
        if self.corrections.gain_is_dark:
            notes.append("gain is far from 1 on average and dark near 1: are they interchanged?")
        if self._folds():
            stated = list(recording.found_nav)
            notes.append(f"the scan is declared as {list(self.nav_shape)}; the files say {stated}")
        if recording.panels == 1 == len(self.nav_shape) and not (entry.nav_shape or entry.growing):
            notes += self._note_rows()
        return [*recording.notes, *notes]

    def _note_rows(self) -> list[str]:
        """What to do if frames of several files, which tell one axis of a scan, are more."""
        frames = [0] * len(self.files)
        for extent in self.recording.extents:
            frames[extent.file] += extent.frames
        of_files = {count for count in frames if count}
        if sum(map(bool, frames)) == 1 or of_files == {1}:
            return []
        shape = f", such as {[len(frames), *of_files]}" if len(of_files) == 1 else ""
        return [f"the frames of {len(frames)} files are a list: for a scan, give nav_shape{shape}"]

    def describe(self) -> dict[str, Any]:
        """Describe the dataset, as JSON values."""
        recording = self.recording
        return {
            "id": self.spec.id,
            "format": recording.format,
            "nav_shape": list(self.nav_shape),
            "sig_shape": list(recording.sig_shape),
            "dtype": recording.dtype.str,
            "stored_dtype": None if recording.stored is None else recording.stored.str,
            "corrected_dtype": self.typed(View()).dtype,
            "frames": recording.frames,
            "frame_bytes": recording.frame_bytes,
            "files": self.listing(),
            "axes": [asdict(axis) for axis in self.axes],
            "sync_offset": self.sync_offset,
            "sync": self.sync_info(),
            "corrections": bool(self.corrections),
            "immutable": self.spec.immutable,
            "growing": self.spec.growing,
            "metadata": dict(recording.metadata),
            "notes": self.notes(),
            "fingerprint": self.fingerprint.hex(),
        }


@dataclass(slots=True, eq=False)
class OpenItems(_Open):
    """A dataset of items whose files are open."""

    items: Items

    def describe(self) -> dict[str, Any]:
        """Describe the dataset, as JSON values."""
        return {
            "id": self.spec.id,
            "format": self.spec.format,
            "items": {unit: self._describe_unit(unit) for unit in self.items.units},
            "files": self.listing(),
            "immutable": self.spec.immutable,
            "growing": self.spec.growing,
            "metadata": dict(self.items.describe()),
            "fingerprint": self.fingerprint.hex(),
        }

    def _describe_unit(self, unit: str) -> dict[str, Any]:
        return {"count": self.items.count(unit), "fields": describe_schema(self.items.schema(unit))}


Opened = OpenDataset | OpenItems


def _wrong_axes(problem: str, hint: str) -> InvalidOptionError:
    return InvalidOptionError(f"axes {problem}", hint=hint, option="axes")


def describe_schema(schema: Schema) -> list[dict[str, Any]]:
    """Describe the fields of a schema, as JSON values."""
    return [
        {
            "name": field.name,
            "dtype": field.dtype.str if field.dtype.names is None else field.dtype.descr,
            "shape": list(field.shape),
            "ragged": field.ragged,
        }
        for field in schema
    ]
