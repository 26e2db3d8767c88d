from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from core.errors import LimitError, OptionError
from core.losses.events import StreamHeader
from core.losses.format import Kind
from core.losses.header import header_bytes, parse_header
from core.losses.policy import Policy
from core.losses.reader import LossReader
from core.losses.writer import LossWriter
from tests.scale import examples
from tests.streams import TYPES, Stream, read, streams

KINDS = {"gul": Kind.GUL, "coverage": Kind.GUL, "loss": Kind.LOSS, "summary": Kind.SUMMARY}


def header_of(stream: Stream) -> StreamHeader:
    kind = KINDS[stream.kind]
    aggregation, source = TYPES[stream.kind]
    summary_set = stream.summary_set if kind is Kind.SUMMARY else None
    return StreamHeader(kind, aggregation, source, stream.samples, summary_set, stream.width)


@settings(max_examples=examples(150))
@given(streams(negative=True))
def test_the_writer_makes_the_bytes_made_by_hand(stream: Stream) -> None:
    writer = LossWriter(header_of(stream))
    assert writer.begin() == stream.header
    for block in stream.blocks:
        sidx, losses = [s for s, _ in block.pairs], [x for _, x in block.pairs]
        exposure = block.exposure if stream.kind == "summary" else None
        octets = writer.block(block.event, block.ident, sidx, losses, exposure)
        assert octets == stream.encode_block(block)


@settings(max_examples=examples(60))
@given(streams())
def test_what_is_read_can_be_written_again(stream: Stream) -> None:
    data = stream.encode()
    reader = LossReader(Policy(float_width=stream.width))
    reading = read([data], reader)
    assert reader.header == header_of(stream)
    writer = LossWriter(header_of(stream))
    octets = [writer.begin()]
    for event in reading.events:
        for i, ident in enumerate(event.block_ids.tolist()):
            pairs = slice(event.starts[i], event.starts[i + 1])
            exposure = float(event.exposures[i]) if stream.kind == "summary" else None
            octets.append(
                writer.block(
                    event.event_id, ident, event.sidx[pairs], event.losses[pairs], exposure
                )
            )
    assert b"".join(octets) == data


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("summary_set", [-(2**31), -1, 0, 1, 2**31 - 1])
def test_headers_come_back(kind: str, summary_set: int) -> None:
    for samples in (1, 255, 1_000_000):
        header = header_of(Stream(kind, samples, 4, (), summary_set))
        assert parse_header(header_bytes(header), Policy(), None) == header


SUMMARY = header_of(Stream("summary", 4, 4, ()))
LOSS = header_of(Stream("loss", 4, 4, ()))


@pytest.mark.parametrize(
    ("header", "arguments"),
    [
        (LOSS, (0, 1, [], [])),
        (LOSS, (1, 0, [], [])),
        (LOSS, (-1, 1, [], [])),
        (LOSS, (2**31, 1, [], [])),
        (LOSS, (1, 2**31, [], [])),
        (LOSS, (1, 1, [0], [1.0])),
        (LOSS, (1, 1, [5], [1.0])),
        (LOSS, (1, 1, [-6], [1.0])),
        (LOSS, (1, 1, [1, 2], [1.0])),
        (LOSS, (1, 1, [1], [1.0, 2.0])),
        (LOSS, (1, 1, [1], [1.0], 5.0)),
        (SUMMARY, (1, 1, [1], [1.0])),
    ],
)
def test_blocks_that_no_reader_would_take_are_refused(
    header: StreamHeader, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(OptionError):
        LossWriter(header).block(*arguments)


def test_arrays_of_any_kind_are_taken() -> None:
    writer = LossWriter(SUMMARY)
    expected = writer.block(1, 2, [-1, 3], [2.0, 4.0], 7.0)
    for sidx in (np.array([-1, 3], np.int16), (-1, 3), np.array([-1, 0, 3])[::2]):
        for losses in (np.array([2, 4]), np.array([2.0, 4.0]), (2, 4.0)):
            assert writer.block(1, 2, sidx, losses, 7) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exposure": float("nan")}, "the exposure is nan"),
        ({"exposure": float("inf")}, "the exposure is inf"),
        ({"exposure": -1.0}, "the exposure is -1.0"),
        ({"sidx": [1.5]}, "sidx are whole numbers, not float64"),
        ({"sidx": [11]}, "sidx must be -5 to -1 or 1 to 10, none of them 0"),
        ({"sidx": [0]}, "none of them 0"),
        ({"losses": [1e300]}, "a loss is more than a loss of 4 bytes holds"),
        ({"exposure": 1e300}, "a loss is more than a loss of 4 bytes holds"),
    ],
)
def test_what_no_reader_would_take_is_not_written(change: dict[str, Any], said: str) -> None:
    writer = LossWriter(StreamHeader(Kind.SUMMARY, 1, 3, 10, 1, 4))
    good: dict[str, Any] = {"event": 1, "ident": 2, "sidx": [1], "losses": [1.0], "exposure": 0.0}
    assert len(writer.block(**good)) == 4 * 3 + 8 * 2
    with pytest.raises((OptionError, LimitError), match=said):
        writer.block(**good | change)


def test_ids_that_are_no_whole_numbers_are_not_cut_off() -> None:
    writer = LossWriter(StreamHeader(Kind.GUL, 1, 1, 10, None, 4))
    wrong: list[tuple[Any, Any]] = [(1.5, 1), (1, 2.0)]
    for event, ident in wrong:
        with pytest.raises(TypeError):
            writer.block(event, ident, [1], [1.0])
