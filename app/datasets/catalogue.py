"""The datasets that are served: entries of a catalogue, opened when they are asked for."""

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
import numpy.typing as npt

from app.errors import DataChangedError, InvalidOptionError, NotFoundError
from app.state.base import HeadExistsError, HeadMissingError, StateStore
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
_MOST_OPEN = 32
"""Datasets that stay open for the next request."""
_MOST_CORRECTION_BYTES = 1 << 30


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
