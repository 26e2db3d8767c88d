"""Whatever the bytes: rows or one documented error, the same for any pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.scale import half
from tests.streams import (
    ALL_REPORTS,
    TYPES,
    Signature,
    Stream,
    bytewise,
    feed,
    make_header,
    random_cuts,
    read,
    streams,
)

# Damaged bytes make losses near the largest float, whose squares and roundings overflow:
# numpy warns of it where kernels run as plain Python.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]

SEEDS = st.integers(0, 2**32 - 1)
WORDS = st.sampled_from(
    [0, 1, 2, -1, -5, -6, 3, 64, 2**31 - 1, -(2**31), 0x7F800000, 0x7FC00000, -0x800000]
)
POLICIES = st.builds(
    Policy,
    float_width=st.sampled_from([4, 8]),
    nan=st.sampled_from(["error", "zero", "drop"]),
    negative=st.sampled_from(["error", "keep"]),
    sample_order=st.sampled_from(["ascending", "any"]),
    event_order=st.sampled_from(["any", "ascending"]),
    max_samples=st.just(5000),
)


def check(data: bytes, policy: Policy, seed: int) -> Signature | None:
    """Consume in every way; anything but an outcome, or two of them, is a failure."""
    reports = ALL_REPORTS if data[3:4] == b"\3" else ("events",)
    rng = np.random.default_rng(seed)
    whole = feed([data], reports, policy=policy)
    cut = random_cuts(rng, data, 6)
    assert feed(cut, reports, policy=policy) == whole
    assert feed([memoryview(b"x" + data)[1:]], reports, policy=policy) == whole
    if len(data) < 1500:
        assert feed(bytewise(data), reports, policy=policy) == whole
    events = read([data], LossReader(policy))
    again = read(cut, LossReader(policy))
    assert events.error == again.error == whole.error
    assert events.end == again.end == whole.end
    assert len(events.events) == len(again.events)
    if whole.end is not None:
        assert len(events.events) == whole.end.events
    return whole.error


def damage(data: bytes, draw: st.DrawFn) -> bytes:
    octets = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(octets)))
        word = at & ~3
        to = min(len(octets), at + draw(st.integers(1, 48)))
        match draw(st.sampled_from(["bit", "word", "cut", "insert", "repeat", "end", "swap"])):
            case "bit" if at < len(octets):
                octets[at] ^= 1 << draw(st.integers(0, 7))
            case "word":
                octets[word : word + 4] = (draw(WORDS) & 0xFFFFFFFF).to_bytes(4, "little")
            case "cut":
                del octets[at:to]
            case "insert":
                octets[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "repeat":
                octets[at:at] = octets[at:to]
            case "end":
                del octets[at:]
            case "swap":
                octets[at:] = octets[to:] + octets[at:to]
    return bytes(octets)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, int]:
    stream = draw(streams(max_samples=130, max_events=3))
    return damage(stream.encode(), draw), stream.width


@settings(max_examples=half(400))
@given(damaged(), POLICIES, SEEDS)
def test_damaged_streams(case: tuple[bytes, int], policy: Policy, seed: int) -> None:
    check(case[0], policy, seed)


@settings(max_examples=half(150))
@given(damaged(), SEEDS)
def test_damaged_streams_of_the_right_width(case: tuple[bytes, int], seed: int) -> None:
    data, width = case
    check(data, Policy(float_width=width, max_samples=5000), seed)


@settings(max_examples=half(100))
@given(st.binary(max_size=400), POLICIES, SEEDS)
def test_random_bytes(data: bytes, policy: Policy, seed: int) -> None:
    check(data, policy, seed)


@settings(max_examples=half(150))
@given(
    st.sampled_from(sorted(TYPES)),
    st.integers(1, 5),
    st.lists(st.one_of(WORDS, st.integers(-(2**31), 2**31 - 1)), max_size=80),
    POLICIES,
    SEEDS,
)
def test_random_words_behind_a_header(
    kind: str, samples: int, words: list[int], policy: Policy, seed: int
) -> None:
    data = make_header(kind, samples) + np.array(words, "<i4").tobytes()
    check(data, policy, seed)


@settings(max_examples=half(100))
@given(streams(max_samples=130), st.booleans(), SEEDS)
def test_the_wrong_width_never_passes_with_losses(stream: Stream, tall: bool, seed: int) -> None:
    # 12345.678 has no zero word in either width, so that neither can be read as the other.
    first = stream.blocks[:1]
    if not first or stream.samples < 2:
        return
    losses = tuple((s, 12345.678) for s in range(1, stream.samples + 1))
    exposure = 12345.678 if tall else 1.0
    blocks = [type(first[0])(7, 7, losses, exposure)]
    data = stream.with_blocks(blocks).encode()
    error = check(data, Policy(float_width=12 - stream.width), seed)
    assert error is not None
