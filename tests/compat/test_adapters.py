"""The adapter packages have the names that the peers' suites import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

INFINIBATCH = """
from infinibatch.datasets import bump_seed, chunked_dataset_iterator
from infinibatch.iterators import *
names = '''InfinitePermutationSourceIterator ChunkedSourceIterator NativeCheckpointableIterator
create_source_iterator MapIterator ParallelMapIterator SamplingRandomMapIterator ZipIterator
PrefetchIterator MultiplexIterator FixedBatchIterator RecurrentIterator SelectManyIterator
BlockwiseShuffleIterator BufferedShuffleIterator WindowedIterator RandomIterator
BucketedReadaheadBatchIterator CheckpointableIterator'''.split()
assert all(callable(globals()[name]) for name in names)
print(list(FixedBatchIterator(ChunkedSourceIterator([1, 2, 3]), 2)))
"""
EMLOOP = """
from emloop.datasets.stream_wrapper import StreamWrapper
from emloop.types import Stream, TimeProfile
print(list(StreamWrapper(lambda: [1, 2])))
"""


@pytest.mark.parametrize(
    ("adapter", "program", "printed"),
    [
        ("infinibatch_adapter", INFINIBATCH, "[[1, 2], [3]]\n"),
        ("emloop_adapter", EMLOOP, "[1, 2]\n"),
    ],
    ids=["infinibatch", "emloop"],
)
def test_a_suite_finds_what_it_imports(adapter: str, program: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE / adapter), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == printed
