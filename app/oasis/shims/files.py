"""Files that a tool writes: whole under their names, or not at all.

The tools that read them start when the writer has ended, or read a fifo while it writes. So a file
appears by a rename, when it is complete; there is no sync, because a run that a crash interrupts
begins again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import InputError

READER_SECONDS = 120.0
"""A script starts the reader of a fifo first: one that has not come after so long has died."""


def _open_fifo(path: Path) -> BinaryIO:
    """Open a fifo for writing, which waits for its reader.

    Raises:
        OSError: the fifo cannot be opened.
        InputError: no reader comes.
    """
    opening: Future[int] = Future()

    def wait() -> None:
        try:
            opening.set_result(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        except OSError as e:
            opening.set_exception(e)

    # A daemon, which does not keep a process that has given up.
    threading.Thread(target=wait, daemon=True).start()
    try:
        return os.fdopen(opening.result(READER_SECONDS), "wb")
    except TimeoutError as e:
        raise InputError(f"nobody has read it for {READER_SECONDS:.0f} s", source=str(path)) from e


class OutputFile:
    """A file, fifo or device to write to.

    Args:
        path: of the file.

    Raises:
        InputError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # A link stays a link; what it names is replaced.
        self._target = Path(os.path.realpath(path))
        self.is_pipe = self._target.exists() and not stat.S_ISREG(self._target.stat().st_mode)
        self.file: BinaryIO
        self._temporary: Path | None = None
        if not self.is_pipe:
            self._temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.partial")
        try:
            if self._target.is_fifo():
                self.file = _open_fifo(self._target)
            else:
                self.file = open(self._temporary or self._target, "wb")  # noqa: PTH123, SIM115 - closed by commit or discard
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", source=path) from e

    def write(self, data: Any) -> None:  # noqa: ANN401 - a buffer
        """Write all bytes.

        Raises:
            InputError: the disk is full, or failed.
            BrokenPipeError: the reader has gone.
        """
        try:
            self.file.write(data)
        except OSError as e:
            raise self._error(e) from e

    def flush(self) -> None:
        """Hand everything to the reader.

        Raises:
            InputError: the disk is full, or failed.
            BrokenPipeError: the reader has gone.
        """
        try:
            self.file.flush()
        except OSError as e:
            raise self._error(e) from e

    def commit(self) -> None:
        """Complete the file, after the last write.

        Raises:
            InputError: the disk is full, or failed.
            BrokenPipeError: the reader has gone.
        """
        try:
            self.file.close()
            if self._temporary is not None:
                self._temporary.replace(self._target)
        except OSError as e:
            raise self._error(e) from e

    def discard(self) -> None:
        """Leave nothing under the name; may be called after a failure of any other method."""
        with contextlib.suppress(OSError):
            self.file.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def _error(self, e: OSError) -> Exception:
        if isinstance(e, BrokenPipeError):
            return e
        return InputError(f"cannot be written: {e.strerror}", source=self.path)
