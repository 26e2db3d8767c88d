"""Files of a dataset that isolated processes decode.

A file is opened and identified here, and only its descriptor is handed over. What a worker
remembers of a file is bound to the identity of the open file, status change included, so a file
that was overwritten in place is read anew even if size and modification time are the same.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from app.decoding.base import (
    Decoders,
    Effort,
    LibraryMissingError,
    OpenHandle,
    Parse,
    Request,
)
from app.decoding.wire import RefusedError
from app.errors import DatasetUnreadableError
from core.errors import FormatError
from core.tiles.formats.arrays import ArrayInfo

from .file_set import FileSet
from .identity import State

T = TypeVar("T")

_ATTEMPTS = 3
"""Reads of a file whose status, but not its data, changes meanwhile, as by a chmod."""
_EXTRAS = {"hdf5": "hdf5", "zarr": "zarr"}
"""The extra that installs the library of a format."""
_HINT = "Check that the file is neither damaged nor being written"


class ForeignFile:
    """A file that decoders read; several threads may use it at once.

    Args:
        files: the set.
        file: index of the file.
        form: name of the format, as the decoders know it.
        decoders: read it.
    """

    def __init__(self, files: FileSet, file: int, form: str, decoders: Decoders) -> None:
        self._files = files
        self._file = file
        self._source = files.name(file)
        self._form = form
        self._decoders = decoders
        self._keys: set[str] = set()
        self._last: tuple[State | None, str] = None, ""
        weakref.finalize(self, _forget, decoders, self._keys).atexit = False

    def ask(
        self,
        action: str,
        arguments: Mapping[str, Any],
        parse: Parse[T],
        effort: Effort = Effort(),  # noqa: B008 - it cannot change
    ) -> T:
        """Have a decoder do something with the file; see ``Request`` and ``Decoders``.

        Raises:
            FormatError: the file cannot be decoded, or the library is not installed.
            DatasetUnreadableError: decoding it crashed, hung or needed too much memory.
            DataChangedError: the file changed since it was opened.
            BusyError: no decoder became free.
        """
        source = self._source
        for _ in range(_ATTEMPTS):
            with self._files.lent(self._file) as lent:
                known = {"size": self._files.size(self._file)}
                subject = OpenHandle(self._key(lent.state), self._form, known, lent.descriptors)
                request = Request(
                    source, subject, action, arguments, effort=effort, fetch=lent.fetch
                )
                try:
                    result = self._decoders.ask(request, parse)
                except RefusedError as e:
                    # Tell a file that changed while it was read from a file that is damaged.
                    self._files.check((self._file,))
                    hint = e.hint or _HINT
                    raise FormatError(e.message, source=source, hint=hint, offset=e.offset) from e
                except LibraryMissingError as e:
                    raise missing(e.package, self._form) from e
                except DatasetUnreadableError:
                    self._files.check((self._file,))
                    raise
            # The file of this name is the open one, or the check fails.
            if self._files.state(self._file) == lent.state:
                return result
        raise self._files.changed(self._file, "was modified")

    def _key(self, state: State) -> str:
        """Return what decoders know the file by in this state."""
        known, key = self._last
        if state != known:
            key = f"{self._form} {':'.join(map(str, state))}"
            self._keys.add(key)
            self._last = state, key
        return key


def _forget(decoders: Decoders, keys: set[str]) -> None:
    for key in keys:
        decoders.forget(key)


def missing(package: str, form: str) -> FormatError:
    """Build the error for a library that is not installed."""
    hint = None
    if extra := _EXTRAS.get(form):
        hint = f"Install the extra {extra}: pip install -e '.[{extra}]' in the checkout"
    return FormatError(
        f"reading {form} needs the package {package}, which is not installed", hint=hint
    )


def required(decoders: Decoders | None, form: str) -> Decoders:
    """Return the decoders.

    Raises:
        FormatError: this process has none.
    """
    if decoders is None:
        raise FormatError(f"reading {form} needs decoders, which this process does not have")
    return decoders


def check_chunks(info: ArrayInfo, name: str, source: str, decoders: Decoders) -> None:
    """Check that a decoder can hold a chunk, once compressed and once not.

    Raises:
        FormatError: it cannot.
    """
    nbytes, limit = math.prod(info.chunks) * info.dtype.itemsize, decoders.max_bytes // 2
    if nbytes > limit:
        raise FormatError(
            f"the array {name!r} is in chunks of {info.chunks}, of more than {limit} bytes",
            source=source,
            hint="Write it with smaller chunks, or ask the operator to raise decoder_memory",
        )


# -- what workers answer --------------------------------------------------------------


def text(value: Any, limit: int = 4096) -> str:  # noqa: ANN401 - JSON
    """Return a text.

    Raises:
        TypeError, ValueError: it is none, or too long.
    """
    if not isinstance(value, str):
        raise TypeError("not a text")
    if len(value) > limit:
        raise ValueError("too long")
    return value


def number(value: Any, limit: int = 1 << 63) -> int:  # noqa: ANN401 - JSON
    """Return an integer from 0 to below ``limit``.

    Raises:
        TypeError, ValueError: it is none, or out of range.
    """
    if type(value) is not int:
        raise TypeError("not an integer")
    if not 0 <= value < limit:
        raise ValueError("out of range")
    return value


def sequence(value: Any) -> Sequence[Any]:  # noqa: ANN401 - JSON
    """Return a list.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
