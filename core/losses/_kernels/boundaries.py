"""Finding where an event begins in the middle of a stream."""

from __future__ import annotations

from ..._jit import kernel
from .layout import ZERO, Words


@kernel
def find_event(words: Words, zeros: int) -> int:
    """First word of a block that belongs to another event than the block before; -1 if none.

    A block ends with a pair of zeros, and the id of an event, which follows, is not 0. Within
    a block there is never a run of so many zero words: a sample id, which is not 0 either,
    separates a loss of 0 from the next. So the end of such a run is the end of a block,
    wherever in the stream the words begin.

    Args:
        words: of the stream, from any word on.
        zeros: words of the pair that ends a block: 2 or 3.
    """
    run = ZERO
    event = ZERO
    for i in range(len(words)):
        word = int(words[i])
        if word == 0:
            run += 1
            continue
        if run >= zeros:
            if event != 0 and word != event:
                return i
            event = word
        run = ZERO
    return -1
