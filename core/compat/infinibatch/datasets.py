"""infinibatch's ready-made chains of iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import ArgumentError
from ._base import CheckpointableIterator
from ._items import MapIterator, SelectManyIterator
from ._prefetch import PrefetchIterator
from ._shuffles import BlockwiseShuffleIterator, BufferedShuffleIterator
from ._sources import create_source_iterator


def bump_seed(seed: int | None, step: int = 1) -> int | None:
    """``seed + step``; None stays None."""
    return None if seed is None else seed + step


def chunked_dataset_iterator(  # noqa: PLR0913, PLR0917 - the peer's arguments
    chunk_refs: Sequence[Any],
    read_chunk_fn: Callable[[Any], Iterable[Any]],
    buffer_size: int,
    train: bool = True,
    seed: int | None = None,
    shuffle: bool = True,
    use_windowed: bool = False,
    transform: Callable[[Any], Any] | None = None,
    prefetch: bool = False,
    num_instances: int = 1,
    instance_rank: int = 0,
    order: str = "mersenne",
    identity: str | None = None,
) -> CheckpointableIterator:
    """The items of chunks, such as the lines of files.

    For training, chunks come in endless random order, are dealt to the ranks in turn, and
    items are shuffled. Otherwise every rank gets consecutive chunks, once.

    Args:
        chunk_refs: references to the chunks, such as file names.
        read_chunk_fn: returns the items of a chunk for its reference.
        buffer_size: items that are shuffled together, and items that are prefetched.
        train: see above.
        seed: None draws one.
        shuffle: False keeps the order of chunks and items.
        use_windowed: shuffle through a buffer instead of within blocks.
        transform: applied to every item.
        prefetch: read chunks in another process; requires ``close`` in the end.
        num_instances: number of ranks.
        instance_rank: this rank, from 0.
        order: of random numbers; see ``InfinitePermutationSourceIterator``.
        identity: of the chunks, such as a digest of their contents: a checkpoint over
            others is refused.

    Raises:
        ArgumentError: ``shuffle`` without ``train``, or an invalid argument.
    """
    if not train and shuffle:
        raise ArgumentError("shuffling is not supported when train=False")
    chunks = create_source_iterator(
        chunk_refs, train, seed, shuffle, num_instances, instance_rank, order, identity
    )
    items: CheckpointableIterator = SelectManyIterator(chunks, read_chunk_fn)
    if prefetch:
        items = PrefetchIterator(items, buffer_size)
    if shuffle:
        kind = BufferedShuffleIterator if use_windowed else BlockwiseShuffleIterator
        items = kind(items, buffer_size, bump_seed(seed), order)
    return items if transform is None else MapIterator(items, transform)
