"""infinibatch's iterators: its names, arguments, types and order, with small checkpoints."""

from ._base import CheckpointableIterator
from ._bucketed import BucketedReadaheadBatchIterator
from ._items import (
    FixedBatchIterator,
    MapIterator,
    MultiplexIterator,
    RecurrentIterator,
    SelectManyIterator,
    WindowedIterator,
    ZipIterator,
)
from ._prefetch import ParallelMapIterator, PrefetchIterator
from ._shuffles import BlockwiseShuffleIterator, BufferedShuffleIterator, SamplingRandomMapIterator
from ._sources import (
    ChunkedSourceIterator,
    InfinitePermutationSourceIterator,
    NativeCheckpointableIterator,
    RandomIterator,
    create_source_iterator,
)

__all__ = [
    "BlockwiseShuffleIterator",
    "BucketedReadaheadBatchIterator",
    "BufferedShuffleIterator",
    "CheckpointableIterator",
    "ChunkedSourceIterator",
    "FixedBatchIterator",
    "InfinitePermutationSourceIterator",
    "MapIterator",
    "MultiplexIterator",
    "NativeCheckpointableIterator",
    "ParallelMapIterator",
    "PrefetchIterator",
    "RandomIterator",
    "RecurrentIterator",
    "SamplingRandomMapIterator",
    "SelectManyIterator",
    "WindowedIterator",
    "ZipIterator",
    "create_source_iterator",
]
