"""Partial files: merged in any order and grouping, and refused wherever they are damaged."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import CoreError, FormatError, InputError, LimitError, MismatchError
from core.losses.finishing import LedgerReports, LedgerResources
from core.losses.ledger import partials
from core.losses.ledger.ledger import Ledger
from core.losses.ledger.partials import export_ledger, header_of, import_ledger
from core.losses.ledger.runs import HeldInMemory
from core.losses.parameters import make_rules
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from core.losses.reports.report import RunOptions
from tests.ledgers import ledger_of
from tests.runs import RUN_REPORTS, RunCase, compute, octets, random_run
from tests.streams import Block, Stream

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.sampled_from([4, 8])


class _Spills:
    def create(self) -> HeldInMemory:
        return HeldInMemory()


def exported(ledger: Ledger) -> bytes:
    parts: list[bytes] = []
    with np.errstate(over="ignore", invalid="ignore"):
        export_ledger(ledger, parts.append)
    return b"".join(parts)


def emptied(case: RunCase, budget: int = 1 << 24) -> Ledger:
    """The ledger of a run without events."""
    nothing = RunCase(case.stream.with_blocks(()), case.periods, case.occurrences)
    return ledger_of(nothing, budget=budget, spill=_Spills())


def merged(case: RunCase, files: list[bytes]) -> Ledger:
    ledger = emptied(case)
    for data in files:
        import_ledger(ledger, [data])
    return ledger


def reports_of(case: RunCase, files: list[bytes]) -> dict[str, bytes]:
    """Reports of partial files alone."""
    rows: dict[str, bytes] = dict.fromkeys(RUN_REPORTS, b"")

    def sink(name: str, table: Rows) -> None:
        rows[name] += table.tobytes()

    def add(ledger: Ledger) -> None:
        for data in files:
            import_ledger(ledger, [data])

    header = header_of([files[0]])
    reports = LedgerReports(
        [REPORTS[name] for name in RUN_REPORTS],
        RunOptions(),
        LedgerResources(on_merged=add, spill=_Spills()),
    )
    reports.begin(header, make_rules(header, Policy(float_width=header.float_width)), case.inputs)
    with np.errstate(over="ignore", invalid="ignore"):
        reports.finish(sink)
    return rows


def partition_files(case: RunCase, rng: np.random.Generator, count: int) -> list[bytes]:
    parts = case.partitions(rng, count)
    return [
        exported(ledger_of(RunCase(part, case.periods, case.occurrences), spill=_Spills()))
        for part in parts
    ]


@given(SEEDS, WIDTHS)
def test_any_order_and_grouping_gives_the_tables_of_the_whole(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    whole = octets(compute(case))
    files = partition_files(case, rng, 3)
    order = rng.permutation(3).tolist()
    assert reports_of(case, [files[i] for i in order]) == whole
    first, second, third = (files[i] for i in order)
    pair = exported(merged(case, [second, third]))
    assert reports_of(case, [first, pair]) == whole
    assert reports_of(case, [pair, first]) == whole


@given(SEEDS, WIDTHS)
def test_the_same_blocks_give_the_same_file(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_run(rng, width=width)
    once, again = (exported(ledger_of(case)) for _ in range(2))
    assert once == again


def test_a_file_describes_itself() -> None:
    case = random_run(np.random.default_rng(3), width=8)
    header = header_of([exported(ledger_of(case))])
    assert (header.len_sample, header.float_width) == (case.stream.samples, 8)
    assert header.summary_set == case.stream.summary_set


# -- what does not belong together -----------------------------------------------------------


def _case(*events: int, samples: int = 3, width: int = 4, summary_set: int = 1) -> RunCase:
    blocks = tuple(Block(e, 1, ((-1, 1.0), (1, 2.0 * e))) for e in events)
    occurrences = tuple((e, e) for e in range(1, 10))
    return RunCase(Stream("summary", samples, width, blocks, summary_set), 9, occurrences)


def _file(*events: int, **options: int) -> bytes:
    return exported(ledger_of(_case(*events, **options)))


def test_the_same_partition_twice_is_refused() -> None:
    with pytest.raises(MismatchError, match="the same partition comes a second time"):
        merged(_case(), [_file(1, 2), _file(1, 2)])


def test_a_partition_that_is_part_of_a_merged_file_is_refused() -> None:
    both = exported(merged(_case(), [_file(1), _file(2)]))
    with pytest.raises(MismatchError, match="the same partition comes a second time"):
        merged(_case(), [both, _file(2)])


def test_partitions_without_events_may_come_twice() -> None:
    pair = exported(merged(_case(), [_file(), _file(1)]))
    assert merged(_case(), [_file(), pair, _file()]).events().tolist() == [1]


def test_an_event_in_two_partitions_is_refused() -> None:
    with pytest.raises(MismatchError, match="the first is event 2") as caught:
        merged(_case(), [_file(1, 2), _file(2, 3)])
    assert caught.value.event == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"samples": 4}, "the partial file has samples 4, and the run 3"),
        ({"summary_set": 2}, "the partial file has summary set 2"),
        ({"width": 8}, "the partial file has float width 8"),
    ],
)
def test_other_streams_are_refused(options: dict[str, int], named: str) -> None:
    with pytest.raises(MismatchError, match=named):
        merged(_case(), [_file(1, **options)])


def test_other_occurrences_are_refused() -> None:
    other = RunCase(_case(1).stream, 9, ((1, 3),))
    with pytest.raises(InputError, match="made with other occurrences"):
        merged(_case(), [exported(ledger_of(other))])


def test_what_exceeds_the_budget_is_refused_where_nothing_can_be_spilled() -> None:
    ledger = emptied(_case(), budget=1 << 14)
    ledger.spill = None
    ledger.budget = 40
    with pytest.raises(LimitError, match="budget of 40 bytes"):
        import_ledger(ledger, [_file(1, 2, 3)])


# -- damage ----------------------------------------------------------------------------------


def test_every_damaged_byte_is_noticed() -> None:
    data = _file(1, 2)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with pytest.raises(CoreError) as caught:
            merged(_case(), [bytes(damaged)])
        assert caught.value.offset is not None, at


def test_every_cut_is_noticed() -> None:
    data = _file(1, 2)
    for size in range(len(data)):
        with pytest.raises(FormatError) as caught:
            merged(_case(), [data[:size]])
        assert caught.value.offset == size


def test_bytes_after_the_end_are_refused() -> None:
    data = _file(1)
    with pytest.raises(FormatError, match="bytes follow the end") as caught:
        merged(_case(), [data + b"x"])
    assert caught.value.offset == len(data)


def test_foreign_files_are_refused() -> None:
    with pytest.raises(FormatError, match="does not begin with TWLEDGER"):
        merged(_case(), [b"SummaryId,EPCalc,EPType\n1,1,1\n"])


def test_pieces_of_any_size_make_the_same_file() -> None:
    data = _file(1, 2, 3)
    ledger = emptied(_case())
    import_ledger(ledger, [data[i : i + 1] for i in range(len(data))])
    assert ledger.events().tolist() == [1, 2, 3]


def _resealed(words: list[int], width: int = 4) -> bytes:
    """A file with right checksums around stretches of one's own."""
    ledger = ledger_of(_case(1, width=width))
    ledger.arena.words[:0] = 0
    ledger.used = 0
    parts: list[bytes] = []
    text = json.dumps(partials._describe(ledger), sort_keys=True).encode()
    head = partials._HEAD.pack(b"TWLEDGER", 1, len(text)) + text
    sections = partials._Sections(parts.append)
    parts.append(head + partials._digest(head))
    sections.put(b"EVTS", memoryview(struct.pack("<i", 1)))
    sections.put(b"RUNS", memoryview(np.array(words, "<i4").tobytes()))
    end = {"digest": "00", "events": 1, "partitions": [], "sections": 2}
    sections.put(b"DONE", memoryview(json.dumps(end).encode()))
    return b"".join(parts)


@pytest.mark.parametrize(
    "words",
    [
        [1, 1, 4, 1, 9, 0, 0, 0],  # a sample beyond the last
        [1, 1, 4, 2, 2, 1, 0, 0],  # samples that do not ascend
        [1, 1, 4, 9, 1, 0, 0, 0],  # more cells than there are
        [10, 1, 4, 1, 1, 0, 0, 0],  # a period beyond the last
        [1, 0, 4, 1, 1, 0, 0, 0],  # no summary
        [1, 1, 9, 1, 1, 0, 0, 0],  # an unknown code
        [1, 1, 0, 1, 3, 0, 0, 0, 0, 0],  # two marks for one cell
        [1, 1, 0, 1, 64, 0, 0, 0, 0, 0],  # a mark beyond the last cell
        [1, 1, 4, 1, 1, 0, 0x7FC00000, 0],  # NaN
        [1, 1, 4, 1, 1, 0],  # cut
        [2, 1, 4, 0, 1, 1, 4, 0],  # periods that do not ascend
    ],
)
def test_stretches_that_cannot_be_are_refused_whatever_their_checksum(words: list[int]) -> None:
    with pytest.raises(FormatError) as caught:
        merged(_case(), [_resealed(words)])
    assert caught.value.offset
