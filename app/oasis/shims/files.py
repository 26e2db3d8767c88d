"""Files that a tool writes: all of them whole under their names, or none.

The tools that read them start when the writer has ended. There is no sync, because a run that a
crash interrupts begins again.
"""

from __future__ import annotations

from typing import Final

from app.losses.outputs import Outputs

READER_SECONDS: Final = 120.0
"""A script starts the reader of a fifo first: one that has not come after so long has died."""


def tool_outputs(*, live: bool = False) -> Outputs:
    """The outputs of a tool, whose folders have to exist.

    Args:
        live: whether the readers of fifos get bytes at once.
    """
    return Outputs(live=live, durable=False, make_folders=False, reader_seconds=READER_SECONDS)
