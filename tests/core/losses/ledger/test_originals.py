"""Losses that stay in the stream: the same rows as of losses that are copied."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import CoreError, InputError, LimitError
from core.losses.finishing import LedgerResources
from core.losses.ledger.ledger import Ledger
from core.losses.policy import Policy
from tests.core.losses.test_sections import run, sections, starts_of_events, whole
from tests.runs import RUN_REPORTS, RunCase, random_run
from tests.scale import examples
from tests.streams import Stream

SEEDS = st.integers(0, 2**32 - 1)


class InMemory:
    """Streams whose bytes a test may change after the pass."""

    def __init__(self, *streams: Stream) -> None:
        self.octets = [bytearray(stream.encode()) for stream in streams]
        self.read = 0
        self.missing = False

    def check(self, stream: int) -> None:
        if self.missing:
            raise InputError("it was cut", source=self.name(stream))

    def words(self, stream: int) -> npt.NDArray[np.int32]:
        self.read += 1
        return np.frombuffer(bytes(self.octets[stream]), np.int32)

    def name(self, stream: int) -> str:
        return f"stream {stream}"


def halves(stream: Stream) -> tuple[Stream, Stream]:
    events = [block.event for block in stream.blocks]
    middle = next((i for i, event in enumerate(events) if event != events[0]), len(events))
    blocks = stream.blocks
    return stream.with_blocks(blocks[:middle]), stream.with_blocks(blocks[middle:])


def cut(*streams: Stream) -> list[Any]:
    return [
        section
        for index, stream in enumerate(streams)
        for section in sections(stream, starts_of_events(stream)[::2], index)
    ]


@settings(max_examples=examples(40))
@given(SEEDS, st.sampled_from([4, 8]), st.integers(1, 3), st.sampled_from(["ascending", "any"]))
def test_rows_are_those_of_losses_that_are_copied(
    seed: int, width: int, count: int, order: Literal["ascending", "any"]
) -> None:
    case: RunCase = random_run(np.random.default_rng(seed), width=width)
    policy = Policy(float_width=width, sample_order=order)
    parts = [part for part in halves(case.stream) if part.blocks]
    streams = InMemory(*parts)
    resources = LedgerResources(streams=streams)
    rows, _ = run(cut(*parts), RUN_REPORTS, count, policy, **case.inputs, resources=resources)
    expected, _ = whole(case.stream, RUN_REPORTS, {**case.inputs, "policy": policy})
    assert rows == expected
    assert streams.read > 0 or not any(rows.values())


def first_run() -> RunCase:
    """A run whose first event has losses and occurs."""
    cases = (random_run(np.random.default_rng(seed), samples=8) for seed in range(100))
    return next(case for case in cases if case.occurrences[0][0] == case.stream.blocks[0].event)


@pytest.mark.parametrize("at", ["event", "summary", "sidx", "end"])
def test_a_stream_that_changed_after_the_pass_is_a_fault(at: str) -> None:
    case = first_run()
    streams = InMemory(case.stream)
    parts = cut(case.stream)
    octets = streams.octets[0]
    header = len(case.stream.header)
    place = {"event": header, "summary": header + 4, "sidx": header + 12, "end": header}[at]
    if at == "end":
        del octets[place:]
    else:
        octets[place : place + 4] = b"\x77\x77\x77\x77"
    resources = LedgerResources(streams=streams)
    with pytest.raises(InputError, match="changed") as caught:
        run(parts, ["aal"], 1, Policy(), occurrence=case.inputs["occurrence"], resources=resources)
    assert caught.value.source == "stream 0"


def test_a_page_that_was_missing_after_the_pass_is_a_fault() -> None:
    case = first_run()
    streams = InMemory(case.stream)
    streams.missing = True
    inputs = {"occurrence": case.inputs["occurrence"]}
    with pytest.raises(InputError, match="was cut") as caught:
        run(
            cut(case.stream),
            ["aal"],
            1,
            Policy(),
            **inputs,
            resources=LedgerResources(streams=streams),
        )
    assert caught.value.source == "stream 0"


def test_references_are_not_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    case = first_run()
    monkeypatch.setattr(Ledger, "_capacity", lambda _self: 4)
    monkeypatch.setattr("core.losses.ledger.ledger._FIRST_WORDS", 8)
    resources = LedgerResources(streams=InMemory(case.stream))
    with pytest.raises(CoreError) as caught:
        run(cut(case.stream), ["aal"], 1, Policy(), **case.inputs, resources=resources)
    assert isinstance(caught.value, LimitError)
