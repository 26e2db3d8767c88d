"""Loss sets of streams: what they hold, what they refuse, and the ledger as a check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.losses.indexing import LossColumns
from core.losses.ledger.batches import sums_of
from core.portfolio.building import TableBuilder
from core.portfolio.combining import Subject
from tests.ledgers import ledger_of
from tests.portfolios import as_run, random_set, table_of
from tests.streams import Block

SEEDS = st.integers(0, 2**32 - 1)


def columns(*blocks: Block) -> LossColumns:
    """Blocks of one event each."""
    pairs = [pair for block in blocks for pair in block.pairs]
    count = len(blocks)
    return LossColumns(
        np.array([b.event for b in blocks], np.int32),
        np.arange(count + 1),
        np.array([b.ident for b in blocks], np.int32),
        np.ones(count),
        np.cumsum([0, *(len(b.pairs) for b in blocks)]),
        np.array([s for s, _ in pairs], np.int32),
        np.array([x for _, x in pairs]),
        np.ones(count, np.int64),
    )


@given(SEEDS, st.sampled_from([4, 8]))
def test_a_set_has_what_the_stream_has(seed: int, width: int) -> None:
    case = random_set(np.random.default_rng(seed), width=width)
    stream = case.stream
    shuffled = list(stream.blocks)
    np.random.default_rng(seed).shuffle(shuffled)
    order = {event: k for k, event in enumerate(dict.fromkeys(b.event for b in shuffled))}
    table = table_of(stream.with_blocks(sorted(shuffled, key=lambda b: order[b.event])))
    found = {}
    for e, event in enumerate(table.event_ids.tolist()):
        for b in range(table.event_starts[e], table.event_starts[e + 1]):
            for k in range(table.counts[b]):
                sample = int(table.samples[table.samples_at[b] + k])
                loss = float(table.losses[table.losses_at[b] + k])
                found[event, int(table.summary_ids[b]), sample] = loss
    assert list(found.items()) == sorted(case.losses.items())


@given(SEEDS)
def test_sums_and_maxima_equal_those_of_the_ledger(seed: int) -> None:
    case = random_set(np.random.default_rng(seed))
    run = as_run(case, ())
    ledger = ledger_of(run)
    cells = Subject([case.member()], len(case.summaries)).cells()
    found = [
        (
            case.summaries[cells.summaries[pair]],
            int(cells.periods[pair]),
            int(cells.samples[k]),
            float(cells.sums[k]),
            float(cells.largest[k]),
        )
        for pair in range(len(cells.summaries))
        for k in range(cells.starts[pair], cells.starts[pair + 1])
    ]
    assert found == list(sums_of(ledger))


def test_special_samples_and_zeros_are_left_out_and_samples_are_sorted() -> None:
    builder = TableBuilder(5)
    pairs = ((-5, 9.0), (-3, 2.0), (-1, 1.5), (3, 4.0), (2, 0.0), (1, 6.0))
    part = builder.take(columns(Block(7, 1, pairs), Block(8, 1, ((1, 0.0),))))
    assert part.samples.tolist() == [0, 1, 3]
    assert part.losses.tolist() == [1.5, 6.0, 4.0]
    assert part.event_ids.tolist() == [7]
    assert builder.finish().tolist() == [7]


@pytest.mark.parametrize("loss", [-1.0, np.nan, np.inf])
def test_losses_that_cannot_be_added_are_refused(loss: float) -> None:
    builder = TableBuilder(5, "run")
    with pytest.raises(InputError) as caught:
        builder.take(columns(Block(7, 1, ((1, 1.0),)), Block(8, 3, ((2, loss),))))
    assert (caught.value.event, caught.value.block, caught.value.source) == (8, 3, "run")
    with pytest.raises(InputError, match="sample 6"):
        builder.take(columns(Block(7, 1, ((6, 1.0),))))


def test_a_set_without_losses_or_with_a_block_twice_is_refused() -> None:
    builder = TableBuilder(5)
    with pytest.raises(InputError, match="no loss"):
        builder.finish()
    for _ in range(2):
        builder.take(columns(Block(7, 1, ((1, 1.0),))))
    with pytest.raises(InputError, match="twice"):
        builder.finish()
