"""Write results: all outputs of a command appear whole, or none of them does.

A file is written under a temporary name beside its own. What goes to standard output, to a fifo or
a device cannot be taken back, so it waits until all of it is known: in memory while it is small,
then in an unnamed file. When all outputs are safe, the pipes get their bytes, and then the files
their names, which cannot run out of room::

    write      .melt.csv.7.partial   .selt.csv.7.partial   (memory, then a file)
    save       synced                synced
    publish    melt.csv              selt.csv              standard output

Whoever wants rows at once asks for ``live`` outputs.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from app.state.durable import sync_directory
from core.arrays import Octets, Rows
from core.errors import InputError, OptionError
from core.losses.format import ID_MAX

from .pipes import PipeOutput, SpooledOutput, naming, open_pipe, write_all

STDOUT = "-"
_HALF_A_BLOCK = struct.pack("<i", ID_MAX)

_BATCH = 1 << 20
"""Bytes of a file that are handed to its writer at a time. Waking a thread costs as much as
writing some 30 KB, which is more than many callers write at once."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class FileOutput:
    """A file that is written under a temporary name beside its own, then renamed.

    Args:
        path: of the file; what a link names is replaced, and it stays a link.
        durable: whether the file has to survive a crash of the machine.
        make_folder: whether to make the folder of the file.

    Raises:
        InputError: the file cannot be created.
    """

    def __init__(self, path: Path, *, durable: bool = True, make_folder: bool = True) -> None:
        self._name = str(path)
        self.path = Path(os.path.realpath(path))
        """Where the file is to be, whatever links lead there."""
        self._durable = durable
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        # Before the file exists: an interrupt may come before the caller can discard it.
        self._leave_nothing = weakref.finalize(self, self._partial.unlink, missing_ok=True)
        try:
            if make_folder:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._partial, _CREATE, 0o666)
        except OSError as e:
            self._leave_nothing.detach()
            raise InputError(f"cannot be written: {e.strerror}", source=self._name) from e
        self._writer = ThreadPoolExecutor(1, "writer")
        self._written: Future[None] | None = None
        self._filling, self._full = memoryview(bytearray(_BATCH)), memoryview(bytearray(_BATCH))
        self._filled = 0

    @property
    def folder(self) -> Path:
        """Where the file is."""
        return self.path.parent

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Copy the bytes, and write the copy while the caller prepares the next bytes.

        Writing rows into the page cache takes as long as formatting them; side by side
        they take half the time. A caller with more bytes at a time prepares the next ones in
        threads of its own: they are written at once.

        Raises:
            InputError: the disk was full, or failed, during an earlier write.
        """
        view = memoryview(data).cast("B")
        if len(view) > _BATCH:
            self._hand_over()
            self._wait()
            with naming(self._name):
                write_all(self._fd, view)
            return
        at = 0
        while at < len(view):
            if self._filled == _BATCH:
                self._hand_over()
            count = min(len(view) - at, _BATCH - self._filled)
            self._filling[self._filled : self._filled + count] = view[at : at + count]
            self._filled += count
            at += count

    def _hand_over(self) -> None:
        """Have the writer write what is filled, after the batch before."""
        self._wait()
        self._full, self._filling = self._filling, self._full
        batch, self._filled = self._full[: self._filled], 0
        self._written = self._writer.submit(write_all, self._fd, batch)

    def _wait(self) -> None:
        if self._written is None:
            return
        written, self._written = self._written, None
        with naming(self._name):
            written.result()

    def save(self) -> None:
        """Have all bytes on the disk, under the temporary name.

        Raises:
            InputError: the disk was full, or failed.
        """
        if self._fd < 0:
            return
        self._hand_over()
        self._wait()
        self._writer.shutdown()
        with naming(self._name):
            if self._durable:
                os.fsync(self._fd)
            # Some file systems notice here that there is no room.
            self._close_descriptor()

    def publish(self) -> None:
        """Give the file its name.

        Raises:
            InputError: the disk failed.
        """
        with naming(self._name):
            self._partial.replace(self.path)
        self._leave_nothing.detach()
        self._leave_nothing = weakref.finalize(self, self.path.unlink, missing_ok=True)

    def close(self) -> None:
        """Let the file stay."""
        self._leave_nothing.detach()

    def discard(self) -> None:
        """Remove the file, whatever it is called by now."""
        self._writer.shutdown()
        self._close_descriptor()
        self._leave_nothing()

    def _close_descriptor(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


Output = FileOutput | PipeOutput
"""A destination for bytes, one of :class:`Outputs`: written, saved, published, then closed.

If there is an error it is discarded instead, and leaves nothing that looks complete.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Outputs:
    """All outputs of a command: they appear together, or none does.

    A context manager: its end completes them, an error discards them.

    Args:
        live: whether pipes get their bytes at once.
        durable: whether files have to survive a crash of the machine.
        make_folders: whether to make the folders of files.
        folder: for the bytes of pipes that wait; by default that of temporary files.
        reader_seconds: how long to wait for the reader of a fifo; None for ever.
    """

    live: bool = False
    durable: bool = True
    make_folders: bool = True
    folder: Path | None = None
    reader_seconds: float | None = None
    _outputs: list[Output] = field(default_factory=list, init=False)

    def open(self, path: Path | str) -> Output:
        """Add an output: a file, the pipe or device that exists there, or ``-`` for stdout.

        Raises:
            InputError: it cannot be opened for writing, or nobody reads the fifo.
            OptionError: another output has its name.
        """
        output: Output
        if path == STDOUT:
            output = self._pipe(1, owned=False, name="standard output")
        elif is_special(Path(path)):
            fd = open_pipe(Path(path), self.reader_seconds)
            output = self._pipe(fd, owned=True, name=str(path))
        else:
            files = [other.path for other in self._outputs if isinstance(other, FileOutput)]
            if Path(os.path.realpath(path)) in files:
                raise OptionError(f"two outputs have the name {path}", hint="Name another file")
            output = FileOutput(Path(path), durable=self.durable, make_folder=self.make_folders)
        self._outputs.append(output)
        return output

    def _pipe(self, fd: int, *, owned: bool, name: str) -> Output:
        if self.live:
            return PipeOutput(fd, owned=owned, name=name, seconds=self.reader_seconds)
        return SpooledOutput(fd, owned=owned, name=name, folder=self.folder)

    def save(self) -> None:
        """Have the bytes of all outputs where there is room for them, after the last write.

        Raises:
            InputError: a disk is full, or failed.
        """
        for output in self._outputs:
            output.save()

    def commit(self) -> None:
        """Complete all outputs; after an error, they are to be discarded.

        Raises:
            InputError: a disk is full, or failed.
            BrokenPipeError: the reader of a pipe has gone.
        """
        self.save()
        # Files can be removed again, if a pipe cannot take its bytes.
        for output in sorted(self._outputs, key=lambda output: isinstance(output, FileOutput)):
            output.publish()
        for folder in {output.folder for output in self._outputs if isinstance(output, FileOutput)}:
            if self.durable:
                with naming(str(folder)):
                    sync_directory(folder)
        for output in self._outputs:
            output.close()
        self._outputs.clear()

    def discard(self) -> None:
        """Leave no output."""
        for output in self._outputs:
            output.discard()
        self._outputs.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.discard()


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """Refuse to replace files, unless that is asked for.

    Raises:
        OptionError: there is one.
    """
    file = next((path for path in paths if not force and path.is_file()), None)
    if file is not None:
        hint = "Give --force to replace it, or another --out"
        raise OptionError(f"{file} exists", hint=hint)


def is_special(path: Path) -> bool:
    """Whether there is something other than a file at a path: a fifo, a device."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


class OutputFile(io.RawIOBase):
    """An output as a file, for libraries that write to one."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def writable(self) -> bool:
        """Say that it is."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
        """Write all bytes."""
        octets = bytes(data)
        self._output.write(octets)
        return len(octets)


class SummaryFiles:
    """A stream of summaries for each set, and an index if asked for.

    The streams are opened in the order of their paths: a fifo waits for its reader. A stream has no
    end marker, so that whole blocks alone would look like all of it: an error leaves half a block
    in the pipes whose readers have got some.

    Args:
        outputs: of which the files are.
        paths: of the streams, by set.
        indexed: whether to write indices, whose suffix is ``.idx``.

    Raises:
        InputError: one cannot be written.
    """

    def __init__(self, outputs: Outputs, paths: Mapping[int, str], *, indexed: bool) -> None:
        self._streams = {set_id: outputs.open(path) for set_id, path in paths.items()}
        self._indices: dict[int, Output] = {}
        for set_id, path in paths.items() if indexed else ():
            head, dot, _ = path.rpartition(".")
            self._indices[set_id] = outputs.open(f"{head if dot else path}.idx")

    def write(self, set_id: int, octets: Octets) -> None:
        """Write the next bytes of a stream; the reader of a pipe that is live gets them at once."""
        self._streams[set_id].write(octets.data)

    def write_index(self, set_id: int, rows: Rows) -> None:
        """Write the next rows of an index."""
        if self._indices:
            self._indices[set_id].write(rows.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for stream in self._streams.values() if kind is not None else ():
            if isinstance(stream, PipeOutput):
                with suppress(OSError, InputError):
                    stream.write(_HALF_A_BLOCK)
