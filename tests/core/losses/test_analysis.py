from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import core
from core.arrays import Rows
from core.errors import (
    CoreError,
    ExcessError,
    IncompleteError,
    LimitError,
    OptionError,
    ReportError,
    StateError,
    TruncatedError,
)
from core.losses import analysis as analysis_module
from core.losses import outputs, receiver
from core.losses.analysis import Analysis, aggregate
from core.losses.events import Completeness
from core.losses.inputs import EventRates
from core.losses.policy import Policy
from core.losses.reports import REPORTS
from tests import oracle
from tests.scale import PURE_PYTHON, examples, half
from tests.streams import (
    ALL_REPORTS,
    QUANTILES,
    Block,
    Collector,
    Stream,
    analysis_options,
    bytewise,
    cut_at,
    feed,
    random_cuts,
    random_stream,
    rows_of,
    streams,
)

RATES = EventRates(np.arange(2, 42, 2, dtype=np.int32), np.arange(20) / 7)
RATE_OF = dict(zip(RATES.event_ids.tolist(), RATES.rates.tolist(), strict=True))
SEEDS = st.integers(0, 2**32 - 1)

SMALL = Stream(
    "summary",
    3,
    4,
    (
        Block(2, 1, ((-5, 9.0), (-1, 2.0), (1, 1.0), (3, 2.5))),
        Block(2, 2, ((-1, 1.0), (2, 4.0)), 50.0),
        Block(4, 1, ((-1, 0.5),), 10.0),
        Block(3, 7, ((1, 1.0),), 0.0),
    ),
)


def make(
    stream: Stream,
    sink: Callable[[str, Rows], None],
    reports: Iterable[str] | None = None,
    **options: Any,  # noqa: ANN401
) -> Analysis:
    names = tuple(stream.reports if reports is None else reports)
    defaults = {"policy": Policy(float_width=stream.width)} | analysis_options(names, RATES)
    return Analysis(names, sink, **(defaults | options))


def run(stream: Stream, pieces: Iterable[Any], **options: Any) -> Any:  # noqa: ANN401
    options.setdefault("policy", Policy(float_width=stream.width))
    return feed(pieces, stream.reports, **options)


def resume(stream: Stream, data: bytes, state: dict[str, Any]) -> tuple[Collector, Any]:
    """Go on from a state that went through JSON."""
    collector = Collector()
    analysis = make(stream, collector)
    analysis.setstate(json.loads(json.dumps(state)))
    analysis.receive(data[analysis.offset :])
    return collector, analysis.close()


def joined(first: dict[str, bytes], second: dict[str, bytes]) -> dict[str, bytes]:
    names = first.keys() | second.keys()
    return {name: first.get(name, b"") + second.get(name, b"") for name in names}


# -- right rows ----------------------------------------------------------------------


@settings(max_examples=half(250))
@example(SMALL)
@given(streams())
def test_rows_equal_the_oracle(stream: Stream) -> None:
    data = stream.encode()
    collector = Collector()
    analysis = make(stream, collector)
    analysis.receive(data)
    end = analysis.close()
    expected = oracle.reports(data, stream.width, QUANTILES, RATE_OF)
    assert set(expected) == set(stream.reports)
    for name, rows in expected.items():
        actual = np.frombuffer(collector.rows.get(name, b""), REPORTS[name].dtype(stream.width))
        oracle.assert_same(name, actual, rows)
    ids = [run[0].event for run in oracle.parse(data, stream.width).events()]
    assert (end.bytes, end.events, end.blocks) == (len(data), len(ids), len(stream.blocks))
    assert end.pairs == sum(len(block.pairs) for block in stream.blocks)
    assert end.ascending == (ids == sorted(ids))
    assert end.completeness is Completeness.UNDECLARED
    assert end.reopened_check == "whole"
    assert (analysis.events, analysis.blocks, analysis.pairs) == (end.events, end.blocks, end.pairs)
    assert analysis.received == analysis.offset == len(data)


@settings(max_examples=half(60))
@given(streams(negative=True))
def test_negative_losses_are_kept_where_asked_for(stream: Stream) -> None:
    data = stream.encode()
    outcome = run(stream, [data], policy=Policy(float_width=stream.width, negative="keep"))
    for name, rows in oracle.reports(data, stream.width, QUANTILES).items():
        dtype = REPORTS[name].dtype(stream.width)
        oracle.assert_same(name, rows_of(outcome, name, dtype), rows)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("samples", [1, 2, 1000, 5000])
def test_many_samples_equal_the_oracle(width: int, samples: int) -> None:
    count = 2 if PURE_PYTHON else 20
    rng = np.random.default_rng(samples)
    stream = random_stream(rng, width=width, samples=samples, events=count)
    data = stream.encode()
    outcome = run(stream, [data])
    for name, rows in oracle.reports(data, width, QUANTILES).items():
        oracle.assert_same(name, rows_of(outcome, name, REPORTS[name].dtype(width)), rows)


def test_an_event_of_many_blocks_equals_the_oracle() -> None:
    count = 700
    blocks = [Block(5, 3 * i + 1, ((-1, 1.0), (1 + i % 7, float(i)))) for i in range(count)]
    stream = Stream("summary", 7, 4, tuple(blocks))
    outcome = run(stream, [stream.encode()])
    for name, rows in oracle.reports(stream.encode(), 4, QUANTILES).items():
        oracle.assert_same(name, rows_of(outcome, name, REPORTS[name].dtype(4)), rows)
    assert outcome.end.blocks == count


@pytest.mark.parametrize("width", [4, 8])
def test_a_spread_that_cancels_keeps_its_deviation(width: int) -> None:
    losses = np.array([1e6, 1e6 + 0.5, 1e6 - 0.25, 1e6 + 0.125])
    pairs = tuple(enumerate(losses.tolist(), 1))
    rows = aggregate(
        Stream("summary", 4, width, (Block(1, 1, pairs),)).encode(),
        ["melt"],
        policy=Policy(float_width=width),
    )["melt"]
    np.testing.assert_allclose(rows["SDLoss"][1], np.std(losses, ddof=1), rtol=1e-6)


@settings(max_examples=examples(25))
@given(streams(kinds=["summary"], max_samples=70))
def test_every_set_of_reports_has_the_rows_of_all(stream: Stream) -> None:
    data = stream.encode()
    whole = run(stream, [data]).rows
    for count in range(1, 5):
        for names in itertools.permutations(ALL_REPORTS, count):
            if count > 2 and names != tuple(sorted(names)):
                continue
            part = feed([data], names, policy=Policy(float_width=stream.width))
            assert part.rows == {name: rows for name, rows in whole.items() if name in names}


def test_aggregate_is_the_same_at_once() -> None:
    tables = aggregate(SMALL.encode(), ALL_REPORTS, quantiles=QUANTILES)
    rows = run(SMALL, [SMALL.encode()]).rows
    assert {name: table.tobytes() for name, table in tables.items()} == rows
    assert tables["selt"].dtype == REPORTS["selt"].dtype(4)
    empty = aggregate(SMALL.header, ["melt"])["melt"]
    assert (len(empty), empty.dtype) == (0, REPORTS["melt"].dtype(4))


# -- any pieces ----------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(streams(max_samples=130, max_events=3), SEEDS)
def test_pieces_do_not_matter(stream: Stream, seed: int) -> None:
    data = stream.encode()
    rng = np.random.default_rng(seed)
    whole = run(stream, [data])
    assert whole.error is None
    assert run(stream, bytewise(data)) == whole
    assert run(stream, random_cuts(rng, data, 500)) == whole
    assert run(stream, random_cuts(rng, data, 3)) == whole


@settings(max_examples=half(60))
@given(streams(max_samples=130), SEEDS)
def test_alignment_and_kind_of_buffer_do_not_matter(stream: Stream, seed: int) -> None:
    data = stream.encode()
    rng = np.random.default_rng(seed)
    whole = run(stream, [data])
    for shift in (1, 2, 3):
        moved = memoryview(bytes(shift) + data)[shift:]
        assert run(stream, [moved]) == whole
        assert run(stream, [memoryview(bytearray(moved))]) == whole
        pieces = [memoryview(bytes(shift) + p)[shift:] for p in random_cuts(rng, data, 5)]
        assert run(stream, pieces) == whole
    assert run(stream, [bytearray(data)]) == whole
    assert run(stream, [np.frombuffer(data, np.int32)]) == whole
    assert run(stream, [memoryview(data).cast("i"), b""]) == whole
    assert run(stream, [b"", np.zeros(0, np.uint8), data]) == whole


@settings(max_examples=examples(40))
@given(streams(max_samples=130), SEEDS, st.integers(1, 100), st.integers(1, 100))
def test_the_sizes_of_internal_copies_do_not_matter(
    stream: Stream, seed: int, bridge: int, copy: int
) -> None:
    data = stream.encode()
    whole = run(stream, [data])
    pieces = random_cuts(np.random.default_rng(seed), data, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiver, "_BRIDGE", bridge)
        patch.setattr(receiver, "_COPY", copy)
        assert run(stream, pieces) == whole
        assert run(stream, [memoryview(b"x" + data)[1:]]) == whole


@pytest.mark.once
@pytest.mark.skipif(PURE_PYTHON, reason="needs types")
def test_the_kernel_is_always_called_with_the_types_of_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = set()

    def entry_point(kernel: Any, *_args: object) -> Callable[..., int]:  # noqa: ANN401 - numba's
        def call(*args: object) -> int:
            types.add(tuple(map(kernel.typeof_pyval, args)))
            return int(kernel(*args))

        return call

    monkeypatch.setattr(analysis_module, "entry_point", entry_point)
    small = {name: replace(row, buffer_rows=3) for name, row in REPORTS.items()}
    monkeypatch.setattr(outputs, "REPORTS", small)
    # Logs of ids, pages of events, tables and the ledger's memory all grow.
    blocks = [
        Block(1 + 5000 * i, j + 1, ((-1, 1.0), (2, 3.0))) for i in range(5) for j in range(99)
    ]
    stream = Stream("summary", 7, 4, tuple(blocks))
    data = stream.encode()
    for pieces in ([data], cut_at(data, [13, 14, 999, 5001]), [memoryview(b"x" + data)[1:]]):
        assert run(stream, pieces).error is None
    _, end = resume(stream, data, state_of(stream, len(data) // 2))
    assert end.events == 5
    assert len(types) == 1


@pytest.mark.skipif(PURE_PYTHON, reason="needs megabytes")
def test_large_pieces_at_any_alignment() -> None:
    rng = np.random.default_rng(1)
    stream = random_stream(rng, samples=3000, events=40, blocks=8)
    data = stream.encode()
    assert len(data) > 1 << 20
    whole = run(stream, [data])
    assert whole.error is None
    for shift in (1, 2, 3):
        assert run(stream, [memoryview(bytes(shift) + data)[shift:]]) == whole
    assert run(stream, random_cuts(rng, data, 20)) == whole
    assert run(stream, cut_at(data, range(0, len(data), 65536))) == whole


@settings(max_examples=half(60))
@given(streams(max_samples=130), st.integers(1, 3))
def test_small_tables_give_the_same_rows(stream: Stream, rows: int) -> None:
    data = stream.encode()
    whole = run(stream, [data])
    with pytest.MonkeyPatch.context() as patch:
        small = {name: replace(row, buffer_rows=rows) for name, row in REPORTS.items()}
        patch.setattr(outputs, "REPORTS", small)
        assert run(stream, [data]) == whole
        assert run(stream, cut_at(data, [len(data) // 2])) == whole


def test_received_counts_what_waits_for_the_rest_of_a_block() -> None:
    data = SMALL.encode()
    first, second = SMALL.boundaries()[:2]
    analysis = make(SMALL, Collector())
    assert (analysis.received, analysis.offset, analysis.header) == (0, 0, None)
    analysis.receive(data[:5])
    assert (analysis.received, analysis.offset, analysis.header) == (5, 0, None)
    analysis.receive(data[5 : second + 3])
    assert (analysis.received, analysis.offset) == (second + 3, second)
    assert (analysis.open_event, analysis.events, analysis.blocks) == (2, 1, 1)
    assert analysis.header is not None
    assert analysis.header.describe() == "summary stream, 3 samples, f4 losses, summary set 1"
    assert first == 12


# -- state ---------------------------------------------------------------------------


@settings(max_examples=half(60))
@example(SMALL, 0)
@given(streams(max_samples=130, max_events=4), st.integers(0, 11))
def test_a_state_at_every_block_restores(stream: Stream, more: int) -> None:
    data = stream.encode()
    collector = Collector()
    analysis = make(stream, collector)
    analysis.receive(data)
    end = analysis.close()
    for boundary in [0, *stream.boundaries()]:
        before = Collector()
        first = make(stream, before)
        first.receive(data[: boundary + more])
        state = first.getstate()
        assert state["stream"]["offset"] == first.offset
        after, second_end = resume(stream, data, state)
        assert joined(before.rows, after.rows) == collector.rows
        counts = (second_end.bytes, second_end.events, second_end.blocks, second_end.pairs)
        assert counts == (end.bytes, end.events, end.blocks, end.pairs)
        assert second_end.ascending == end.ascending


@settings(max_examples=examples(30))
@given(streams(max_samples=130, max_events=4))
def test_a_fresh_analysis_for_every_block(stream: Stream) -> None:
    data = stream.encode()
    whole = Collector()
    make_whole = make(stream, whole)
    make_whole.receive(data)
    make_whole.close()
    chained = Collector()
    analysis = make(stream, chained)
    for piece in cut_at(data, stream.boundaries()):
        state = json.loads(json.dumps(analysis.getstate()))
        analysis = make(stream, chained)
        analysis.setstate(state)
        again = analysis.getstate()
        state["stream"]["resumed"] = again["stream"]["resumed"]
        assert again == state
        analysis.receive(piece)
    analysis.close()
    assert chained.rows == whole.rows


def digests(rows: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(octets).hexdigest() for name, octets in rows.items()}


def resume_all(path: str) -> None:
    """What the other process does: restore each state, print digests of the rows."""
    case = json.loads(Path(path).read_text())
    data = bytes.fromhex(case["data"])
    stream = Stream(case["kind"], case["samples"], case["width"], ())
    found = [digests(resume(stream, data, state)[0].rows) for state in case["states"]]
    sys.stdout.write(json.dumps(found))


@pytest.mark.once
@pytest.mark.parametrize(("kind", "width"), [("summary", 4), ("loss", 8)])
def test_states_restore_in_another_process(tmp_path: Path, kind: str, width: int) -> None:
    rng = np.random.default_rng(7)
    stream = random_stream(rng, kind=kind, width=width, samples=70, highest=40)
    data = stream.encode()
    states, expected = [], []
    for boundary in stream.boundaries():
        analysis = make(stream, Collector())
        analysis.receive(data[:boundary])
        states.append(analysis.getstate())
        expected.append(digests(resume(stream, data, states[-1])[0].rows))
    case = {"data": data.hex(), "kind": kind, "samples": 70, "width": width, "states": states}
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    module = "tests.core.losses.test_analysis"
    program = f"from {module} import resume_all; resume_all({str(path)!r})"
    root = Path(core.__file__).parents[1]
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


def state_of(stream: Stream, upto: int, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    analysis = make(stream, Collector(), **options)
    analysis.receive(stream.encode()[:upto])
    state: dict[str, Any] = json.loads(json.dumps(analysis.getstate()))
    return state


MIDDLE = SMALL.boundaries()[1]
"""Inside the first event."""


def test_a_state_is_refused_by_another_analysis() -> None:
    state = state_of(SMALL, MIDDLE)
    others: list[dict[str, Any]] = [
        {"reports": ["events", "selt"]},
        {"quantiles": QUANTILES[:2]},
        {"event_rates": None},
        {"event_rates": EventRates(RATES.event_ids, RATES.rates + 1)},
        {"policy": Policy(float_width=8)},
        {"policy": Policy(nan="zero")},
        {"policy": Policy(max_samples=10)},
    ]
    for options in others:
        with pytest.raises(StateError):
            make(SMALL, Collector(), **options).setstate(state)


def test_a_state_is_refused_once_bytes_have_come() -> None:
    state = state_of(SMALL, MIDDLE)
    for octets in (b"\1", SMALL.encode()):
        analysis = make(SMALL, Collector())
        analysis.receive(octets)
        with pytest.raises(StateError, match="before bytes are received"):
            analysis.setstate(state)
    twice = make(SMALL, Collector())
    twice.setstate(state)
    with pytest.raises(StateError, match="before bytes are received"):
        twice.setstate(state)


@pytest.mark.parametrize("version", [None, 0, 2, "one", [1]])
def test_a_state_of_another_version_is_refused(version: object) -> None:
    state = state_of(SMALL, MIDDLE) | {"version": version}
    with pytest.raises(StateError, match="version"):
        make(SMALL, Collector()).setstate(state)


@pytest.mark.parametrize("state", [None, [], "x", 1, {}], ids=repr)
def test_what_is_no_state_is_refused(state: Any) -> None:  # noqa: ANN401
    with pytest.raises(StateError):
        make(SMALL, Collector()).setstate(state)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Every place in a state, inner ones too."""
    places = [path] if path else []
    if isinstance(value, dict):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        items = ()
    return places + [place for key, inner in items for place in leaves(inner, (*path, key))]


REPLACEMENTS: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**40, 2**63, -(2**63), 10**30, 1.5, 1e300, -1e300),
    *(float("nan"), float("inf"), "", "x", "0", "~~~~~", "zzzzz", "\0", "é", [], [1], [[]], {}),
    {"id": 1},
]


@pytest.mark.parametrize("boundary", [0, 12, MIDDLE, SMALL.boundaries()[3]])
def test_a_malformed_state_only_ever_raises_a_state_error(boundary: int) -> None:
    text = json.dumps(state_of(SMALL, boundary))
    for path in leaves(json.loads(text)):
        for replacement in [*REPLACEMENTS, "delete", "cut"]:
            state = json.loads(text)
            inner = state
            for key in path[:-1]:
                inner = inner[key]
            if replacement == "delete":
                del inner[path[-1]]
            elif replacement == "cut":
                if not isinstance(inner[path[-1]], str) or not inner[path[-1]]:
                    continue
                inner[path[-1]] = inner[path[-1]][:-1]
            else:
                inner[path[-1]] = replacement
            analysis = make(SMALL, Collector())
            try:
                analysis.setstate(state)
            except StateError:
                continue
            # What is accepted must at least not harm: it is a CoreError or rows.
            try:
                analysis.receive(SMALL.encode()[boundary:])
                analysis.close()
            except CoreError:
                continue


def test_a_cut_state_is_refused() -> None:
    state = state_of(SMALL, MIDDLE)
    for place in (0, 1):
        for count in (1, 2, 3, 4, 5, 80, 160):
            cut = json.loads(json.dumps(state))
            cut["totals"][place] = cut["totals"][place][:-count]
            with pytest.raises(StateError):
                make(SMALL, Collector()).setstate(cut)


def test_totals_may_not_be_missing_from_a_state() -> None:
    state = state_of(SMALL, MIDDLE) | {"totals": None}
    with pytest.raises(StateError):
        make(SMALL, Collector()).setstate(state)


def test_a_failed_restore_leaves_nothing_to_go_on_with() -> None:
    analysis = make(SMALL, Collector())
    with pytest.raises(StateError):
        analysis.setstate(state_of(SMALL, MIDDLE) | {"aggregators": {"other": []}})
    with pytest.raises(StateError):
        analysis.receive(SMALL.encode())


# -- failures ------------------------------------------------------------------------


class SinkError(Exception):
    pass


def test_an_exception_of_the_sink_passes_and_ends_the_analysis() -> None:
    def sink(report: str, rows: Rows) -> None:
        raise SinkError(report, len(rows))

    for pieces in ([SMALL.encode()], bytewise(SMALL.encode())):
        analysis = make(SMALL, sink)
        with pytest.raises(SinkError):
            all(analysis.receive(piece) is None for piece in pieces)  # type: ignore[func-returns-value]
        for use in (partial(analysis.receive, b""), analysis.close, analysis.getstate):
            with pytest.raises(StateError, match="has failed"):
                use()


def test_an_exception_of_the_sink_at_the_end_passes() -> None:
    def sink(report: str, _rows: Rows) -> None:
        raise SinkError(report)

    analysis = make(SMALL, sink, ["events"])
    analysis.receive(SMALL.encode()[:MIDDLE])
    with pytest.raises(SinkError):
        analysis.close()
    with pytest.raises(StateError, match="has failed"):
        analysis.close()


def test_nothing_works_after_close() -> None:
    analysis = make(SMALL, Collector())
    analysis.receive(SMALL.encode())
    analysis.close()
    receive, setstate = partial(analysis.receive, b""), partial(analysis.setstate, {})
    for use in (receive, setstate, analysis.close, analysis.getstate):
        with pytest.raises(StateError, match="already closed"):
            use()


def test_a_failure_is_raised_again() -> None:
    analysis = make(SMALL, Collector(), name="part 3")
    analysis.receive(SMALL.encode()[:-1])
    with pytest.raises(TruncatedError, match=r"^part 3: ") as first:
        analysis.close()
    for use in (partial(analysis.receive, b"x"), analysis.close, analysis.getstate):
        with pytest.raises(TruncatedError) as again:
            use()
        assert again.value is first.value


def test_a_wrong_argument_is_no_core_error() -> None:
    for data in ("text", 7, memoryview(b"abcd")[::2]):
        with pytest.raises(TypeError):
            make(SMALL, Collector()).receive(data)


# -- declared ends -------------------------------------------------------------------

DATA = SMALL.encode()
PIECES = {
    "whole": [DATA],
    "bytes": list(bytewise(DATA)),
    "blocks": cut_at(DATA, SMALL.boundaries()),
    "odd": cut_at(DATA, [7, 40, 41, 60]),
}
in_any_pieces = pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES.keys())


@in_any_pieces
def test_declared_ends_that_are_met(pieces: list[bytes]) -> None:
    for declared in ({"expect_events": 3}, {"expect_bytes": len(DATA)}):
        outcome = run(SMALL, pieces, **declared)
        assert outcome.rows == run(SMALL, [DATA]).rows
        assert outcome.end.completeness is Completeness.DECLARED


@in_any_pieces
def test_declared_ends_that_are_not_reached(pieces: list[bytes]) -> None:
    for declared, text in (
        ({"expect_events": 4}, "the stream has 3 events, but 4 were declared"),
        (
            {"expect_bytes": len(DATA) + 8},
            f"the stream has {len(DATA)} bytes, but {len(DATA) + 8} were declared",
        ),
    ):
        outcome = run(SMALL, pieces, **declared)
        assert outcome.rows == run(SMALL, [DATA]).rows
        assert outcome.error == (
            *(IncompleteError.__name__, "stream-incomplete", text),
            *(len(DATA), None, None),
        )


@in_any_pieces
@pytest.mark.parametrize("declared", [0, 1, 2])
def test_more_events_than_declared(pieces: list[bytes], declared: int) -> None:
    starts = [SMALL.boundaries()[i] for i in (0, 2, 3)]
    outcome = run(SMALL, pieces, expect_events=declared)
    assert outcome.error == (
        *(ExcessError.__name__, "stream-excess"),
        f"the stream has more than the {declared} events declared",
        *(starts[declared], (2, 4, 3)[declared], None),
    )
    complete = run(SMALL, [DATA[: starts[declared]]])
    assert outcome.rows == complete.rows


@in_any_pieces
def test_more_bytes_than_declared(pieces: list[bytes]) -> None:
    for declared in range(len(DATA)):
        outcome = run(SMALL, pieces, expect_bytes=declared)
        assert outcome.error == (
            *(ExcessError.__name__, "stream-excess"),
            f"the stream has more than the {declared} bytes declared",
            *(declared, None, None),
        )
        if declared < 12:
            assert outcome.rows == {}
            continue
        analysis = make(SMALL, before := Collector(), event_rates=None)
        analysis.receive(DATA[:declared])
        assert outcome.rows == before.rows


def test_a_fault_within_the_declared_bytes_comes_first() -> None:
    data = SMALL.with_blocks([*SMALL.blocks, Block(0, 1)]).encode()
    for pieces in ([data], bytewise(data)):
        outcome = run(SMALL, pieces, expect_bytes=len(data) - 8)
        assert outcome.error[1] == "event-id"


@settings(max_examples=examples(40))
@given(streams(max_samples=20), SEEDS, st.integers(0, 5))
def test_declared_events_do_not_depend_on_the_pieces(
    stream: Stream, seed: int, declared: int
) -> None:
    data = stream.encode()
    whole = run(stream, [data], expect_events=declared)
    assert run(stream, bytewise(data), expect_events=declared) == whole
    pieces = random_cuts(np.random.default_rng(seed), data, 9)
    assert run(stream, pieces, expect_events=declared) == whole


def test_a_declared_end_holds_across_a_resume() -> None:
    state = state_of(SMALL, MIDDLE)
    analysis = make(SMALL, Collector(), expect_bytes=len(DATA), expect_events=3)
    analysis.setstate(state)
    assert analysis.received == MIDDLE
    analysis.receive(DATA[MIDDLE:])
    assert analysis.close().completeness is Completeness.DECLARED


# -- what is wanted ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "options", "text"),
    [
        ([], {}, "no report is wanted"),
        (["elt"], {}, "there is no report 'elt'"),
        (["melt", "melt"], {}, "twice"),
        (["qelt"], {}, "QELT needs quantiles"),
        (["melt"], {"quantiles": QUANTILES}, "QELT or QPLT is not wanted"),
        (["selt"], {"event_rates": RATES}, "MELT is not wanted"),
    ],
)
def test_reports_and_inputs_must_fit(
    reports: list[str], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ReportError, match=text):
        Analysis(reports, Collector(), **options)


@pytest.mark.parametrize("kind", ["gul", "coverage", "loss"])
@pytest.mark.parametrize("report", ["selt", "melt", "qelt"])
def test_summary_reports_need_a_summary_stream(kind: str, report: str) -> None:
    data = Stream(kind, 3, 4, ()).encode()
    for pieces in ([data], bytewise(data)):
        outcome = feed(pieces, ["events", report])
        assert outcome.error is not None
        assert outcome.error[:2] == ("ReportError", "report")
        assert report.upper() in outcome.error[2]


@pytest.mark.parametrize(
    "options",
    [
        {"float_width": 2},
        {"nan": "keep"},
        {"negative": "zero"},
        {"sample_order": "descending"},
        {"event_order": ""},
        {"max_samples": 0},
        {"max_samples": 2**31},
    ],
)
def test_a_policy_has_only_documented_values(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        Policy(**options)


@pytest.mark.parametrize("count", [2, 3])
def test_squares_beyond_float64_are_refused(count: int) -> None:
    """Of losses near the largest float64 the mean is right, the deviation would be infinite."""
    pairs = tuple((s, 1e200 * s) for s in range(1, count + 1))
    stream = Stream("summary", 3, 8, (Block(7, 5, pairs),)).encode()
    for report, said in (
        ("melt", "SDLoss of EventId 7, SummaryId 5 is more than a loss of 8 bytes"),
        ("events", "SampleSD of EventId 7, Blocks 1 is more than a loss of 8 bytes"),
    ):
        with pytest.raises(LimitError, match=said) as caught:
            aggregate(stream, [report], policy=Policy(float_width=8))
        assert caught.value.hint == "Have amounts in a larger unit, such as millions"
    selt = aggregate(stream, ["selt"], policy=Policy(float_width=8))["selt"]
    assert selt["Loss"].tolist() == [loss for _, loss in pairs]


def test_what_negative_losses_take_beyond_float32_is_refused() -> None:
    stream = Stream("summary", 2, 4, (Block(7, 5, ((-1, 1.0), (1, -3e38), (2, 3e38))),)).encode()
    policy, quantiles = Policy(negative="keep"), np.array([0.25], np.float32)
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("melt", "SDLoss", {}),
        ("qelt", "Loss", {"quantiles": quantiles}),
    ]
    for report, column, inputs in cases:
        with pytest.raises(LimitError, match=f"{column} of EventId 7.* loss of 4 bytes") as caught:
            aggregate(stream, [report], policy=policy, **inputs)
        assert (caught.value.limit, caught.value.allowed) == ("loss", float(np.finfo("f4").max))


@pytest.mark.parametrize("reports", [["melt"], ["qelt"], ["qelt", "melt"], ["selt", "events"]])
def test_losses_that_no_row_of_melt_and_qelt_has_are_counted(reports: list[str]) -> None:
    """Those of blocks without exposure, also across an exported state; not blocks of zeros."""
    blocks = [Block(9, 1, ((-1, 0.0), (1, -0.0)), 0.0), Block(9, 2, ((-1, 3.0),), 0.0)]
    data = SMALL.with_blocks([*SMALL.blocks, *blocks]).encode()
    options = analysis_options(reports)
    first = Analysis(reports, Collector(), **options)
    first.receive(data[:-30])
    second = Analysis(reports, Collector(), **options)
    second.setstate(json.loads(json.dumps(first.getstate())))
    second.receive(data[second.offset :])
    assert second.close().blocks_without_exposure == (0 if "selt" in reports else 2)
