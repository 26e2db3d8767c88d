"""What the environment of a run says to its tools, and how they write files.

All files of a tool are whole under their names, or none is there. The tools that read them start
when the writer has ended. There is no sync, because a run that a crash interrupts begins again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.losses.outputs import Outputs
from app.oasis.outputs import AAL_MEMORY_VARIABLE, TMPDIR_VARIABLE, float_width
from core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Environment:
    """Settings of a process."""

    float_width: int
    """Bytes of a loss, in streams and tables."""
    memory: int | None
    """Bytes that ``aalpy`` may use for its sums; None if it is not said."""
    temporary: Path | None
    """Where temporary files go; None if it is not said."""


def read_environment() -> Environment:
    """Read the variables.

    Raises:
        OptionError: naming a variable whose value is not supported.
    """
    try:
        width = float_width()
    except ValueError as e:
        raise OptionError(str(e)) from e
    temporary = os.environ.get(TMPDIR_VARIABLE)
    return Environment(width, _memory(), Path(temporary) if temporary else None)


def _memory() -> int | None:
    text = os.environ.get(AAL_MEMORY_VARIABLE)
    if text is None:
        return None
    try:
        size = int(float(text) * 2**30)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise OptionError(f"{AAL_MEMORY_VARIABLE}={text} is not a number of GB above 0")
    return size


READER_SECONDS: Final = 120.0
"""A script starts the reader of a fifo first: one that has not come after so long has died."""


def tool_outputs(*, live: bool = False) -> Outputs:
    """The outputs of a tool, whose folders have to exist.

    Args:
        live: whether the readers of fifos get bytes at once.
    """
    return Outputs(live=live, durable=False, make_folders=False, reader_seconds=READER_SECONDS)
