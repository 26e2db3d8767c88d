"""Files that a tool writes: whole under their names, or not at all.

The tools that read them start when the writer has ended, or read a fifo while it writes. So a file
appears by a rename, when it is complete; there is no sync, because a run that a crash interrupts
begins again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import InputError


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
        self._temporary: Path | None = None
        if not self.is_pipe:
            self._temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.partial")
        try:
            self.file: BinaryIO = open(self._temporary or self._target, "wb")  # noqa: PTH123, SIM115 - closed by commit or discard
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
