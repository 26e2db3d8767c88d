from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from core._jit import foreign_kernel
from core.errors import OptionError, ReportError, StateError
from core.losses.aggregators import Aggregator
from core.losses.analysis import Analysis
from core.losses.policy import Policy
from tests import oracle
from tests.streams import (
    ALL_REPORTS,
    Collector,
    Stream,
    analysis_options,
    bytewise,
    feed,
    random_cuts,
    random_stream,
)

pytestmark = pytest.mark.once

BINS = 64


def add_up(event: int, block: int, sidx: Any, losses: Any, state: Any) -> None:  # noqa: ANN401
    """Sum of the samples, and of everything else that is passed."""
    state[0] += 1
    state[1] += event % 1000
    state[2] += block % 1000
    for i in range(len(sidx)):
        if sidx[i] > 0:
            state[3] += losses[i]
        else:
            state[4] += losses[i]


def histogram(event: int, block: int, sidx: Any, losses: Any, state: Any) -> None:  # noqa: ANN401
    """How often each sidx occurs, by whether the event is odd."""
    for i in range(len(sidx)):
        if losses[i] >= 0 and block > 0:
            state[event % 2, sidx[i] + 5] += 1


COMPILED_HISTOGRAM = foreign_kernel(histogram)


def adder() -> Aggregator:
    return Aggregator(add_up, np.zeros(5))


def counter() -> Aggregator:
    return Aggregator(COMPILED_HISTOGRAM, np.zeros((2, BINS), np.int32))


def expected(stream: Stream) -> tuple[Any, Any]:
    sums, counts = np.zeros(5), np.zeros((2, BINS), np.int32)
    for block in oracle.parse(stream.encode(), stream.width).blocks:
        sidx = np.array([s for s, _ in block.pairs], np.int32)
        losses = np.array([x for _, x in block.pairs])
        add_up(block.event, block.ident, sidx, losses, sums)
        histogram(block.event, block.ident, sidx, losses, counts)
    return sums, counts


def stream_of(width: int, seed: int = 1) -> Stream:
    return random_stream(np.random.default_rng(seed), width=width, samples=40, highest=5000)


def options_of(stream: Stream, **aggregators: Aggregator) -> dict[str, Any]:
    return {"policy": Policy(float_width=stream.width), "aggregators": aggregators}


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("reports", [(), ("events",), ALL_REPORTS], ids=len)
def test_functions_run_alone_together_and_beside_reports(
    width: int, reports: tuple[str, ...]
) -> None:
    stream = stream_of(width)
    data = stream.encode()
    sums, counts = expected(stream)
    plain = feed([data], reports or ("selt",), policy=Policy(float_width=width))
    for pieces in ([data], bytewise(data), random_cuts(np.random.default_rng(0), data, 9)):
        first, second = adder(), counter()
        outcome = feed(pieces, reports, **options_of(stream, sums=first, counts=second))
        assert outcome.error is None
        if reports:
            assert outcome == plain
        np.testing.assert_allclose(first.state, sums, rtol=1e-12)
        np.testing.assert_array_equal(second.state, counts)


def test_one_function() -> None:
    stream = stream_of(4)
    for aggregator, wanted in zip((adder(), counter()), expected(stream), strict=True):
        assert feed([stream.encode()], (), **options_of(stream, one=aggregator)).error is None
        np.testing.assert_allclose(aggregator.state, wanted, rtol=1e-12)


def test_no_function_and_no_report() -> None:
    with pytest.raises(ReportError):
        Analysis([], Collector(), aggregators={})


def test_a_fault_and_a_declared_end_are_found_beside_functions() -> None:
    stream = stream_of(4)
    data = stream.encode() + bytes(16)
    outcome = feed([data], (), **options_of(stream, one=adder()))
    assert outcome.error is not None
    assert outcome.error[1] == "event-id"
    aggregator = adder()
    options = options_of(stream, one=aggregator)
    outcome = feed([stream.encode()], ("selt",), **options, expect_events=2)
    assert outcome.error is not None
    assert outcome.error[1] == "stream-excess"
    events = list(dict.fromkeys(block.event for block in stream.blocks))
    first_two = stream.with_blocks(b for b in stream.blocks if b.event in events[:2])
    np.testing.assert_allclose(aggregator.state, expected(first_two)[0], rtol=1e-12)


def test_states_are_kept_with_the_analysis() -> None:
    stream = stream_of(8)
    data = stream.encode()
    sums, counts = expected(stream)
    for boundary in stream.boundaries():
        names = ("events", "qelt")
        options = analysis_options(names)
        before = options_of(stream, sums=adder(), counts=counter())
        first = Analysis(names, Collector(), **before, **options)
        first.receive(data[:boundary])
        state = json.loads(json.dumps(first.getstate()))
        after = options_of(stream, sums=adder(), counts=counter())
        second = Analysis(names, Collector(), **after, **options)
        second.setstate(state)
        second.receive(data[second.offset :])
        second.close()
        np.testing.assert_allclose(after["aggregators"]["sums"].state, sums, rtol=1e-12)
        np.testing.assert_array_equal(after["aggregators"]["counts"].state, counts)


@pytest.mark.parametrize(
    "state",
    [
        np.arange(5.0),
        np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
        np.array([(1, 2.5)], [("n", "i4"), ("x", "f8")]),
        np.array(7.0),
        np.zeros((0, 3)),
        np.array([True, False]),
    ],
    ids=["plain", "strided", "record", "scalar", "empty", "bool"],
)
def test_any_state_array_survives(state: Any) -> None:  # noqa: ANN401
    stream = stream_of(4)

    def nothing(event: int, block: int, sidx: Any, losses: Any, state: Any) -> None:  # noqa: ANN401
        pass

    analysis = Analysis((), Collector(), **options_of(stream, a=Aggregator(nothing, state)))
    target = np.zeros_like(state)
    again = Analysis((), Collector(), **options_of(stream, a=Aggregator(nothing, target)))
    again.setstate(json.loads(json.dumps(analysis.getstate())))
    np.testing.assert_array_equal(target, state)


def test_states_of_other_functions_are_refused() -> None:
    stream = stream_of(4)
    state = Analysis((), Collector(), **options_of(stream, a=adder())).getstate()
    others: list[dict[str, Aggregator]] = [
        {"b": adder()},
        {"a": adder(), "b": adder()},
        {"a": Aggregator(add_up, np.zeros(6))},
        {"a": Aggregator(add_up, np.zeros(5, np.float32))},
        {"a": Aggregator(add_up, np.zeros((5, 1)))},
    ]
    for aggregators in others:
        with pytest.raises(StateError):
            Analysis((), Collector(), **options_of(stream, **aggregators)).setstate(state)
    malformed: list[Any] = [None, [], {"a": None}, {"a": []}, {"a": ["<f8", [5], "x"]}]
    for wrong in malformed:
        with pytest.raises(StateError):
            Analysis((), Collector(), **options_of(stream, a=adder())).setstate(
                state | {"aggregators": wrong}
            )


@pytest.mark.parametrize(
    ("function", "state", "said"),
    [
        (json.loads, np.zeros(1), "takes event_id, block_id, sidx, losses, state"),
        (None, np.zeros(1), "takes event_id"),
        (add_up, [0.0], "is an array, not list"),
        (add_up, np.zeros(1, "f2"), "of dtype <f2"),
        (add_up, np.zeros(1, ">f8"), "of dtype >f8"),
        (add_up, np.zeros(1, object), "of dtype |O"),
        (add_up, np.broadcast_to(np.zeros(1), (3,)), "cannot be written to"),
    ],
)
def test_what_cannot_be_an_aggregator_is_said_at_once(
    function: Any,  # noqa: ANN401 - perhaps none
    state: Any,  # noqa: ANN401 - perhaps no array
    said: str,
) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        Aggregator(function, state)
