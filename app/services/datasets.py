"""The datasets that are served: entries of a catalogue, opened when they are asked for."""

from __future__ import annotations

import json
import math
import threading
import tomllib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import DataChangedError, InvalidOptionError, NotFoundError
from app.services.dataset_sources import Source, open_items, open_recording
from app.services.dataset_spec import ITEM_FORMATS, CorrectionSpec, DatasetSpec, parse_dataset
from app.storage.backends import RangeBackend, open_backend
from app.storage.base import HeadExistsError, HeadMissingError, StateStore
from app.storage.buffers import BufferPool
from app.storage.files import FileSet
from app.storage.fingerprints import fingerprint
from app.storage.items import Items
from app.storage.roots import Roots
from core.errors import ShapeError
from core.iterate.base import Schema
from core.tiles.corrections import Corrections
from core.tiles.decoders import DECODERS
from core.tiles.formats.detect import understand
from core.tiles.frames import FileFrames, FrameSource
from core.tiles.recording import Axis, Recording

KIND = "dataset"
_MOST_OPEN = 32
"""Datasets that stay open for the next request."""
_MOST_CORRECTION_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class OpenDataset:
    """A dataset whose files are open, and what is in them."""

    spec: DatasetSpec
    source: Source
    backend: RangeBackend
    corrections: Corrections
    fingerprint: bytes
    """8 bytes; other bytes if a file changes."""

    @property
    def files(self) -> FileSet:
        """Its files."""
        return self.source.files

    @property
    def recording(self) -> Recording:
        """What is in them."""
        return self.source.recording

    def share(self) -> OpenDataset:
        """The same, to be closed once more."""
        self.files.share()
        return self

    def close(self) -> None:
        """Let go of it."""
        self.files.close()

    def forget(self) -> None:
        """Let go of it for good: those who still use it keep the maps they have."""
        self.backend.close()
        self.files.close()

    @property
    def nav_shape(self) -> tuple[int, ...]:
        """Shape of the scan."""
        return self.spec.nav_shape or self.recording.nav_shape

    @property
    def sync_offset(self) -> int:
        """Frame of the files at which the scan begins."""
        if self.spec.sync_offset is not None:
            return self.spec.sync_offset
        return self.recording.sync_offset

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Navigation axes, then signal axes."""
        shape = self.nav_shape + self.recording.sig_shape
        given = self.spec.axes or self.recording.axes
        if len(given) != len(shape):
            nav, sig = len(self.nav_shape), len(self.recording.sig_shape)
            names = [f"nav_{k}" for k in range(nav)] + [f"sig_{k}" for k in range(sig)]
            return tuple(Axis(n, size) for n, size in zip(names, shape, strict=True))
        return tuple(
            Axis(axis.name, size, axis.unit, axis.scale, axis.offset)
            for axis, size in zip(given, shape, strict=True)
        )

    def frames(self) -> FrameSource:
        """A source of its frames, for one thread."""
        if self.source.arrays:
            return self.source.array_frames()
        decode = None
        if self.recording.decoder is not None:
            decoder = DECODERS[self.recording.decoder]
            shape, size = self.recording.panel_shape, self.recording.frame_bytes

            def decode(octets: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
                pixels = out.reshape(len(out), -1)
                decoder.decode(octets.reshape(-1), size, pixels, shape)

        return FileFrames(self.recording, self.backend, decode)

    def sync_info(self) -> dict[str, int]:
        """Frames left out or missing at both ends of the scan."""
        positions, frames, sync = math.prod(self.nav_shape), self.recording.frames, self.sync_offset
        return {
            "frames_skipped_start": max(0, min(sync, frames)),
            "frames_ignored_end": max(0, frames - positions - sync),
            "frames_inserted_start": max(0, min(-sync, positions)),
            "frames_inserted_end": max(0, positions + sync - frames),
        }

    def describe(self) -> dict[str, Any]:
        """What is known of it, as JSON values."""
        recording = self.recording
        return {
            "id": self.spec.id,
            "format": recording.format,
            "nav_shape": list(self.nav_shape),
            "sig_shape": list(recording.sig_shape),
            "dtype": recording.dtype.str,
            "stored_dtype": None if recording.stored is None else recording.stored.str,
            "frames": recording.frames,
            "frame_bytes": recording.frame_bytes,
            "files": [{"name": info.name, "bytes": info.size} for info in self.files.infos],
            "axes": [
                {
                    "name": axis.name,
                    "size": axis.size,
                    "unit": axis.unit,
                    "scale": axis.scale,
                    "offset": axis.offset,
                }
                for axis in self.axes
            ],
            "sync_offset": self.sync_offset,
            "sync": self.sync_info(),
            "corrections": bool(self.corrections),
            "immutable": self.spec.immutable,
            "growing": self.spec.growing,
            "metadata": dict(recording.metadata),
            "notes": list(recording.notes),
            "fingerprint": self.fingerprint.hex(),
        }


@dataclass(slots=True, eq=False)
class OpenItems:
    """A dataset of items whose files are open."""

    spec: DatasetSpec
    files: FileSet
    items: Items
    fingerprint: bytes
    """8 bytes; other bytes if a file changes."""

    def share(self) -> OpenItems:
        """The same, to be closed once more."""
        self.files.share()
        return self

    def close(self) -> None:
        """Let go of it."""
        self.files.close()

    def forget(self) -> None:
        """Let go of it for good."""
        self.close()

    def describe(self) -> dict[str, Any]:
        """What is known of it, as JSON values."""
        return {
            "id": self.spec.id,
            "format": self.spec.format,
            "items": {unit: self._describe_unit(unit) for unit in self.items.units},
            "files": [{"name": info.name, "bytes": info.size} for info in self.files.infos],
            "immutable": self.spec.immutable,
            "growing": self.spec.growing,
            "metadata": dict(self.items.describe()),
            "fingerprint": self.fingerprint.hex(),
        }

    def _describe_unit(self, unit: str) -> dict[str, Any]:
        return {
            "count": self.items.count(unit),
            "fields": describe_schema(self.items.schema(unit)),
        }


Opened = OpenDataset | OpenItems


def describe_schema(schema: Schema) -> list[dict[str, Any]]:
    """Fields as JSON values."""
    return [
        {
            "name": field.name,
            "dtype": field.dtype.str if field.dtype.names is None else field.dtype.descr,
            "shape": list(field.shape),
            "ragged": field.ragged,
        }
        for field in schema
    ]


class Catalogue:
    """Datasets by id, shared by all workers through the state store.

    Args:
        store: keeps what was registered.
        roots: the only places files may lie in.
        entries: datasets that are always there, by id.
        buffers: what reading may borrow.
    """

    def __init__(
        self,
        store: StateStore,
        roots: Roots,
        entries: Mapping[str, DatasetSpec],
        buffers: BufferPool,
    ) -> None:
        self._store = store
        self._roots = roots
        self._entries = entries
        self._buffers = buffers
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def register(self, values: Mapping[str, Any]) -> tuple[Opened, bool]:
        """Add a dataset; (dataset, to be closed, and whether it is new).

        Raises:
            InvalidOptionError, CoreError: what is wrong with the entry or its files.
            HeadExistsError: another one has its id.
        """
        spec = parse_dataset(values)
        opened = self._opened(spec)
        text = json.dumps(spec.to_json(), sort_keys=True).encode()
        try:
            created = self._record(spec, text)
        except BaseException:
            opened.files.close()
            raise
        shared = opened.share()
        self._keep(opened)
        return shared, created

    def _record(self, spec: DatasetSpec, text: bytes) -> bool:
        """Keep an entry; whether it is new."""
        if spec.id in self._entries:
            if self._entries[spec.id] == spec:
                return False
            raise HeadExistsError(f"the catalogue file has another dataset {spec.id!r}")
        try:
            self._store.create(KIND, spec.id, text)
        except HeadExistsError:
            if self._store.get(KIND, spec.id).value == text:
                return False
            raise
        return True

    def spec(self, ident: str) -> DatasetSpec:
        """The entry of a dataset.

        Raises:
            NotFoundError: there is none.
        """
        if ident in self._entries:
            return self._entries[ident]
        try:
            value = self._store.get(KIND, ident).value
        except HeadMissingError as e:
            raise NotFoundError(f"there is no dataset {ident[:80]!r}") from e
        return parse_dataset(json.loads(value))

    def ids(self, after: str = "", limit: int = 1000) -> list[str]:
        """Ids of all datasets, in order."""
        page = self._store.list(KIND, after=after, limit=limit)
        stored = {head.id for head in page.heads}
        return sorted(stored | {i for i in self._entries if i > after})[:limit]

    def open(self, ident: str) -> OpenDataset:
        """A dataset of an array with its files as they are now; whoever asked closes it.

        Raises:
            NotFoundError: there is none.
            InvalidOptionError: it is of items.
            CoreError, ServiceError: its files are missing, or no longer what they should be.
        """
        opened = self.open_any(ident)
        if isinstance(opened, OpenItems):
            opened.close()
            raise InvalidOptionError(
                f"dataset {ident!r} holds {opened.spec.format} items, no array",
                hint="Pipelines read them: POST /v1/pipelines",
            )
        return opened

    def open_any(self, ident: str, *, grown: bool = True) -> Opened:
        """A dataset with its files as they are now; whoever asked closes it.

        Args:
            ident: of the dataset.
            grown: whether what a growing one has grown by since it was opened is wanted.

        Raises:
            NotFoundError: there is none.
            CoreError, ServiceError: its files are missing, or no longer what they should be.
        """
        spec = self.spec(ident)
        with self._lock:
            known = self._open.get(ident)
            # Shared before anybody else can close it.
            known = None if known is None else known.share()
        if known is not None:
            if known.spec == spec and self._is_fresh(known, grown=grown):
                return known
            known.close()
        opened = self._opened(spec)
        shared = opened.share()
        self._keep(opened)
        return shared

    @staticmethod
    def _is_fresh(known: Opened, *, grown: bool) -> bool:
        """Whether its files are what they were when it was opened."""
        try:
            known.files.verify()
        except DataChangedError:
            return False
        return not (grown and known.spec.growing and known.files.refresh())

    def _keep(self, opened: Opened) -> None:
        with self._lock:
            before = self._open.pop(opened.spec.id, None)
            self._open[opened.spec.id] = opened
            gone = [] if before is None or before is opened else [before]
            while len(self._open) > _MOST_OPEN:
                gone.append(self._open.popitem(last=False)[1])
        for each in gone:
            each.forget()

    def _opened(self, spec: DatasetSpec) -> Opened:
        if spec.format in ITEM_FORMATS:
            files, items = open_items(self._roots, spec)
            try:
                return OpenItems(spec, files, items, fingerprint(files))
            except BaseException:
                files.close()
                raise
        patterns = list(spec.files) if spec.glob is None else [spec.glob]
        source = open_recording(
            self._roots, patterns, spec.hints, form=spec.format, array=spec.array
        )
        try:
            way = "mmap" if spec.immutable else "buffered"
            backend = open_backend(way, source.files, self._buffers, immutable=spec.immutable)
            corrections = self._corrections(spec.corrections, source.recording)
            return OpenDataset(spec, source, backend, corrections, source.fingerprint())
        except BaseException:
            source.files.close()
            raise

    def _corrections(self, given: CorrectionSpec, recording: Recording) -> Corrections:
        built_in = recording.built_in
        shape = recording.sig_shape
        dark = built_in.dark if given.dark is None else self._array(given.dark, shape)
        gain = built_in.gain if given.gain is None else self._array(given.gain, shape)
        excluded: npt.NDArray[Any] | None = built_in.excluded
        if isinstance(given.excluded, str):
            excluded = np.argwhere(self._array(given.excluded, shape))
        elif given.excluded is not None:
            if any(len(pixel) != len(shape) for pixel in given.excluded):
                raise ShapeError(f"excluded pixels need {len(shape)} coordinates each")
            excluded = np.array(given.excluded, np.int64).reshape(-1, len(shape))
        return Corrections(shape, dark, gain, excluded)

    def _array(self, pattern: str, sig_shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """One frame out of a file of any format."""
        with FileSet(self._roots.expand([pattern]), self._roots.open) as files:
            if sum(info.size for info in files.infos) > _MOST_CORRECTION_BYTES:
                raise ShapeError(f"{pattern} is too large to be one frame")
            recording = understand(files.infos, files)
            backend = open_backend("buffered", files, self._buffers)
            frames = FileFrames(recording, backend)
            shape = recording.nav_shape + recording.sig_shape
            pixels = math.prod(sig_shape)
            if (
                recording.stored is None
                or recording.frames * math.prod(recording.sig_shape) != pixels
            ):
                raise ShapeError(
                    f"{pattern} has shape {list(shape)}, and a frame has {list(sig_shape)}",
                    source=pattern,
                )
            every = np.arange(recording.frames, dtype=np.int64)
            loaded = frames.load(every, (0, recording.sig_shape[0]))
            values = loaded.values[:pixels].reshape(sig_shape)
            return np.array(values, recording.dtype)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            opened, self._open = list(self._open.values()), OrderedDict()
        for each in opened:
            each.forget()


def read_catalogue(path: Path | None) -> dict[str, DatasetSpec]:
    """Entries of a TOML file: one table per dataset, named by its id.

    Raises:
        InvalidOptionError: it cannot be read, or an entry is wrong.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise InvalidOptionError(f"the catalogue {path.name} cannot be read: {e}") from e
    found = {}
    for ident, values in tables.items():
        if not isinstance(values, Mapping):
            raise InvalidOptionError(f"the catalogue's {ident!r} is no table")
        found[ident] = parse_dataset({"id": ident, **values})
    return found
