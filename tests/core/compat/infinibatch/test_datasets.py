"""Checklist: chunked_dataset_iterator and bump_seed."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from core.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator

CHUNKS = {"a": [1, 2, 3, 4], "b": [5], "c": [6, 7, 8, 9, 10, 11], "d": [12, 13, 14]}


def test_bump_seed_adds_its_step() -> None:
    """Flaw beaten: the step was ignored."""
    assert (bump_seed(5), bump_seed(5, 3), bump_seed(None, 3)) == (6, 8, None)


def test_without_training_the_ranks_give_the_items_in_order_once() -> None:
    ranks = [
        list(
            chunked_dataset_iterator(
                list(CHUNKS),
                CHUNKS.__getitem__,
                9,
                False,
                shuffle=False,
                num_instances=3,
                instance_rank=rank,
            )
        )
        for rank in range(3)
    ]
    assert ranks == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14]]
    with pytest.raises(ValueError, match="not supported when train=False"):
        chunked_dataset_iterator(list(CHUNKS), CHUNKS.__getitem__, 9, train=False)


def test_unshuffled_training_repeats_the_items_transformed() -> None:
    iterator = chunked_dataset_iterator(
        list(CHUNKS), CHUNKS.__getitem__, 9, shuffle=False, transform=lambda item: -item
    )
    assert list(islice(iterator, 28)) == [-item for item in range(1, 15)] * 2


@pytest.mark.parametrize("order", ["mersenne", "counter"])
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("windowed", [False, True])
def test_shuffled_training_is_exact_from_a_checkpoint(
    windowed: bool, prefetch: bool, order: str
) -> None:
    for seed in (None, 4):
        iterator = chunked_dataset_iterator(
            list(CHUNKS),
            CHUNKS.__getitem__,
            6,
            seed=seed,
            use_windowed=windowed,
            prefetch=prefetch,
            num_instances=2,
            order=order,
        )
        head = list(islice(iterator, 17))
        state = json.loads(json.dumps(iterator.getstate()))
        tail = list(islice(iterator, 20))
        assert set(head + tail) <= set(range(1, 15))
        iterator.setstate(state)
        assert list(islice(iterator, 20)) == tail
        iterator.close()
