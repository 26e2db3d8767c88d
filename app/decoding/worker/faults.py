"""What a decoder reports instead of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Fault(Exception):  # noqa: N818 - not an error of ours, but of a file
    """A file cannot be decoded.

    Args:
        message: what is wrong, beginning in lower case.
        hint: how to fix it, or None.
        offset: byte of the file, or None.
    """

    def __init__(self, message: str, hint: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Pending:
    """A result whose size is known only now: it needs shared memory before it can be given."""

    nbytes: int
    write: Callable[[memoryview], dict[str, Any]]
    """Writes the result to memory of that size; returns the JSON that goes with it."""
