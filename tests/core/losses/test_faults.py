from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import (
    BlockIdError,
    BlockRepeatedError,
    ConcatenatedError,
    CoreError,
    EmptyStreamError,
    EventIdError,
    EventOrderError,
    EventReopenedError,
    ExposureError,
    HeaderError,
    LimitError,
    LossNegativeError,
    LossNotFiniteError,
    SampleOrderError,
    SampleRangeError,
    SampleRepeatedError,
    TerminatorError,
    TruncatedError,
    UnsupportedStreamError,
)
from core.losses.analysis import Analysis
from core.losses.policy import Policy
from core.losses.reader import LossReader
from core.losses.reports import REPORTS
from tests import oracle
from tests.scale import SOAK, examples, half
from tests.streams import (
    LETTERS,
    QUANTILES,
    TYPES,
    Block,
    Collector,
    Pairs,
    Signature,
    Stream,
    analysis_options,
    bytewise,
    feed,
    in_threes,
    make_header,
    random_cuts,
    random_stream,
    read,
    rows_of,
    streams,
)

SEEDS = st.integers(0, 2**32 - 1)
INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
NAN = float("nan")
INFINITY = float("inf")

GOOD = (
    Block(1, 1, ((-5, 9.0), (-1, 2.0), (1, 1.0), (3, 2.0))),
    Block(1, 2, ((-1, 2.0), (2, 1.0))),
    Block(2, 1, ((1, 4.0), (2, 0.0), (4, 1.0)), 5.0),
)
SAMPLES = 4

PIECES = bytewise if SOAK else in_threes
"""How streams come, besides whole: in pieces that are shorter than any of their numbers."""

every_stream = pytest.mark.parametrize(
    ("kind", "width"), [(kind, width) for kind in TYPES for width in (4, 8)]
)


def good(kind: str, width: int) -> Stream:
    return Stream(kind, SAMPLES, width, GOOD)


def outcomes(data: bytes, reports: Iterable[str], policy: Policy) -> list[Signature | None]:
    """The error of every consumer, however it is fed."""
    names = tuple(reports)
    found = [feed(pieces, names, policy=policy).error for pieces in ([data], PIECES(data))]
    found += [read(pieces, LossReader(policy)).error for pieces in ([data], PIECES(data))]
    return found


def rows_before(data: bytes, reports: tuple[str, ...], policy: Policy, *, close: bool) -> Any:  # noqa: ANN401
    collector = Collector()
    analysis = Analysis(reports, collector, policy=policy, **analysis_options(reports))
    analysis.receive(data)
    if close:
        analysis.close()
    return collector.rows


def check(
    data: bytes,
    stream: Stream,
    error: type[CoreError],
    text: str,
    *,
    at: int | None,
    event: int | None = None,
    block: int | None = None,
    start: int | None = None,
    closes: bool = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """The same fault is found by all, and the rows before it are delivered.

    ``start`` is where the wrong block begins; the event before is known to be over
    if ``closes``.
    """
    policy = Policy(float_width=stream.width, **options)
    fed = [feed(pieces, stream.reports, policy=policy) for pieces in ([data], PIECES(data))]
    found = [outcome.error for outcome in fed]
    found += [read(pieces, LossReader(policy)).error for pieces in ([data], PIECES(data))]
    assert len(set(found)) == 1, found
    assert found[0] is not None
    name, code, message, *place = found[0]
    assert (name, code) == (error.__name__, error.code)
    assert text in message
    assert place == [at, event, block]
    if start is not None:
        rows = rows_before(data[:start], stream.reports, policy, close=closes)
        assert [outcome.rows for outcome in fed] == [rows, rows]
    stays(data, stream, policy)


def run_to_end(analysis: Analysis, data: bytes) -> None:
    analysis.receive(data)
    analysis.close()


def stays(data: bytes, stream: Stream, policy: Policy) -> None:
    names = stream.reports
    analysis = Analysis(names, Collector(), policy=policy, **analysis_options(names))
    caught: list[CoreError] = []
    for use in (
        partial(run_to_end, analysis, data),
        partial(analysis.receive, data),
        analysis.close,
        analysis.getstate,
    ):
        with pytest.raises(CoreError) as info:
            use()
        caught.append(info.value)
    assert all(error is caught[0] for error in caught)


def check_block(
    stream: Stream,
    bad: Block,
    error: type[CoreError],
    text: str,
    *,
    skip: int,
    event: int | None = None,
    block: int | None = None,
    closes: bool = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """A wrong block behind the good ones, with more behind it; ``skip`` bytes into it."""
    start = len(stream.encode())
    whole = stream.with_blocks([*stream.blocks, bad, Block(INT_MAX, 1, ((1, 1.0),))]).encode()
    place = {"at": start + skip, "event": event, "block": block}
    check(whole, stream, error, text, start=start, closes=closes, **place, **options)


def head(stream: Stream) -> int:
    return 8 + (stream.width if stream.kind == "summary" else 0)


# -- header --------------------------------------------------------------------------


def test_no_bytes() -> None:
    check(b"", good("loss", 4), EmptyStreamError, "the stream is empty", at=0)


@every_stream
def test_a_header_alone_is_a_valid_stream(kind: str, width: int) -> None:
    stream = Stream(kind, SAMPLES, width, ())
    policy = Policy(float_width=width)
    assert outcomes(stream.header, stream.reports, policy) == [None] * 4
    end = feed([stream.header], stream.reports, policy=policy).end
    assert end is not None
    assert (end.bytes, end.events, end.blocks, end.pairs) == (len(stream.header), 0, 0, 0)
    assert end.ascending


@every_stream
def test_a_cut_header(kind: str, width: int) -> None:
    stream = good(kind, width)
    for n in range(1, len(stream.header)):
        text = f"ends inside its header, after {n} bytes"
        check(stream.header[:n], stream, TruncatedError, text, at=n)


@pytest.mark.parametrize("more", [b"", b"\1\0\0\0", bytes(100)])
def test_a_cdf_stream(more: bytes) -> None:
    check(b"\1\0\0\0" + more, good("loss", 4), UnsupportedStreamError, "cdf", at=0)


@pytest.mark.parametrize(
    "octets",
    [
        *(b"\0\0\0\0", b"\2\0\0\0", b"\3\0\0\1", b"\0\0\0\1", b"\2\0\0\2", b"\2\0\0\3"),
        *(b"\1\0\0\4", b"\1\1\0\2", b"\1\0\1\3", b"\xff\xff\xff\xff", b"Even", b"\1\0\0\x83"),
    ],
)
def test_an_unknown_type(octets: bytes) -> None:
    for more in (b"", bytes(64)):
        check(octets + more, good("loss", 4), HeaderError, octets.hex(" "), at=0)


@every_stream
def test_a_second_stream(kind: str, width: int) -> None:
    stream = good(kind, width)
    data = stream.encode()
    # The first block of items after summaries of eight bytes is like one of summaries.
    for other in TYPES if width == 4 else [kind]:
        second = replace(stream, kind=other).encode()
        for more in (second, second[: len(stream.header)], second[:4]):
            found = ConcatenatedError, "a second stream begins"
            check(data + more, stream, *found, at=len(data), start=len(data))


def test_an_event_with_the_number_of_a_type_is_an_event() -> None:
    ids = [int.from_bytes(make_header(kind, SAMPLES)[:4], "little") for kind in TYPES]
    stream = good("loss", 4).with_blocks(Block(event, 1, ((1, 1.0),)) for event in ids)
    assert outcomes(stream.encode(), stream.reports, Policy()) == [None] * 4
    again = stream.encode() + stream.encode_block(stream.blocks[0])
    at, event = stream.boundaries()[-1], ids[0]
    check(again, stream, EventReopenedError, "begins again", at=at, event=event, block=1)


@every_stream
@pytest.mark.parametrize("samples", [0, -1, INT_MIN])
def test_no_samples(kind: str, width: int, samples: int) -> None:
    stream = replace(good(kind, width), samples=samples)
    check(stream.encode(), stream, HeaderError, f"len_sample is {samples}:", at=4)


@every_stream
def test_too_many_samples(kind: str, width: int) -> None:
    cases: list[tuple[int, dict[str, Any]]] = [
        *((1_000_001, {}), (INT_MAX, {}), (11, {"max_samples": 10}))
    ]
    for samples, options in cases:
        stream = replace(good(kind, width), samples=samples)
        data = stream.encode()
        check(data, stream, LimitError, f"len_sample is {samples}, above", at=4, **options)
    stream = replace(good(kind, width), samples=10)
    policy = Policy(float_width=width, max_samples=10)
    assert outcomes(stream.encode(), stream.reports, policy) == [None] * 4


# -- ends ----------------------------------------------------------------------------


@every_stream
def test_a_cut_at_every_byte(kind: str, width: int) -> None:
    stream = good(kind, width)
    data = stream.encode()
    policy = Policy(float_width=width)
    whole = feed([data], stream.reports, policy=policy).rows
    boundaries = stream.boundaries()
    # Every third byte in a normal run: no field has a length that 3 divides.
    for n in sorted(
        {*range(0, len(data), 1 if SOAK else 3), *(b for b in boundaries if b < len(data))}
    ):
        if n in boundaries:
            assert outcomes(data[:n], stream.reports, policy) == [None] * 4
            rows = feed([data[:n]], stream.reports, policy=policy).rows
            cut_rows = {name: octets for name, octets in rows.items() if name != "events"}
            assert all(whole[name].startswith(octets) for name, octets in cut_rows.items())
            continue
        if n < boundaries[0]:
            continue
        start = max(b for b in boundaries if b < n)
        block = stream.blocks[boundaries.index(start)]
        pairs, known = (n - start - head(stream)) // (4 + width), n - start >= head(stream)
        text = f"{block.ident}, after {pairs} whole pairs" if known else "a block's header"
        check(
            data[:n],
            stream,
            TruncatedError,
            f"the stream ends inside {text}" if not known else text,
            at=n,
            event=block.event if known else None,
            block=block.ident if known else None,
            start=start,
        )


@every_stream
def test_a_fault_in_a_cut_block_is_named(kind: str, width: int) -> None:
    stream = good(kind, width)
    start = len(stream.encode())
    bad = stream.encode_block(Block(3, 3, ((1, 1.0), (1, 2.0), (2, 2.0))))
    for cut in range(head(stream) + 2 * (4 + width), len(bad)):
        check(
            stream.encode() + bad[:cut],
            stream,
            SampleRepeatedError,
            "sidx 1 comes twice",
            at=start + head(stream) + 4 + width,
            event=3,
            block=3,
            start=start,
        )


@every_stream
def test_trailing_garbage(kind: str, width: int) -> None:
    stream = good(kind, width)
    data = stream.encode()
    for n in (1, 2, 3, 4, 7):
        check(data + bytes(n), stream, TruncatedError, "header", at=len(data) + n, start=len(data))
    for n in (head(stream), 16, 100):
        check(data + bytes(n), stream, EventIdError, "event id 0", at=len(data), start=len(data))
    for text in (b"\r\n", b"hello, world! " * 9):
        policy = Policy(float_width=width)
        found = outcomes(data + text, stream.reports, policy)
        assert len(set(found)) == 1
        assert found[0] is not None


@settings(max_examples=examples(100))
@given(st.sampled_from(list(TYPES)), st.sampled_from([4, 8]), st.binary(min_size=1, max_size=300))
def test_garbage_behind_a_header(kind: str, width: int, garbage: bytes) -> None:
    stream = good(kind, width)
    found = outcomes(stream.header + garbage, stream.reports, Policy(float_width=width))
    assert len(set(found)) == 1
    # A valid block out of random bytes is out of reach, but Hypothesis may try zeros and ones.
    if found[0] is None:
        assert garbage[0] == 1 or len(garbage) % 4 == 0


# -- ids -----------------------------------------------------------------------------


@every_stream
@pytest.mark.parametrize("event", [0, -1, INT_MIN])
def test_an_event_id_below_one(kind: str, width: int, event: int) -> None:
    stream = good(kind, width)
    text = f"a block begins with event id {event}"
    check_block(stream, Block(event, 1, ((1, 1.0),)), EventIdError, text, skip=0)


@every_stream
@pytest.mark.parametrize("ident", [0, -1, INT_MIN])
def test_a_block_id_below_one(kind: str, width: int, ident: int) -> None:
    stream = good(kind, width)
    noun = "summary" if kind == "summary" else "item"
    text = f"the {noun} id is {ident}"
    check_block(stream, Block(3, ident), BlockIdError, text, skip=4, event=3)


@every_stream
def test_a_reopened_event(kind: str, width: int) -> None:
    stream = good(kind, width)
    text = "event 1 begins again"
    check_block(
        stream, Block(1, 3), EventReopenedError, text, skip=0, event=1, block=3, closes=True
    )


PAGES = (1, 4095, 4096, 4097, 8191, 8192, 2**20, 2**30, INT_MAX - 4096, INT_MAX - 1, INT_MAX)


@pytest.mark.parametrize("again", PAGES)
def test_events_reopened_in_any_page_of_the_bitmap(again: int) -> None:
    rng = np.random.default_rng(again)
    for events in (PAGES, PAGES[::-1], rng.permutation(PAGES).tolist()):
        stream = Stream("loss", 2, 4, tuple(Block(event, 1) for event in events))
        assert feed([stream.encode()], ["events"]).error is None
        last = again if again != events[-1] else events[0]
        start = len(stream.encode())
        data = stream.with_blocks([*stream.blocks, Block(last, 2)]).encode()
        place: dict[str, Any] = {"at": start, "event": last, "block": 2}
        text = f"event {last} begins again"
        check(data, stream, EventReopenedError, text, start=start, closes=True, **place)


def test_an_event_reopened_after_many() -> None:
    count = 5000
    stream = Stream("gul", 1, 4, tuple(Block(event, 1) for event in range(1, count + 1)))
    for again in (1, 2500, count - 1):
        data = stream.with_blocks([*stream.blocks, Block(again, 2)]).encode()
        error = feed([data], ["events"]).error
        assert error is not None
        assert error[0] == EventReopenedError.__name__
        assert error[3:] == (len(stream.encode()), again, 2)
        assert read([data], LossReader()).error == error


@every_stream
@pytest.mark.parametrize("idents", [(1, 1), (7, 3, 9, 7), (1, INT_MAX, 2, INT_MAX)])
def test_a_repeated_block(kind: str, width: int, idents: tuple[int, ...]) -> None:
    stream = good(kind, width)
    *before, last = idents
    longer = stream.with_blocks([*stream.blocks, *(Block(3, ident) for ident in before)])
    noun = "summary" if kind == "summary" else "item"
    text = f"{noun} {last} comes twice in event 3"
    bad = Block(3, last, ((1, 1.0),))
    check_block(longer, bad, BlockRepeatedError, text, skip=4, event=3, block=last)


def test_a_repeated_block_among_many() -> None:
    count = 400
    idents = np.random.default_rng(3).permutation(INT_MAX // 2000)[:count] * 2000 + 1
    blocks = [Block(1, ident) for ident in idents.tolist()]
    stream = Stream("loss", 1, 4, tuple(blocks))
    for again in (0, 63, 64, 399):
        data = stream.with_blocks([*blocks, blocks[again]]).encode()
        place: dict[str, Any] = {"event": 1, "block": blocks[again].ident}
        at = len(stream.encode()) + 4
        check(data, stream, BlockRepeatedError, "comes twice in event 1", at=at, **place)


def test_a_block_may_come_again_in_another_event() -> None:
    blocks = [Block(event, ident) for event in (5, 2, 9) for ident in (1, 2, 3)]
    assert feed([Stream("loss", 1, 4, tuple(blocks)).encode()], ["events"]).error is None


# -- pairs ---------------------------------------------------------------------------

WRONG_SIDX: list[tuple[Pairs, int, type[CoreError], str]] = [
    (((SAMPLES + 1, 1.0),), 0, SampleRangeError, "sidx 5 is outside -5 to 4"),
    (((1, 1.0), (INT_MAX, 1.0)), 1, SampleRangeError, f"sidx {INT_MAX} is outside"),
    (((-6, 1.0), (1, 1.0)), 0, SampleRangeError, "sidx -6 is outside"),
    (((-1, 1.0), (INT_MIN, 1.0)), 1, SampleRangeError, f"sidx {INT_MIN} is outside"),
    (((1, 1.0), (-6, 1.0)), 1, SampleRangeError, "sidx -6 is outside"),
    (((1, 1.0), (1, 1.0)), 1, SampleRepeatedError, "sidx 1 comes twice in one block"),
    (((1, 1.0), (2, 1.0), (1, 1.0)), 2, SampleRepeatedError, "sidx 1 comes twice"),
    (((-1, 1.0), (-1, 1.0)), 1, SampleRepeatedError, "sidx -1 comes twice"),
    (((-5, 1.0), (-1, 1.0), (-5, 2.0), (1, 1.0)), 2, SampleRepeatedError, "sidx -5 comes"),
    (((2, 1.0), (1, 1.0)), 1, SampleOrderError, "sidx 1 comes after a higher one"),
    (((1, 1.0), (3, 1.0), (4, 1.0), (2, 1.0)), 3, SampleOrderError, "sidx 2 comes after"),
    (((1, 1.0), (-1, 1.0)), 1, SampleOrderError, "sidx -1 comes after a higher one"),
    (tuple((1 + i % 4, 1.0) for i in range(40)), 4, SampleRepeatedError, "sidx 1 comes twice"),
    (((1, 1.0), (1, NAN), (9, -1.0)), 1, SampleRepeatedError, "sidx 1 comes twice"),
]


@every_stream
@pytest.mark.parametrize(("pairs", "wrong", "error", "text"), WRONG_SIDX)
def test_a_wrong_sidx(
    kind: str, width: int, pairs: Pairs, wrong: int, error: type[CoreError], text: str
) -> None:
    stream = good(kind, width)
    skip = head(stream) + wrong * (4 + width)
    check_block(stream, Block(2, 5, pairs), error, text, skip=skip, event=2, block=5)


WRONG_LOSSES: list[tuple[float, type[CoreError], str]] = [
    (NAN, LossNotFiniteError, "nan"),
    (INFINITY, LossNotFiniteError, "inf"),
    (-INFINITY, LossNotFiniteError, "-inf"),
    (-1.5, LossNegativeError, "-1.5"),
    (-1e-40, LossNegativeError, "-1e-40"),
]


@every_stream
@pytest.mark.parametrize(("loss", "error", "text"), WRONG_LOSSES)
@pytest.mark.parametrize("sidx", [-5, -3, -1, 1, 4])
def test_a_wrong_loss(
    kind: str, width: int, loss: float, error: type[CoreError], text: str, sidx: int
) -> None:
    stream = good(kind, width)
    order = [-5, -3, -1, 1, 2, 4]
    pairs = tuple((s, loss if s == sidx else 1.0) for s in order)
    skip = head(stream) + order.index(sidx) * (4 + width) + 4
    text = f"the loss of sidx {sidx} is {text}" if loss != -1e-40 else f"sidx {sidx} is -1e-40"
    if width == 4 and loss == -1e-40:
        text = "e-41" if "e-41" in f"{np.float32(loss):g}" else "e-40"
    check_block(stream, Block(2, 5, pairs), error, text, skip=skip, event=2, block=5)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("exposure", [NAN, INFINITY, -INFINITY, -1.0])
def test_a_wrong_exposure(width: int, exposure: float) -> None:
    stream = good("summary", width)
    bad = Block(2, 5, ((1, 1.0),), exposure)
    text = f"the exposure is {exposure:g}"
    policies: list[dict[str, Any]] = [{}, {"nan": "zero", "negative": "keep"}, {"nan": "drop"}]
    for options in policies:
        check_block(stream, bad, ExposureError, text, skip=8, event=2, block=5, **options)


@every_stream
@pytest.mark.parametrize("loss", [1.0, -0.0, NAN, 5e-324])
def test_an_end_with_a_loss(kind: str, width: int, loss: float) -> None:
    stream = good(kind, width)
    bad = bytearray(stream.encode_block(Block(2, 5, ((1, 1.0),))))
    bad[-width:] = struct.pack(f"<{LETTERS[width]}", loss)
    if not any(bad[-width:]):
        return
    start = len(stream.encode())
    at = start + len(bad) - width
    text = "the pair that ends the block (sidx 0) carries a loss"
    place: dict[str, Any] = {"at": at, "event": 2, "block": 5, "start": start}
    check(stream.encode() + bad, stream, TerminatorError, text, **place)


@every_stream
def test_minus_zero_is_a_zero(kind: str, width: int) -> None:
    blocks = [Block(1, 1, ((-5, -0.0), (-1, -0.0), (1, -0.0), (2, 3.0), (3, -0.0)), -0.0)]
    blocks.append(Block(1, 2, ((1, -0.0), (3, 2.0)), 7.0))
    stream = good(kind, width).with_blocks(blocks)
    outcome = feed([stream.encode()], stream.reports, policy=Policy(float_width=width))
    assert outcome.error is None
    for name, rows in oracle.reports(stream.encode(), width, QUANTILES).items():
        oracle.assert_same(name, rows_of(outcome, name, REPORTS[name].dtype(width)), rows)


# -- the wrong width -----------------------------------------------------------------


@every_stream
@pytest.mark.parametrize("seed", range(5))
def test_the_wrong_width_is_named(kind: str, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, kind=kind, width=width, samples=20)
    pairs = tuple((s, float(rng.uniform(1, 1e6))) for s in (-5, -1, *range(1, 21)))
    stream = stream.with_blocks([Block(12345, 3, pairs), *stream.blocks[1:]])
    other = 12 - width
    data, policy = stream.encode(), Policy(float_width=other)
    for consume in (
        partial(run_to_end, Analysis(["events"], Collector(), policy=policy), data),
        partial(read_all, data, LossReader(policy)),
    ):
        with pytest.raises(CoreError, match=f"float_width={width}$") as info:
            consume()
        assert info.value.hint is not None


def read_all(data: bytes, reader: LossReader) -> None:
    reader.receive(data)
    reader.close()
    reader.drain()


def test_a_fault_of_the_right_width_does_not_blame_the_width() -> None:
    for width in (4, 8):
        stream = good("summary", width).with_blocks([Block(1, 1, ((1, NAN), (2, 1.0)))])
        with pytest.raises(LossNotFiniteError, match="nan=zero"):
            read_all(stream.encode(), LossReader(Policy(float_width=width)))


# -- policies ------------------------------------------------------------------------


def check_policy(dirty: Stream, clean: Stream, policy: Policy, seed: int) -> None:
    """Read with the policy, the dirty stream is the clean one."""
    data = dirty.encode()
    whole = feed([data], dirty.reports, policy=policy)
    assert whole.error is None
    for name, rows in oracle.reports(clean.encode(), clean.width, QUANTILES).items():
        oracle.assert_same(name, rows_of(whole, name, REPORTS[name].dtype(clean.width)), rows)
    assert feed(bytewise(data), dirty.reports, policy=policy) == whole
    pieces = random_cuts(np.random.default_rng(seed), data, 20)
    assert feed(pieces, dirty.reports, policy=policy) == whole
    # The reader hands out the same pairs.
    got = read([data], LossReader(policy))
    expected = read([clean.encode()], LossReader(replace(policy, nan="error")))
    assert [e.sidx.tolist() for e in got.events] == [e.sidx.tolist() for e in expected.events]
    assert [e.losses.tobytes() for e in got.events] == [e.losses.tobytes() for e in expected.events]


def spoil(stream: Stream, seed: int) -> Stream:
    """Some losses are not finite any more."""
    rng = np.random.default_rng(seed)
    odd = (NAN, INFINITY, -INFINITY)

    def spoilt(pairs: Pairs) -> Pairs:
        return tuple(
            (sidx, float(rng.choice(odd)) if rng.random() < 0.3 else loss) for sidx, loss in pairs
        )

    return stream.with_blocks(replace(b, pairs=spoilt(b.pairs)) for b in stream.blocks)


def mapped(stream: Stream, change: Callable[[Pairs], Pairs]) -> Stream:
    return stream.with_blocks(replace(b, pairs=change(b.pairs)) for b in stream.blocks)


@settings(max_examples=half(60))
@given(streams(max_samples=130, max_events=3), SEEDS)
def test_losses_that_are_not_finite_can_be_read_as_zero(stream: Stream, seed: int) -> None:
    dirty = spoil(stream, seed)
    clean = mapped(dirty, lambda pairs: tuple((s, x if np.isfinite(x) else 0.0) for s, x in pairs))
    check_policy(dirty, clean, Policy(float_width=stream.width, nan="zero"), seed)


@settings(max_examples=half(60))
@given(streams(max_samples=130, max_events=3), SEEDS)
def test_losses_that_are_not_finite_can_be_dropped(stream: Stream, seed: int) -> None:
    dirty = spoil(stream, seed)
    clean = mapped(dirty, lambda pairs: tuple((s, x) for s, x in pairs if np.isfinite(x)))
    check_policy(dirty, clean, Policy(float_width=stream.width, nan="drop"), seed)


def shuffle(stream: Stream, seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    return mapped(stream, lambda pairs: tuple(pairs[i] for i in rng.permutation(len(pairs))))


@settings(max_examples=half(60))
@given(streams(max_samples=130, max_events=3), SEEDS)
def test_samples_may_come_in_any_order(stream: Stream, seed: int) -> None:
    dirty = shuffle(stream, seed)
    policy = Policy(float_width=stream.width, sample_order="any")
    check_policy(dirty, dirty, policy, seed)
    ordered = feed([stream.encode()], stream.reports, policy=policy).rows
    found = feed([dirty.encode()], stream.reports, policy=policy).rows
    assert found.get("qelt") == ordered.get("qelt")


@settings(max_examples=half(60))
@given(streams(max_samples=130, max_events=3, negative=True), SEEDS)
def test_all_policies_at_once(stream: Stream, seed: int) -> None:
    dirty = shuffle(spoil(stream, seed), seed).sorted()
    clean = mapped(dirty, lambda pairs: tuple((s, x) for s, x in pairs if np.isfinite(x)))
    width = stream.width
    policy = Policy(width, "drop", "keep", "any", "ascending")
    check_policy(dirty, clean, policy, seed)


@every_stream
def test_what_policies_do_not_excuse(kind: str, width: int) -> None:
    stream = good(kind, width)
    policy: dict[str, Any] = {"nan": "zero", "negative": "keep", "sample_order": "any"}
    place: dict[str, Any] = {"event": 2, "block": 5}
    at = head(stream) + 2 * (4 + width)
    for pairs, error in (
        (((2, NAN), (1, -1.0), (2, 1.0)), SampleRepeatedError),
        (((2, NAN), (-1, -1.0), (-1, NAN)), SampleRepeatedError),
        (((2, NAN), (1, -1.0), (5, NAN)), SampleRangeError),
        (((2, NAN), (1, -1.0), (-6, 1.0)), SampleRangeError),
    ):
        check_block(stream, Block(2, 5, pairs), error, "sidx", skip=at, **place, **policy)
    at = head(stream) + 4
    negative, nan = Block(2, 5, ((1, -1.0),)), Block(2, 5, ((1, NAN),))
    check_block(stream, negative, LossNegativeError, "-1", skip=at, nan="drop", **place)
    check_block(stream, nan, LossNotFiniteError, "nan", skip=at, negative="keep", **place)


@every_stream
def test_event_order(kind: str, width: int) -> None:
    events = (3, 5, 1000, 4096, INT_MAX)
    stream = good(kind, width).with_blocks(Block(event, 1) for event in events)
    policy = Policy(float_width=width, event_order="ascending")
    assert outcomes(stream.encode(), stream.reports, policy) == [None] * 4
    for event in (1, 4, INT_MAX - 1):
        start = len(stream.encode())
        data = stream.with_blocks([*stream.blocks, Block(event, 2)]).encode()
        check(
            data,
            stream,
            EventOrderError,
            f"event {event} comes after a higher one",
            at=start,
            event=event,
            block=2,
            start=start,
            closes=True,
            event_order="ascending",
        )
    data = stream.with_blocks([*stream.blocks, Block(3, 2)]).encode()
    found = outcomes(data, stream.reports, policy)
    assert {error[0] for error in found if error} == {EventReopenedError.__name__}
