"""The catalogue: datasets by id, opened on request and cached."""

from __future__ import annotations

import json
import math
import threading
import tomllib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.decoding.base import Decoders
from app.errors import DataChangedError, InvalidOptionError, NotFoundError
from app.state.base import HeadExistsError, HeadMissingError, StateStore
from core.arrays import Array
from core.errors import ShapeError
from core.tiles.corrections import Corrections
from core.tiles.formats.detect import understand
from core.tiles.frames import FileFrames
from core.tiles.recording import Recording

from .files.backends import open_backend
from .files.buffers import BufferPool
from .files.file_set import FileSet
from .files.fingerprints import fingerprint
from .files.roots import Roots
from .opened import OpenDataset, Opened, OpenItems
from .opening import open_items, open_recording
from .spec import ITEM_FORMATS, CorrectionSpec, DatasetSpec, parse_dataset

KIND = "dataset"
_MAX_OPEN = 32
"""Datasets that stay open for later requests."""
_MAX_CORRECTION_BYTES = 1 << 30


class Catalogue:
    """Datasets by id, shared by all workers through the state store.

    Args:
        store: holds the entries registered through the API.
        roots: the directories that files may lie in.
        entries: fixed entries by id, from the catalogue file and from scanning.
        buffers: lends buffers for reading.
        decoders: read HDF5, zarr, parquet and Arrow; None refuses them.
    """

    def __init__(
        self,
        store: StateStore,
        roots: Roots,
        entries: Mapping[str, DatasetSpec],
        buffers: BufferPool,
        decoders: Decoders | None = None,
    ) -> None:
        self._store = store
        self._roots = roots
        self._entries = entries
        self._buffers = buffers
        self._foreign = decoders
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def register(self, values: Mapping[str, Any]) -> tuple[Opened, bool]:
        """Register a dataset, whose files must be readable.

        Returns:
            The open dataset, which the caller closes, and whether it is new.

        Raises:
            InvalidOptionError: a member of the entry is invalid.
            CoreError, ServiceError: the files cannot be opened or understood.
            HeadExistsError: another dataset has its id.
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
        self._cache(opened)
        return shared, created

    def _record(self, spec: DatasetSpec, text: bytes) -> bool:
        """Store an entry; return whether it is new."""
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
        """Look up the entry of a dataset.

        Raises:
            NotFoundError: there is no such dataset.
        """
        if ident in self._entries:
            return self._entries[ident]
        try:
            value = self._store.get(KIND, ident).value
        except HeadMissingError as e:
            raise NotFoundError(f"there is no dataset {ident[:80]!r}") from e
        return parse_dataset(json.loads(value))

    def ids(self, after: str = "", limit: int = 1000) -> list[str]:
        """List up to ``limit`` ids after ``after``, in order."""
        page = self._store.list(KIND, after=after, limit=limit)
        stored = {head.id for head in page.heads}
        return sorted(stored | {i for i in self._entries if i > after})[:limit]

    def open(self, ident: str) -> OpenDataset:
        """Open an array dataset in the current state of its files; the caller closes it.

        Raises:
            NotFoundError: there is no such dataset.
            InvalidOptionError: the dataset holds items rather than an array.
            CoreError, ServiceError: the files are missing or no longer fit the entry.
        """
        opened = self.open_any(ident)
        if isinstance(opened, OpenItems):
            opened.close()
            raise InvalidOptionError(
                f"dataset {ident!r} holds {opened.spec.format} items, not an array",
                hint="Read them with a pipeline: POST /v1/pipelines",
            )
        return opened

    def open_any(self, ident: str, *, grown: bool = True) -> Opened:
        """Open a dataset in the current state of its files; the caller closes it.

        Args:
            ident: id of the dataset.
            grown: whether to include what a growing dataset gained since it was cached.

        Raises:
            NotFoundError: there is no such dataset.
            CoreError, ServiceError: the files are missing or no longer fit the entry.
        """
        spec = self.spec(ident)
        with self._lock:
            cached = self._open.get(ident)
            # Shared under the lock: another thread may evict and close it at any time.
            cached = None if cached is None else cached.share()
        if cached is not None:
            if cached.spec == spec and self._is_fresh(cached, grown=grown):
                return cached
            cached.close()
        opened = self._opened(spec)
        shared = opened.share()
        self._cache(opened)
        return shared

    @staticmethod
    def _is_fresh(opened: Opened, *, grown: bool) -> bool:
        """Whether the files are unchanged since the dataset was opened."""
        try:
            opened.files.verify()
        except DataChangedError:
            return False
        return not (grown and opened.spec.growing and opened.files.refresh())

    def _cache(self, opened: Opened) -> None:
        with self._lock:
            previous = self._open.pop(opened.spec.id, None)
            self._open[opened.spec.id] = opened
            evicted = [] if previous is None or previous is opened else [previous]
            while len(self._open) > _MAX_OPEN:
                evicted.append(self._open.popitem(last=False)[1])
        for dataset in evicted:
            dataset.forget()

    def _opened(self, spec: DatasetSpec) -> Opened:
        if spec.format in ITEM_FORMATS:
            files, items = open_items(self._roots, spec, self._foreign)
            try:
                return OpenItems(spec, files, items, fingerprint(files))
            except BaseException:
                files.close()
                raise
        patterns = list(spec.files) if spec.glob is None else [spec.glob]
        source = open_recording(
            self._roots,
            patterns,
            spec.hints,
            decoders=self._foreign,
            form=spec.format,
            array=spec.array,
        )
        try:
            name = "mmap" if spec.immutable else "buffered"
            backend = open_backend(name, source.files, self._buffers, immutable=spec.immutable)
            corrections = self._corrections(spec.corrections, source.recording)
            return OpenDataset(spec, source, backend, corrections, source.fingerprint())
        except BaseException:
            source.files.close()
            raise

    def _corrections(self, spec: CorrectionSpec, recording: Recording) -> Corrections:
        built_in = recording.built_in
        shape = recording.sig_shape
        dark = built_in.dark if spec.dark is None else self._array(spec.dark, shape)
        gain = built_in.gain if spec.gain is None else self._array(spec.gain, shape)
        excluded: Array | None = built_in.excluded
        if isinstance(spec.excluded, str):
            excluded = np.argwhere(self._array(spec.excluded, shape))
        elif spec.excluded is not None:
            if any(len(pixel) != len(shape) for pixel in spec.excluded):
                raise ShapeError(f"an excluded pixel has not {len(shape)} coordinates")
            excluded = np.array(spec.excluded, np.int64).reshape(-1, len(shape))
        return Corrections(shape, dark, gain, excluded)

    def _array(self, pattern: str, sig_shape: tuple[int, ...]) -> Array:
        """Read a correction image: one frame from a file of any format."""
        with FileSet(self._roots.expand([pattern]), self._roots.open) as files:
            if sum(info.size for info in files.infos) > _MAX_CORRECTION_BYTES:
                raise ShapeError(f"{pattern} is too large for a single frame")
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
                    f"{pattern} has shape {list(shape)}, but a frame has {list(sig_shape)}",
                    source=pattern,
                )
            indices = np.arange(recording.frames, dtype=np.int64)
            loaded = frames.load(indices, (0, recording.sig_shape[0]))
            values = loaded.values[:pixels].reshape(sig_shape)
            return np.array(values, recording.dtype)

    def close(self) -> None:
        """Close all cached datasets."""
        with self._lock:
            evicted, self._open = list(self._open.values()), OrderedDict()
        for dataset in evicted:
            dataset.forget()


def read_catalogue(path: Path | None) -> dict[str, DatasetSpec]:
    """Read entries from a TOML file with one table per dataset, named by its id.

    Raises:
        InvalidOptionError: the file cannot be read, or an entry is invalid.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise InvalidOptionError(f"the catalogue {path.name} cannot be read: {e}") from e
    entries = {}
    for ident, values in tables.items():
        if not isinstance(values, Mapping):
            raise InvalidOptionError(f"{ident!r} in the catalogue is not a table")
        entries[ident] = parse_dataset({"id": ident, **values})
    return entries
