from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest

from core.errors import InputError
from core.losses.format import Kind
from core.losses.inputs import (
    parse_event_rates,
    parse_occurrence,
    parse_quantiles,
    parse_summary_info,
    parse_summary_xref,
)
from core.losses.partition_reader import read_streams
from core.losses.samples import SampleSpec, generate_inputs, generate_stream

SPECIALS = {Kind.SUMMARY: [-5, -4, -1], Kind.GUL: [-5, -4, -3, -2, -1]}
ANY_KIND = pytest.mark.parametrize("kind", list(SPECIALS))
ANY_WIDTH = pytest.mark.parametrize("float_width", [4, 8])

Block = tuple[int, int, float, list[tuple[int, float]]]


def decode(data: bytes, spec: SampleSpec, offset: int = 0) -> list[Block]:
    """Read blocks one value at a time, to share nothing with the code that wrote them."""
    letter = {4: "f", 8: "d"}[spec.float_width]
    pair = struct.Struct(f"<i{letter}")
    blocks = []
    while offset < len(data):
        event_id, block_id = struct.unpack_from("<ii", data, offset)
        offset += 8
        exposure = float("nan")
        if spec.kind is Kind.SUMMARY:
            (exposure,) = struct.unpack_from(f"<{letter}", data, offset)
            offset += spec.float_width
        pairs = []
        while True:
            sidx, loss = pair.unpack_from(data, offset)
            offset += pair.size
            if sidx == 0:
                assert loss == 0
                break
            pairs.append((sidx, loss))
        blocks.append((event_id, block_id, exposure, pairs))
    return blocks


def blocks_of(spec: SampleSpec) -> list[Block]:
    _, *chunks = generate_stream(spec)
    return [block for chunk in chunks for block in decode(chunk, spec)]


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (Kind.SUMMARY, b"\1\0\0\3" + struct.pack("<ii", 7, 1)),
        (Kind.GUL, b"\1\0\0\2" + struct.pack("<i", 7)),
    ],
)
def test_the_header_comes_first(kind: Kind, header: bytes) -> None:
    assert next(generate_stream(SampleSpec(events=1, samples=7, kind=kind))) == header


@ANY_KIND
@ANY_WIDTH
def test_blocks_are_valid_and_in_order(kind: Kind, float_width: int) -> None:
    spec = SampleSpec(events=40, summaries=6, samples=20, kind=kind, float_width=float_width)
    blocks = blocks_of(spec)
    ids = [block[:2] for block in blocks]
    assert ids == sorted(set(ids))
    assert {event_id for event_id, _ in ids} == set(range(1, 41))
    assert {block_id for _, block_id in ids} == set(range(1, 7))
    for _, _, exposure, pairs in blocks:
        sidx = [sidx for sidx, _ in pairs]
        assert sidx[: len(SPECIALS[kind])] == SPECIALS[kind]
        samples = sidx[len(SPECIALS[kind]) :]
        assert samples == sorted(set(samples))
        assert all(1 <= sample <= 20 for sample in samples)
        specials = dict(pairs[: len(SPECIALS[kind])])
        cap = specials[-3] if kind is Kind.GUL else exposure
        assert specials[-5] == cap > 0
        assert 0 < specials[-1] <= cap
        assert all(0 < loss <= cap for _, loss in pairs[len(SPECIALS[kind]) :])


def test_a_summary_has_the_same_exposure_in_every_event() -> None:
    exposures: dict[int, set[float]] = {}
    for _, summary, exposure, _ in blocks_of(SampleSpec(events=50, summaries=5, samples=3)):
        exposures.setdefault(summary, set()).add(exposure)
    assert len(exposures) == 5
    assert all(len(values) == 1 for values in exposures.values())
    assert len(set.union(*exposures.values())) == 5


@ANY_KIND
def test_the_special_losses_agree_with_the_samples(kind: Kind) -> None:
    spec = SampleSpec(events=60, samples=400, density=0.4, kind=kind)
    chances = []
    for _, _, exposure, pairs in blocks_of(spec):
        specials = dict(pairs[: len(SPECIALS[kind])])
        losses = np.zeros(400)
        positive = pairs[len(SPECIALS[kind]) :]
        losses[: len(positive)] = [loss for _, loss in positive]
        if positive:
            assert specials[-1] == pytest.approx(losses.mean(), rel=0.021)
        if kind is Kind.GUL:
            assert specials[-2] == pytest.approx(losses.std(), rel=1e-4)
            chances.append(specials[-4] - len(positive) / 400)
        else:
            assert specials[-4] in range(1, 21)
            assert exposure % 1000 == 0
    assert np.abs(chances).max(initial=0) < 0.15


@pytest.mark.parametrize("density", [0.05, 0.3, 0.9])
def test_the_density_is_met_on_average_and_varies(density: float) -> None:
    spec = SampleSpec(events=500, summaries=8, samples=50, density=density)
    shares = np.array([(len(pairs) - 3) / 50 for *_, pairs in blocks_of(spec)])
    assert shares.mean() == pytest.approx(density, abs=0.02)
    assert shares.std() > 0.05


def test_with_density_one_every_sample_has_a_loss() -> None:
    blocks = blocks_of(SampleSpec(events=20, samples=30, density=1))
    assert all(len(pairs) == 33 for *_, pairs in blocks)


def test_losses_are_heavy_tailed_and_reach_the_exposure() -> None:
    shares = np.array(
        [
            loss / exposure
            for _, _, exposure, pairs in blocks_of(SampleSpec(events=500))
            for sidx, loss in pairs
            if sidx > 0
        ]
    )
    assert shares.max() == 1
    assert np.mean(shares == 1) < 0.05
    assert np.median(shares) == pytest.approx(0.01, rel=0.3)
    assert shares.mean() > 2 * np.median(shares)


def test_events_touch_some_of_the_summaries() -> None:
    events = [event_id for event_id, *_ in blocks_of(SampleSpec(events=200, samples=1))]
    touched = np.bincount(events)[1:]
    assert touched.min() >= 1
    assert set(touched.tolist()) >= {1, 5, 10}


@pytest.mark.parametrize(("events", "density"), [(4000, 0.5), (12_000, 0.1)])
def test_chunks_are_about_a_mebibyte_of_whole_blocks(events: int, density: float) -> None:
    spec = SampleSpec(events=events, density=density)
    header, *chunks = generate_stream(spec)
    assert len(header) == 12
    assert len(chunks) > 5
    assert all(0.9 * 2**20 < len(chunk) < 1.1 * 2**20 for chunk in chunks[:-1])
    for chunk in chunks[:2]:
        decode(chunk, spec)


def test_a_sparse_stream_of_many_samples_comes_in_small_pieces() -> None:
    _, *chunks = generate_stream(SampleSpec(events=4, summaries=2, samples=1_000_000, density=0.01))
    assert len(chunks) > 1


@ANY_KIND
def test_the_same_specification_gives_the_same_bytes(kind: Kind) -> None:
    spec = SampleSpec(events=30, kind=kind, seed=5)
    stream = b"".join(generate_stream(spec))
    assert b"".join(generate_stream(SampleSpec(events=30, kind=kind, seed=5))) == stream
    assert b"".join(generate_stream(SampleSpec(events=30, kind=kind, seed=6))) != stream
    assert generate_inputs(spec) == generate_inputs(SampleSpec(events=30, kind=kind, seed=5))
    assert generate_inputs(spec) != generate_inputs(SampleSpec(events=30, kind=kind, seed=6))


def test_double_losses_are_not_rounded_to_floats() -> None:
    losses = [
        loss
        for *_, pairs in blocks_of(SampleSpec(events=5, float_width=8))
        for sidx, loss in pairs
        if sidx > 0
    ]
    assert any(loss != float(np.float32(loss)) for loss in losses)


@ANY_KIND
def test_partitions_share_the_events(kind: Kind) -> None:
    spec = SampleSpec(events=10, kind=kind, density=1)
    seen = []
    for part in range(1, 4):
        octets = b"".join(generate_stream(spec, part, 3))
        (partition,) = {p for p, _ in read_streams([io.BytesIO(octets)])}
        assert partition == 0
        seen.append([event.event_id for _, event in read_streams([io.BytesIO(octets)])])
    assert [len(events) for events in seen] == [3, 3, 4]
    assert sum(seen, []) == list(range(1, 11))  # noqa: RUF017 - three lists


# Auxiliary files


def test_items_of_a_gul_stream_have_a_region_and_all_are_one_summary() -> None:
    files = generate_inputs(SampleSpec(summaries=25, kind=Kind.GUL))
    packed, text = (parse_summary_xref(files[f"gulsummaryxref.{form}"]) for form in ("bin", "csv"))
    for xref in (packed, text):
        assert xref.sets.tolist() == [1, 2]
        regions = xref.summary_ids[xref.set_ids == 1]
        assert regions.tolist() == [1 + k % 10 for k in range(25)]
        assert set(xref.summary_ids[xref.set_ids == 2]) == {1}
    assert parse_summary_info(files["summary_info.csv"]).summary_ids.tolist() == list(range(1, 11))
    own = generate_inputs(SampleSpec(summaries=25))
    assert "gulsummaryxref.bin" not in own
    assert len(parse_summary_info(own["summary_info.csv"]).summary_ids) == 25


@pytest.mark.parametrize("events", [1, 300])
def test_the_occurrence_files_agree_with_each_other(events: int) -> None:
    files = generate_inputs(SampleSpec(events=events))
    packed = parse_occurrence(files["occurrence.bin"])
    text = parse_occurrence(files["occurrence.csv"], packed.periods)
    assert packed.periods == max(1000, 10 * events)
    np.testing.assert_array_equal(text.event_ids, packed.event_ids)
    np.testing.assert_array_equal(text.period_numbers, packed.period_numbers)
    np.testing.assert_array_equal(text.dates, packed.dates)
    order = np.lexsort((packed.period_numbers, packed.event_ids))
    assert order.tolist() == list(range(len(order)))
    rates = parse_event_rates(files["event_rates.csv"])
    assert rates.event_ids.tolist() == list(range(1, events + 1))
    np.testing.assert_array_equal(rates.event_ids, packed.event_rates().event_ids)
    np.testing.assert_array_equal(rates.rates, packed.event_rates().rates)


def test_the_quantile_files_agree() -> None:
    files = generate_inputs(SampleSpec())
    quantiles = parse_quantiles(files["quantile.bin"])
    np.testing.assert_array_equal(parse_quantiles(files["quantile.csv"]), quantiles)
    assert quantiles[0] == 0
    assert quantiles[-1] == 1


def test_every_period_has_a_weight_and_they_add_up_to_one() -> None:
    files = generate_inputs(SampleSpec(events=200))
    packed = np.frombuffer(files["periods.bin"], [("period_no", "<i4"), ("weighting", "<f8")])
    assert packed["period_no"].tolist() == list(range(1, 2001))
    assert packed["weighting"].min() > 0
    assert packed["weighting"].sum() == pytest.approx(1)
    header, *lines = files["periods.csv"].decode().splitlines()
    assert header == "period_no,weighting"
    assert [float(line.split(",")[1]) for line in lines] == packed["weighting"].tolist()


def test_return_periods_descend_and_are_within_the_periods() -> None:
    files = generate_inputs(SampleSpec(events=1))
    packed = np.frombuffer(files["returnperiods.bin"], "<i4")
    assert packed.max() <= 1000
    assert (np.diff(packed) < 0).all()
    header, *lines = files["returnperiods.csv"].decode().splitlines()
    assert header == "return_period"
    assert [int(line) for line in lines] == packed.tolist()


def test_all_files_of_a_run_directory_are_there() -> None:
    pairs = ("occurrence", "periods", "returnperiods", "quantile")
    names = {f"{stem}.{kind}" for stem in pairs for kind in ("bin", "csv")}
    assert set(generate_inputs(SampleSpec(events=1))) == names | {
        "event_rates.csv",
        "summary_info.csv",
    }


@pytest.mark.parametrize(("events", "periods"), [(1, 1000), (101, 1010), (10_000_000, 1_000_000)])
def test_the_number_of_periods_is_bounded(events: int, periods: int) -> None:
    assert SampleSpec(events=events).periods == periods


def test_periods_may_be_chosen() -> None:
    spec = SampleSpec(events=300, periods=1500)
    files = generate_inputs(spec)
    assert parse_occurrence(files["occurrence.bin"]).periods == 1500
    assert len(files["periods.bin"]) == 12 * 1500
    assert b"".join(generate_stream(spec)) == b"".join(generate_stream(SampleSpec(events=300)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"events": 0}, "events 0 is not in 1 to 10000000"),
        ({"events": 10_000_001}, "events 10000001 is not in"),
        ({"summaries": 0}, "summaries 0 is not in 1 to 1000000"),
        ({"samples": 0}, "samples 0 is not in 1 to 1000000"),
        ({"samples": 1_000_001}, "samples 1000001 is not in"),
        ({"density": 0.0}, "density 0.0 is not above 0 and up to 1"),
        ({"density": 1.1}, "density 1.1 is not"),
        ({"density": float("nan")}, "density nan is not"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"kind": Kind.LOSS}, "streams of kind loss are not generated"),
        ({"float_width": 2}, "float width 2 is not 4 or 8"),
        ({"periods": 999}, "periods 999 is not in 1000 to 1000000"),
        ({"periods": 1_000_001}, "periods 1000001 is not in"),
    ],
)
def test_an_unusable_specification_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        SampleSpec(**values)
    assert str(caught.value).startswith(message)
    assert caught.value.hint
