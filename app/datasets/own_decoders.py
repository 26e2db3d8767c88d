"""Decoders of the operator's own: functions of installed modules, named in the catalogue file.

A detector that packs its pixels in a way no format here knows needs only a function for one
frame; files, selections, corrections and streams are as for every other dataset. The function
is code that runs in this process, so only the operator can name it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from app.errors import InvalidOptionError
from core.tiles.decoders import make_decoder
from core.tiles.packing import Decoder
from core.tiles.recording import Hints, Recording

from .spec import DatasetSpec

_Key = tuple[str, str, tuple[int, ...], int]


class OwnDecoders:
    """Decoders that catalogue entries name, each made, compiled and tried once."""

    def __init__(self) -> None:
        self._made: dict[_Key, Decoder] = {}
        self._lock = threading.Lock()

    def of(self, spec: DatasetSpec) -> Decoder | None:
        """Return the decoder of an entry, or None if it names none.

        Raises:
            InvalidOptionError: there is no such function, or it fails to compile or to decode
                a frame of zeros.
        """
        if (key := _key(spec)) is None:
            return None
        with self._lock:
            if key not in self._made:
                self._made[key] = _tried(*key)
            return self._made[key]


def find_function(reference: str) -> Callable[..., None]:
    """Import a function by ``module:function``.

    Raises:
        InvalidOptionError: there is none.
    """
    module, _, name = reference.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as e:
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


def _key(spec: DatasetSpec) -> _Key | None:
    if spec.decoder is None or spec.dtype is None or spec.sig_shape is None:
        return None
    assert spec.frame_bytes is not None  # noqa: S101 - required with a decoder
    return spec.decoder, spec.dtype, spec.sig_shape, spec.frame_bytes


def _tried(reference: str, dtype: str, sig_shape: tuple[int, ...], size: int) -> Decoder:
    """Make a decoder and decode a frame of zeros: a fault shows before data is read."""
    function = find_function(reference)
    decoder = make_decoder(
        reference, np.dtype(dtype).newbyteorder("="), lambda _shape: size, function
    )
    pixels: np.ndarray[Any, np.dtype[Any]] = np.zeros((1, int(np.prod(sig_shape))), decoder.dtype)
    try:
        decoder.decode(np.zeros(size, np.uint8), size, pixels, sig_shape)
    except Exception as e:
        lines = str(e).strip().splitlines() or [type(e).__name__]
        raise _invalid(reference, f"cannot decode a frame of zeros: {lines[-1][:200]}") from e
    return decoder


def _invalid(reference: str, problem: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"decoder {reference!r} {problem}",
        hint="Name a function(raw, out, sig_shape) that numba can compile, of an installed module",
        option="decoder",
    )
