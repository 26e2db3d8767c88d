"""Errors that cross threads without the data that the failed call worked with."""

from __future__ import annotations

import traceback


def forget_locals(error: BaseException) -> None:
    """Clear the local variables of all frames that an error and its causes refer to.

    An error refers to the frames it came through, and so to the arrays in them. Whoever awaits the
    error refers to it, often in a cycle: until the next full collection of garbage, memory that is
    counted as free would still be taken. The lines of the traceback stay.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            left += (current.__cause__, current.__context__)
