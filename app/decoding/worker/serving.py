"""The loop of a worker: take a request, decode, answer.

Whatever a library raises becomes an answer. What it does instead of raising (a crash, an endless
loop) is for the service to notice.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Never, Protocol

from .. import wire
from ..wire import RefusedError
from .requests import Files, Pending, Request

_MODULES = {
    "hdf5": (".hdf5", "h5py"),
    "zarr": (".zarr", "numcodecs"),
    "parquet": (".tables", "pyarrow"),
    "arrow": (".tables", "pyarrow"),
}
"""Module and library of each format."""

Result = dict[str, Any] | Pending


class OpenHandle(Protocol):
    """Something open."""

    def act(self, request: Request) -> Result:
        """Do what a request says.

        Raises:
            RefusedError: the file cannot be decoded.
        """

    def explain(self, error: Exception) -> RefusedError:
        """Turn an error of the library into a fault."""

    def close(self) -> None:
        """Close all that is open."""


class Format(Protocol):
    """A module that decodes a format."""

    def open_subject(
        self, form: str, arguments: Mapping[str, Any], descriptors: Sequence[int]
    ) -> OpenHandle:
        """Open something; it closes the descriptors.

        Raises:
            RefusedError: the file cannot be decoded.
        """

    def touch(self) -> None:
        """Load all files that decoding needs, without starting a thread."""

    def preload(self) -> None:
        """Start the threads that decoding needs, without opening a file."""


def load_libraries() -> tuple[dict[str, Format], dict[str, str]]:
    """Import all formats; return them, and the missing packages of the others."""
    formats: dict[str, Any] = {}
    missing = {}
    for form, (module, package) in _MODULES.items():
        try:
            formats[form] = import_module(module, __package__)
        except ImportError as e:
            missing[form] = e.name or package
    return formats, missing


class Server:
    """Serves one connection.

    Args:
        channel: the connection to the service.
        formats: by name.
    """

    def __init__(self, channel: socket.socket, formats: Mapping[str, Format]) -> None:
        self._channel = channel
        self._formats = formats
        self._subjects: dict[str, OpenHandle] = {}
        self._segments: dict[int, mmap.mmap] = {}

    def run(self) -> Never:
        """Answer requests.

        Raises:
            GoneError: the service closed the connection.
        """
        while True:
            values, descriptors = wire.receive(self._channel, wire.MAX_DESCRIPTORS)
            begun = time.monotonic_ns()
            answer = self._answer(values, Files(self._channel, descriptors))
            if "traceparent" in values:
                # The service makes the span: nothing leaves a worker but answers.
                answer["nanoseconds"] = time.monotonic_ns() - begun
            try:
                wire.send(self._channel, answer)
            except TypeError:  # text that is not UTF-8, numbers of more than 64 bits
                fault = RefusedError("it has names or numbers that JSON cannot represent")
                wire.send(self._channel, _refusal(fault))

    def _answer(self, values: Mapping[str, Any], files: Files) -> dict[str, Any]:
        for number in values["drop"]:
            self._segments.pop(number, None)
        for key in values["close"]:
            if (old := self._subjects.pop(key, None)) is not None:
                old.close()
        explain: Callable[[Exception], RefusedError] = _unexplained
        try:
            out = self._segment(values["segment"], files)
            subject = self._subject(values, files)
            explain = subject.explain
            request = Request(values["action"], values["arguments"], files, out)
            result = subject.act(request)
            if isinstance(result, Pending):
                result = result.write(self._memory(result.nbytes))
        except MemoryError:
            return {"memory": True}
        except Exception as e:  # noqa: BLE001 - libraries document no common error
            if _is_memory(e):
                return {"memory": True}
            return _refusal(e if isinstance(e, RefusedError) else explain(e))
        else:
            return {"ok": result}
        finally:
            files.close()
            for number in [n for n, m in self._segments.items() if len(m) > wire.KEEP_BYTES]:
                del self._segments[number]

    def _subject(self, values: Mapping[str, Any], files: Files) -> OpenHandle:
        """Return the subject of a request; takes the descriptors that belong to it."""
        key, opening = values["key"], values["open"]
        if opening is not None:
            own = files.take(opening["descriptors"])
            form = opening["form"]
            arguments = opening["arguments"] | {"fetch": partial(self._fetch, key)}
            opened = self._formats[form].open_subject(form, arguments, own)
            self._subjects[key] = opened
        return self._subjects[key]

    def _fetch(self, key: str, start: int, size: int) -> bytes:
        """Ask the service for bytes of a file that this process cannot open.

        Raises:
            OSError: they cannot be had.
        """
        wire.send(self._channel, {"fetch": [key, start, size]})
        _, descriptors = wire.receive(self._channel, 1)
        try:
            octets = os.pread(descriptors[0], size, 0)
        finally:
            wire.close_all(descriptors)
        if len(octets) != size:
            raise OSError(errno.EIO, "its bytes cannot be had")
        return octets

    def _segment(self, known: Sequence[int] | None, files: Files) -> memoryview | None:
        if known is None:
            return None
        number, size = known
        if number not in self._segments:
            (descriptor,) = files.take(1)
            try:
                self._segments[number] = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        return memoryview(self._segments[number])

    def _memory(self, nbytes: int) -> memoryview:
        """Ask the service for shared memory."""
        wire.send(self._channel, {"need": nbytes})
        values, descriptors = wire.receive(self._channel, 1)
        memory = self._segment(values["segment"], Files(None, descriptors))
        if memory is None:
            raise MemoryError
        return memory[:nbytes]


def _refusal(fault: RefusedError) -> dict[str, Any]:
    members = {"message": fault.message, "hint": fault.hint, "offset": fault.offset}
    return {"refused": members}


def _is_memory(error: Exception) -> bool:
    """Whether a library ran out of memory: HDF5 says so in the text of other errors."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return "memory allocation failed" in text or "unable to allocate" in text


def _unexplained(error: Exception) -> RefusedError:
    text = str(error)
    line = text.splitlines()[0][:200] if text else type(error).__name__
    return RefusedError(f"it cannot be opened: {line}")
