"""The catalogue: datasets by id, opened on request and cached."""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from app.decoding.base import Decoders
from app.errors import DataChangedError, InvalidOptionError, NotFoundError
from app.http.identity import Identity
from app.state.base import (
    RecordConflictError,
    RecordExistsError,
    RecordMissingError,
    StateStore,
    StoreDamagedError,
)
from app.state.ownership import Namespaces
from core.arrays import Array
from core.budget import current
from core.errors import AmbiguousFormatError, FormatError, ShapeError
from core.tiles.corrections import Corrections, check_finite
from core.tiles.formats import parse
from core.tiles.frames import FileFrames

from .files.backends import DEFAULT, open_backend
from .files.buffers import BufferPool
from .files.file_set import on_error
from .files.fingerprints import fingerprint
from .files.places import open_files
from .files.roots import FileMissingError, Roots
from .files.seekable import Cursors
from .opened import OpenDataset, Opened, OpenItems
from .opening import Source, decoder_key, find_function, open_array, open_items, own_decoder
from .permissions import check_paths
from .spec import ITEM_FORMATS, CorrectionSpec, DatasetSpec, parse_dataset

KIND = "dataset"
_MAX_OPEN = 32
"""Datasets that stay open for later requests."""
_MAX_PARSED = 1024
"""Entries that stay parsed."""
_MAX_CORRECTION_BYTES = 1 << 30
_CORRECTION_BYTES = 24
"""Memory of a pixel of a correction image: as stored, as it is declared, and as it is applied."""
_FIXED = ""
"""Namespace of the operator's entries: no owner has this name."""

_NAMED = 10
"""Files that a notice names."""

_Key = tuple[str, str]
"""Owner and id of a dataset."""


class Catalogue:
    """Datasets by id, shared by all workers through the state store.

    The operator's datasets (of the catalogue file and of scans) come first: their ids are
    reserved, and reading one takes a scope. All other ids are in the namespace of the owner
    who registered them. ``admin`` finds what others own too, where it has no dataset of
    that id itself.

    Args:
        store: holds the entries registered through the API.
        roots: the directories that files may lie in.
        entries: fixed entries by id, from the catalogue file and from scanning.
        buffers: lends buffers for reading.
        decoders: read HDF5, zarr, parquet and Arrow; None refuses them.

    Attributes:
        notice: why the entries are not all there are, for whoever lists them; None if they are.
        clashes: ids that no file has because several would, and these files.
        cursors: keep where readers of compressed files stopped.

    Raises:
        InvalidOptionError: an entry names a decoder that does not exist.
    """

    def __init__(
        self,
        store: StateStore,
        roots: Roots,
        entries: Mapping[str, DatasetSpec],
        buffers: BufferPool,
        decoders: Decoders | None = None,
    ) -> None:
        self.notice: str | None = None
        self.clashes: Mapping[str, Sequence[str]] = {}
        self._registered = Namespaces(store, KIND)
        self.roots = roots
        self._entries = entries
        self._buffers = buffers
        self._foreign = decoders
        self._own_decoder = cache(own_decoder)  # compiled once
        self.cursors = Cursors()
        for entry in entries.values():
            # A wrong name is an error at start, not of the first request.
            if entry.decoder is not None:
                find_function(entry.decoder)
        self._open: OrderedDict[_Key, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def register(self, caller: Identity, values: Mapping[str, Any]) -> tuple[Opened, bool]:
        """Register a dataset, whose files must be readable.

        Returns:
            The open dataset, which the caller closes, and whether it is new.

        Raises:
            InvalidOptionError: a member of the entry is invalid.
            PathRefusedError: the caller may not register one of the files.
            CoreError, ServiceError: the files cannot be opened or understood.
            RecordExistsError: another dataset has its id.
        """
        spec = parse_dataset(values)
        check_paths(caller, self.roots, spec)
        opened = self._opened(stored := replace(spec, sync_offset=spec.sync_offset or None))
        try:
            if isinstance(opened, OpenDataset):
                opened.check_headerless()
                opened.check_axes()
                opened.check_scan(spec.sync_offset)
                opened.check_rows()
                if opened.sync_offset and spec.sync_offset == 0:
                    # A declared 0 is stored only where the files say otherwise.
                    plain, opened = opened, self._opened(stored := spec)
                    plain.files.close()
            key, created = self._record(caller, spec, opened, stored)
        except BaseException:
            opened.files.close()
            raise
        shared = opened.share()
        self._cache(key, opened)
        return shared, created

    def _record(
        self, caller: Identity, spec: DatasetSpec, opened: Opened, stored: DatasetSpec
    ) -> tuple[_Key, bool]:
        """Store an entry with what its files hold; return where, and whether it is new."""
        if spec.id in self._entries:
            if caller.may_read(spec.id) and self._entries[spec.id] == spec:
                return (_FIXED, spec.id), False
            raise RecordExistsError(
                f"the server's catalogue has another dataset {spec.id!r}", hint="Give another id"
            )
        key = caller.owner, spec.id
        opened.spec = replace(stored, registered=opened.layout)
        try:
            return key, self._registered.create(
                *key, stored.to_json(), beside={"registered": opened.layout}
            )
        except RecordExistsError as e:
            try:
                known = _parsed(self._registered.record(*key).value)
            except NotFoundError:  # deleted meanwhile: it existed when this one came
                raise e from None
            if replace(known, registered=None) != stored:
                raise
            opened.spec = known
            opened.check_registered()
            return key, False

    def delete(self, caller: Identity, ident: str, owner: str | None = None) -> None:
        """Delete a dataset from the namespace of its owner; files stay as they are.

        Args:
            caller: the caller.
            ident: id of the dataset.
            owner: whose dataset, for ``admin``; None for the one that ``spec`` finds.

        Raises:
            NotFoundError: the caller has no such dataset, or it is the operator's.
            RecordConflictError: several other owners have one.
        """
        if ident in self._entries:
            raise _missing(ident)
        owned_by = caller.acting_for(owner) if owner and caller.is_admin else caller
        try:
            key = self._find(owned_by, ident)[0]
        except StoreDamagedError:
            key = owned_by.owner, ident
        try:
            self._registered.delete(*key)
        except RecordMissingError as e:
            raise _missing(ident) from e
        with self._lock:
            evicted = self._open.pop(key, None)
        if evicted is not None:
            evicted.forget()

    def spec(self, caller: Identity, ident: str) -> DatasetSpec:
        """Look up the entry of a dataset.

        Raises:
            NotFoundError: the caller has no such dataset.
            RecordConflictError: several other owners have one; only for ``admin``.
        """
        return self._find(caller, ident)[1]

    def _find(self, caller: Identity, ident: str) -> tuple[_Key, DatasetSpec]:
        """Return where the entry of a dataset is, and the entry."""
        if ident in self._entries:
            if not caller.may_read(ident):
                raise _missing(ident)
            return (_FIXED, ident), self._entries[ident]
        try:
            return (caller.owner, ident), _parsed(
                self._registered.record(caller.owner, ident).value
            )
        except RecordMissingError as e:
            others = self._registered.of_anyone(ident) if caller.is_admin else []
            if not others:
                raise _missing(ident) from e
        if len(others) > 1:
            raise RecordConflictError(
                f"several owners have a dataset {ident!r}",
                hint="Use a key of the owner you mean, or name it: ?owner=",
            )
        return (others[0].owner, ident), _parsed(others[0].record.value)

    def ids(
        self,
        caller: Identity,
        after: str = "",
        limit: int = 1000,
        owner: str | None = None,
        prefix: str = "",
    ) -> list[str]:
        """List up to ``limit`` ids after ``after``, in order.

        Args:
            caller: the caller.
            after: list only ids after this one.
            limit: maximum number of ids.
            owner: whose datasets, for ``admin``; None for everybody's.
            prefix: list only ids that begin so.
        """
        if not caller.is_admin:
            own = self._registered.ids(caller.owner, after, limit, prefix=prefix)
        elif owner:
            return self._registered.ids(owner, after, limit, prefix=prefix)
        else:
            own = self._registered.all_ids(after, limit, prefix=prefix)
        fixed = (
            i for i in self._entries if i > after and i.startswith(prefix) and caller.may_read(i)
        )
        return sorted({*own, *fixed})[:limit]

    def notice_for(self, caller: Identity) -> str | None:
        """Return why datasets are missing that a caller may expect in a list; None if none is."""
        clashes = [ident for ident in self.clashes if caller.may_read(ident)]
        notices = [] if self.notice is None else [self.notice]
        if clashes:
            named = ", ".join(repr(name) for name in self.clashes[clashes[0]][:_NAMED])
            more = f", and {len(clashes) - 1} more ids, see the log" if clashes[1:] else ""
            notices.append(
                f"files that would share an id are left out: {named} ({clashes[0]!r}){more}; "
                "rename them, or register each under an id of its own"
            )
        return "; ".join(notices) or None

    def open(self, caller: Identity, ident: str) -> OpenDataset:
        """Open an array dataset in the current state of its files; the caller closes it.

        Raises:
            NotFoundError: the caller has no such dataset.
            InvalidOptionError: the dataset holds items rather than an array.
            CoreError, ServiceError: the files are missing or no longer fit the entry.
        """
        opened = self.open_any(caller, ident)
        if isinstance(opened, OpenItems):
            opened.close()
            raise InvalidOptionError(
                f"dataset {ident!r} holds {opened.spec.format} items, not an array",
                hint="Read them with a pipeline: POST /v1/pipelines",
            )
        return opened

    def open_any(self, caller: Identity, ident: str, *, grown: bool = True) -> Opened:
        """Open a dataset in the current state of its files; the caller closes it.

        Args:
            caller: the caller.
            ident: id of the dataset.
            grown: whether to include what a growing dataset gained since it was cached.

        Raises:
            NotFoundError: the caller has no such dataset.
            CoreError, ServiceError: the files are missing or no longer fit the entry.
        """
        key, spec = self._find(caller, ident)
        with self._lock:
            cached = self._open.get(key)
            # Shared under the lock: another thread may evict and close it at any time.
            cached = None if cached is None else cached.share()
        if cached is not None:
            if cached.spec == spec and self._is_fresh(cached, grown=grown):
                return cached
            cached.close()
        try:
            opened = self._opened(spec)
        except FileMissingError as e:
            if key[0] != _FIXED:
                e.args = (f"{e}: it was there when the dataset {ident!r} was registered",)
                e.hint = None
            raise
        except FormatError as e:
            # A library that is not installed is of no file.
            if spec.registered is None or e.source is None:
                raise
            raise DataChangedError(
                f"the files do not hold any more what was registered, {spec.registered}:"
                f" {e.source}: {e.message}",
                hint=e.hint,
            ) from e
        with on_error(opened.files.close):
            if isinstance(opened, OpenDataset):
                opened.check_uncut()
            opened.check_registered()
        shared = opened.share()
        self._cache(key, opened)
        return shared

    @staticmethod
    def _is_fresh(opened: Opened, *, grown: bool) -> bool:
        """Whether the files are unchanged since the dataset was opened."""
        try:
            opened.files.verify()
        except DataChangedError:
            return False
        return not (grown and opened.spec.growing and opened.files.refresh())

    def _cache(self, key: _Key, opened: Opened) -> None:
        with self._lock:
            previous = self._open.pop(key, None)
            self._open[key] = opened
            evicted = [] if previous is None or previous is opened else [previous]
            while len(self._open) > _MAX_OPEN:
                evicted.append(self._open.popitem(last=False)[1])
        for dataset in evicted:
            dataset.forget()

    def _opened(self, spec: DatasetSpec) -> Opened:
        if spec.format in ITEM_FORMATS:
            files, items = open_items(self.roots, spec, self._foreign, self.cursors)
            with on_error(files.close):
                return OpenItems(spec, files, fingerprint(files), items)
        key = decoder_key(spec)
        decoder = None if key is None else self._own_decoder(*key)
        source = open_array(self.roots, spec, decoder, self._foreign)
        files = source.files
        with on_error(files.close):
            backend = open_backend(spec.backend or DEFAULT, files, self._buffers)
            # Before the fingerprint, which covers their files.
            corrections = self._corrections(spec.corrections, source)
            return OpenDataset(spec, files, source.fingerprint(), source, backend, corrections)

    def _corrections(self, spec: CorrectionSpec, source: Source) -> Corrections:
        built_in = source.recording.built_in
        shape = source.recording.sig_shape
        dark = built_in.dark if spec.dark is None else self._image("dark", spec.dark, source)
        gain = built_in.gain if spec.gain is None else self._image("gain", spec.gain, source)
        excluded: Array | None = built_in.excluded
        if isinstance(spec.excluded, str):
            excluded = np.argwhere(self._image("excluded", spec.excluded, source))
        elif spec.excluded is not None:
            if any(len(pixel) != len(shape) for pixel in spec.excluded):
                raise ShapeError(f"an excluded pixel does not have {len(shape)} coordinates")
            excluded = np.array(spec.excluded, np.int64).reshape(-1, len(shape))
        return Corrections(shape, dark, gain, excluded)

    def _image(self, role: str, pattern: str, source: Source) -> Array:
        """Read a correction image, one frame of any format; its file stays beside the source's."""
        sig_shape = source.recording.sig_shape
        files = open_files(self.roots, [pattern])
        source.files.beside[role] = files
        if sum(info.size for info in files.infos) > _MAX_CORRECTION_BYTES:
            raise ShapeError(f"{pattern} is too large for a single frame")
        try:
            recording = parse(files.infos, files)
        except AmbiguousFormatError as e:
            raise AmbiguousFormatError(
                f"{e.message}, so that it cannot be the image {role}",
                hint="Save it with numpy.save: its file has to tell type and shape",
                source=e.source,
            ) from e
        # Of a list each value is a frame.
        is_list = recording.sig_shape == (1,)
        shape = recording.nav_shape + (() if is_list else recording.sig_shape)
        leading = len(shape) - len(sig_shape)
        pixels = math.prod(sig_shape)
        # A transposed image has as many values: only the shape tells where they belong.
        if (
            recording.stored is None
            or recording.frames * math.prod(recording.sig_shape) != pixels
            or shape != (1,) * leading + sig_shape
        ):
            raise ShapeError(
                f"{role} has {recording.frames:,} x {list(recording.sig_shape)} values, but a frame"
                f" has {list(sig_shape)}",
                source=pattern,
            )
        current().hold("corrections", _CORRECTION_BYTES * pixels)
        frames = FileFrames(recording, open_backend(DEFAULT, files, self._buffers))
        indices = np.arange(recording.frames, dtype=np.int64)
        values = np.empty(sig_shape, recording.stored)
        octets = values.reshape(-1).view(np.uint8)
        frames.copy(indices, (0, recording.sig_shape[0]), octets)
        return check_finite(values.astype(recording.dtype), role, pattern)

    def close(self) -> None:
        """Close all cached datasets."""
        with self._lock:
            evicted, self._open = list(self._open.values()), OrderedDict()
        for dataset in evicted:
            dataset.forget()


@lru_cache(maxsize=_MAX_PARSED)
def _parsed(stored: bytes) -> DatasetSpec:
    """Parse a stored entry, unless it is one of those parsed lately."""
    beside = json.loads(stored)
    values = beside["value"]
    # Where version 0.1.0 had it for a while.
    registered = values.pop("registered", beside.get("registered"))
    return replace(parse_dataset(values), registered=registered)


def _missing(ident: str) -> NotFoundError:
    hint = "GET /v1/datasets lists those there are, POST /v1/datasets registers one"
    return NotFoundError(f"there is no dataset {ident[:80]!r}", hint=hint)
