"""The objects of one dataset: of the state in which they were opened, or an error."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import BusyError, TooLargeError
from core.arrays import Octets
from core.budget import Scope

from .buckets import Bucket
from .fetching import PART, parts, result
from .file_set import FileSet, OneFile, changed
from .identity import Identity, Lent, State
from .roots import FileMissingError

if TYPE_CHECKING:
    from .objects import Found

_BLOCK = 64 << 10
"""Bytes read around a small read: headers are read in pieces of a few bytes."""
_BLOCKS = 16
"""Blocks that a set keeps."""
_FILES_AHEAD = 8
"""Files whose first blocks are read together: the headers of a series are read one by one."""
_LOOKED_AT = 64
"""Objects that are looked at one by one; of more, all that lie beside them are listed."""
_SECOND = 1.0
_PAUSE = 10
"""Times as long as a look took, none follows it: the objects of a store may be very many."""
MAX_STAGED = 256 << 20
"""Largest object that a decoder gets whole: a chunk of an array, or a shard of several."""


class ObjectSet(FileSet):
    """Objects in a fixed order, read as files are; see FileSet.

    Every read is conditional (:mod:`.objects`), so nothing is looked at after it. ``verify`` looks
    at the objects, at most once a second.

    Args:
        bucket: where they are.
        found: what they were when they were looked at, at least one.
        names: what they are called; by default the last parts of their names in the bucket.
    """

    def __init__(
        self, bucket: Bucket, found: Sequence[Found], names: Sequence[str] | None = None
    ) -> None:
        names = names or [each.key.rpartition("/")[2] for each in found]
        if not found:
            raise ValueError("a dataset has at least one object")
        self.fetching = bucket.fetching
        self._bucket = bucket
        self._found = list(found)
        self._names = list(names)
        self._blocks: OrderedDict[tuple[int, int], Future[Octets]] = OrderedDict()
        self._blocks_lock = threading.Lock()
        self._next_look = time.monotonic() + _SECOND
        self._begin(map(_known, found), growing=False, max_open=0)

    def name(self, file: int) -> str:
        """Return what an object is called."""
        return self._names[file]

    def stamp(self, file: int) -> bytes:
        """Return the version or ETag of an object, which stand for its contents without a look."""
        found = self._found[file]
        return (found.version or found.e_tag).encode()

    def ends(self, file: int, stop: int) -> bytes:
        """Return nothing: the stamp tells."""
        del file, stop
        return b""

    # -- reading ------------------------------------------------------------------------

    def part(self, file: int, start: int, stop: int) -> Octets:
        """Read bytes that an object has, at most ``PART``, in one request.

        Raises:
            DataChangedError: the object is not what it was.
            ReadFailedError: the store failed.
        """
        return self._bucket.objects.get(self._found[file], start, stop, self.name(file))

    def read(self, file: int, start: int, stop: int) -> bytes:
        """See FileSet; what is small comes from blocks, some of which are kept."""
        stop = min(stop, self.size(file))
        if stop <= start:
            return b""
        first, last = start // _BLOCK, (stop - 1) // _BLOCK
        if first == last:
            octets = result(self._block(file, first))
            return octets[start - first * _BLOCK : stop - first * _BLOCK].tobytes()
        with Scope("read", 2 * (stop - start)):
            begins = range(start, stop, PART)
            futures = (self._fetch(file, at, min(at + PART, stop)) for at in begins)
            return b"".join(part.data for part in parts(futures, stop - start))

    def _fetch(self, file: int, start: int, stop: int) -> Future[Octets]:
        return self.fetching.start(partial(self.part, file, start, stop))

    def _block(self, file: int, number: int) -> Future[Octets]:
        """Return a block, and have the first ones of the files that follow read with the first."""
        with self._blocks_lock:
            if not self._has_block(file, number):
                ahead = 1 if number else _FILES_AHEAD
                for each in range(file, min(file + ahead, len(self))):
                    self._begin_block(each, number)
            block = self._blocks[file, number]
            self._blocks.move_to_end((file, number))
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return block

    def _has_block(self, file: int, number: int) -> bool:
        """Whether a block is kept, or under way; one that could not be read is not."""
        block = self._blocks.get((file, number))
        return block is not None and not (block.done() and block.exception())

    def _begin_block(self, file: int, number: int) -> None:
        start, size = number * _BLOCK, self.size(file)
        if size and not self._has_block(file, number):
            self._blocks[file, number] = self._fetch(file, start, min(start + _BLOCK, size))

    @contextmanager
    def lent(self, file: int) -> Iterator[Lent]:
        """See FileSet; nothing is handed over, and decoders ask for the bytes they need."""
        yield Lent(self.state(file), (), partial(self.read, file))

    @contextmanager
    def staged(self, files: Sequence[int]) -> Iterator[list[int]]:
        """Provide descriptors of copies of objects, in memory, until the end of the block.

        Raises:
            TooLargeError: an object is larger than ``MAX_STAGED``.
            BudgetExceededError: there is no memory for them.
            DataChangedError, ReadFailedError: see ``part``.
        """
        sizes = [self.size(file) for file in files]
        if max(sizes, default=0) > MAX_STAGED:
            name = self.name(files[sizes.index(max(sizes))])
            raise TooLargeError(
                f"{name!r} has {max(sizes)} bytes, and is read whole from a bucket",
                hint="Write the array with smaller chunks or shards, or copy it to a directory",
                limit="staged",
                allowed=MAX_STAGED,
                setting=None,
            )
        descriptors: list[int] = []
        with Scope("objects", sum(sizes)):
            try:
                descriptors += map(_memory, files)
                self._fill(files, sizes, descriptors)
                yield descriptors
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _fill(self, files: Sequence[int], sizes: Sequence[int], descriptors: Sequence[int]) -> None:
        places = [
            (file, descriptor, at, min(at + PART, size))
            for file, size, descriptor in zip(files, sizes, descriptors, strict=True)
            for at in range(0, size, PART)
        ]
        futures = (self._fetch(file, at, stop) for file, _, at, stop in places)
        for (_, descriptor, at, _), part in zip(places, parts(futures, sum(sizes)), strict=True):
            os.pwrite(descriptor, part.data, at)

    def are_below(self, directories: Sequence[Path]) -> bool:
        """See FileSet; all that have the bucket have its objects at the same place."""
        return all(files.are_below(directories) for files in self.beside.values())

    # -- the same as before ---------------------------------------------------------------

    def state(self, file: int) -> State:
        """Return what identifies an object and its contents."""
        found = self._found[file]
        return self._bucket.address, found.key, found.size, found.e_tag, found.version or ""

    def check(self, files: Iterable[int]) -> None:
        """See FileSet; bytes of objects that were read are of the right state, so others count."""
        del files
        for other in self.beside.values():
            other.verify()

    def check_one(self, file: int) -> None:
        """See ``check``."""
        self.check((file,))

    def verify(self) -> None:
        """See FileSet; within a second, or ten times as long as a look takes, once."""
        now = time.monotonic()
        if now >= self._next_look:
            # Others need not wait for this one: they do as if it had been done.
            self._next_look = now + _SECOND
            try:
                self._look()
            except BaseException:
                self._next_look = 0.0
                raise
            elapsed = time.monotonic() - now
            self._next_look = now + max(_SECOND, _PAUSE * elapsed)
        for other in self.beside.values():
            other.verify()

    def _look(self) -> None:
        """Compare the objects with what there is.

        Raises:
            DataChangedError: one was modified or removed.
            ReadFailedError: the store does not answer.
        """
        for file, now in enumerate(self._look_up()):
            known = self._found[file]
            if now is None:
                raise self.changed(file, "was removed")
            is_other = now.version and known.version and now.version != known.version
            if is_other or (now.size, now.e_tag) != (known.size, known.e_tag):
                raise self.changed(file, "was modified")

    def _look_up(self) -> Iterator[Found | None]:
        keys = [found.key for found in self._found]
        if len(keys) > _LOOKED_AT:
            top = os.path.commonpath([os.path.dirname(key) for key in keys])  # noqa: PTH120 - keys
            listing = self._bucket.below(top)
            return iter([listing.get(key) for key in keys])
        return self.fetching.each(partial(_seen, self._bucket, key) for key in keys)

    def refresh(self) -> bool:
        """Return False: objects do not grow."""
        return False


class StoreObjects(ObjectSet):
    """The objects of an array in a zarr store: none may be added either; see StoreFiles.

    Args:
        bucket: where it is.
        top: the store.
        found: objects of the array, by their names in the store.
        prefixes: what the names of all its objects, and of no others, begin with.
    """

    metadata = frozenset[int]()
    """None is read for the fingerprint: versions or ETags stand for contents."""

    def __init__(
        self, bucket: Bucket, top: Path, found: Mapping[str, Found], prefixes: tuple[str, ...]
    ) -> None:
        self.top = top
        self.indices = {name: k for k, name in enumerate(found)}
        self._prefixes = prefixes
        super().__init__(bucket, list(found.values()), list(found))

    def _look_up(self) -> Iterator[Found | None]:
        listing = _inside(self._bucket, str(self.top), self._prefixes)
        for name in listing.keys() - self.indices.keys():
            raise changed(name, "was added")
        return iter([listing.get(name) for name in self.indices])

    def check_missing(self, name: str) -> None:
        """Check that an object that the store did not have is still missing, as ``verify`` does."""
        del name
        self.verify()


class ObjectTop:
    """The directory of a store in a bucket; see ``zarr_files.Top``.

    Args:
        bucket: where it is.
        top: name of the directory.

    Raises:
        TooLargeError: it has too many objects.
        ReadFailedError: the store does not answer.
    """

    def __init__(self, bucket: Bucket, top: str) -> None:
        self.name = top.rpartition("/")[2]
        self._bucket, self._top = bucket, Path(top)
        self._found = _inside(bucket, top, ("",))

    @property
    def names(self) -> Collection[str]:
        """See Top."""
        return self._found

    def open(self, names: Sequence[str]) -> ObjectSet:
        """See Top."""
        return ObjectSet(self._bucket, [self._found[name] for name in names])

    def store(self, prefixes: tuple[str, ...]) -> StoreObjects:
        """See Top."""
        found = {name: each for name, each in self._found.items() if name.startswith(prefixes)}
        return StoreObjects(self._bucket, self._top, found, prefixes)


def _inside(bucket: Bucket, top: str, prefixes: tuple[str, ...]) -> dict[str, Found]:
    """List the objects below a directory whose names there begin in one of some ways."""
    below = {key.removeprefix(f"{top}/"): found for key, found in bucket.below(top).items()}
    return {name: found for name, found in below.items() if name.startswith(prefixes)}


def _known(found: Found) -> OneFile:
    return OneFile(Path(found.key), found.key, Identity(0, 0, found.size, 0, 0), None)


def _seen(bucket: Bucket, key: str) -> Found | None:
    try:
        return bucket.objects.look(key)
    except FileMissingError:
        return None


def _memory(_file: int) -> int:
    try:
        return os.memfd_create("thalweg-object", os.MFD_CLOEXEC)
    except OSError as e:
        raise BusyError("too many files are open", retry_after=5) from e
