"""Partial files: read into a ledger, and written from one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from core.errors import InputError
from core.losses.events import StreamHeader
from core.losses.ledger.ledger import Ledger
from core.losses.ledger.partials import export_ledger, header_of, import_ledger

from .outputs import Outputs

_PIECE = 4 << 20


def _pieces(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as file:
            yield from iter(lambda: file.read(_PIECE), b"")
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", source=path) from e


def partial_header(path: str) -> StreamHeader:
    """What stream a partial file is of.

    Raises:
        FormatError: it is damaged or foreign.
        InputError: it cannot be read.
    """
    return header_of(itertools.islice(_pieces(path), 1), path)


class Exchange:
    """Adds partial files to a ledger that is complete otherwise, and writes one of the whole.

    Args:
        inputs: partial files to add.
        output: partial file to write, or None.
        outputs: of which it is.
    """

    def __init__(self, inputs: Sequence[str], output: str | None, outputs: Outputs) -> None:
        self._inputs = list(inputs)
        self._output = output
        self._outputs = outputs
        self.events = 0
        """In the ledger at the end."""

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._inputs) or self._output is not None

    def __call__(self, ledger: Ledger) -> None:
        """Do it.

        Raises:
            CoreError: a file is damaged, foreign, or of a partition that is there already.
        """
        for path in self._inputs:
            import_ledger(ledger, _pieces(path), path)
        if self._output is not None:
            write: Callable[[bytes], None] = self._outputs.open(self._output).write
            export_ledger(ledger, write)
        self.events = len(ledger.events())
