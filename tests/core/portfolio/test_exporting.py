"""Loss sets as tables: what is written is read as the same set."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Rows
from core.errors import InputError
from core.losses.inputs import Occurrence
from core.losses.tables import CsvEncoder
from core.portfolio import exporting
from core.portfolio.assembling import calendar_of, repeated, table_of
from core.portfolio.exporting import EXPORTS, export_rows, occurrence_of
from core.portfolio.importing import import_table
from core.portfolio.losses import Calendar, LossTable
from core.portfolio.tables import Given
from tests.core.portfolio.test_tables import happenings, losses_of
from tests.scale import examples

PERIODS = 6
SAMPLES = 3
Losses = dict[tuple[int, int, int], float]


def loss_set(
    losses: Losses, when: list[tuple[int, int, int]], width: int = 8, *, dated: bool = True
) -> tuple[LossTable, Calendar]:
    """A set of losses by event, summary and sample; and of period, date and event."""
    keys = np.array(sorted(losses), np.int64).T
    values = np.array([losses[key] for key in sorted(losses)], f"f{width}")
    columns = np.array(when, np.int64).reshape(-1, 3).T
    occurrence = Occurrence(
        PERIODS, columns[2].astype(np.int32), columns[0].astype(np.int32), columns[1], dated
    )
    return table_of(keys[0], keys[1], keys[2], values), calendar_of(occurrence)


def exported(form: str, table: LossTable, calendar: Calendar, sample: int = 1) -> Rows:
    pieces = export_rows(form, table, calendar, SAMPLES, sample)
    return np.concatenate([piece.copy() for piece in pieces])


LOSSES = st.dictionaries(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 3)),
    st.floats(2**-10, 1e9, width=32),
    min_size=1,
    max_size=24,
)
WHEN = st.sets(
    st.tuples(st.integers(1, PERIODS), st.integers(700_000, 700_003), st.integers(1, 5)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(100))
@given(LOSSES, WHEN, st.integers(1, 9))
def test_what_is_written_is_read_as_the_same_set(
    losses: Losses, when: set[tuple[int, int, int]], piece: int
) -> None:
    table, calendar = loss_set(losses, list(when))
    happening = {event for _, _, event in when}
    kept = {key: loss for key, loss in losses.items() if key[0] in happening}
    if not kept:
        assert not list(export_rows("splt", table, calendar, SAMPLES))
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "PIECE", piece)
        rows = {form: exported(form, table, calendar) for form in ("selt", "splt")}
    for form in ("selt", "splt"):
        columns = {name: rows[form][name] for name in rows[form].dtype.names or ()}
        given_too = Given(periods=PERIODS, occurrence=occurrence_of(calendar))
        made = import_table(form, columns, given_too)
        assert losses_of(made.table) == kept
        with_loss = {event for event, _, _ in kept}
        expected = happenings(calendar)
        if form == "splt":
            expected = [row for row in expected if row[2] in with_loss]
        assert happenings(made.calendar) == expected


@settings(max_examples=examples(100))
@given(LOSSES, WHEN, st.integers(1, 9))
def test_years_have_the_sums_of_their_occurrences(
    losses: Losses, when: set[tuple[int, int, int]], piece: int
) -> None:
    sums: dict[tuple[int, int, int], float] = defaultdict(float)
    for period, _, event in sorted(when):
        for (of, summary, sample), loss in losses.items():
            if of == event:
                sums[period, summary, sample or -1] += loss
    table, calendar = loss_set(losses, list(when))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "PIECE", piece)
        pieces = list(export_rows("ylt", table, calendar, SAMPLES))
    found = [row for piece_of in pieces for row in piece_of.tolist()]
    assert [row[:1] + row[2:4] for row in found] == sorted(sums)
    for period, weight, summary, sample, loss in found:
        assert weight == 1 / PERIODS
        assert loss == pytest.approx(sums[period, summary, sample], rel=1e-15)


def test_columns_and_digits_are_those_of_the_reports() -> None:
    table, calendar = loss_set(
        {(7, 1, 0): 1.5, (7, 1, 2): 2.125}, [(3, 737_731, 7), (4, 737_732, 7)], 4
    )
    lines = {}
    for form, report in EXPORTS.items():
        encoder = CsvEncoder(report, 4)
        body = b"".join(
            bytes(encoder.encode(rows)) for rows in export_rows(form, table, calendar, SAMPLES)
        )
        lines[form] = (bytes(encoder.header()) + body).decode().splitlines()
    assert lines["selt"] == ["EventId,SummaryId,SampleId,Loss", "7,1,-1,1.50", "7,1,2,2.12"]
    assert lines["splt"] == [
        "Period,PeriodWeight,EventId,Year,Month,Day,Hour,Minute,SummaryId,SampleId,Loss",
        "3,0.166667,7,2020,1,2,0,0,1,-1,1.50",
        "3,0.166667,7,2020,1,2,0,0,1,2,2.12",
        "4,0.166667,7,2020,1,3,0,0,1,-1,1.50",
        "4,0.166667,7,2020,1,3,0,0,1,2,2.12",
    ]
    assert lines["ylt"][:2] == [
        "Period,PeriodWeight,SummaryId,SampleId,Loss",
        "3,0.166667,1,-1,1.50",
    ]


def test_a_set_without_dates_is_read_as_one_without() -> None:
    losses = {(7, 1, 1): 1.5, (8, 1, 1): 1.0}
    table, calendar = loss_set(losses, [(3, 99, 7), (3, 98, 8)], dated=False)
    # Ids of the model's own are no dates, but an order.
    assert happenings(calendar) == [(3, 98, 8), (3, 99, 7)]
    encoder = CsvEncoder(EXPORTS["splt"], 8)
    body = bytes(encoder.header()) + bytes(encoder.encode(exported("splt", table, calendar)))
    made = import_table("splt", body, Given(periods=PERIODS))
    assert not made.calendar.dated
    assert happenings(made.calendar) == [(3, 0, 7), (3, 0, 8)]


@pytest.mark.parametrize("dated", [True, False])
def test_an_event_that_happens_twice_on_a_date_is_read_as_repeated(*, dated: bool) -> None:
    losses = {(7, 1, 0): 1.5, (7, 2, 1): 2.0, (9, 1, 1): 3.0}
    when = [(3, 700_000, 7), (3, 700_000, 7), (3, 700_000, 9), (4, 700_001, 7)]
    table, calendar = loss_set(losses, when, dated=dated)
    rows = exported("splt", table, calendar)
    columns = {name: rows[name] for name in rows.dtype.names or ()}
    with pytest.raises(InputError, match="is already in row"):
        import_table("splt", columns, Given(periods=PERIODS))
    made = import_table("splt", columns, Given(periods=PERIODS, repeated=True))
    assert losses_of(made.table) == losses
    assert happenings(made.calendar) == [(p, d * dated, e) for p, d, e in happenings(calendar)]
    part = {name: np.append(values, values[0]) for name, values in columns.items()}
    with pytest.raises(InputError, match="event 7 has other losses"):
        import_table("splt", part, Given(periods=PERIODS, repeated=True))


@settings(max_examples=examples(60))
@given(LOSSES, WHEN, st.integers(0, SAMPLES), st.integers(1, 9))
def test_a_sample_is_read_as_it_was_from_forms_that_have_one(
    losses: Losses, when: set[tuple[int, int, int]], sample: int, piece: int
) -> None:
    when = {(period, 0, event) for period, _, event in when}
    table, calendar = loss_set(losses, list(when), dated=False)
    happening = {event for _, _, event in when}
    kept = {key: x for key, x in losses.items() if key[0] in happening and key[2] == sample}
    wholes: Losses = defaultdict(float)
    for (event, _, _), loss in sorted(kept.items()):
        wholes[event, 1, 1] += loss
    expected = {"openquake": {(*key[:2], 1): x for key, x in kept.items()}, "climada": wholes}
    for form, wanted in expected.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting, "PIECE", piece)
            pieces = list(export_rows(form, table, calendar, SAMPLES, sample))
        rows = np.concatenate([np.zeros(0, EXPORTS[form].dtype(8)), *pieces])
        assert bool(len(rows)) == bool(wanted)
        if wanted:
            columns = {name: rows[name] for name in rows.dtype.names or ()}
            made = import_table(form, columns, Given(periods=PERIODS))
            assert losses_of(made.table) == pytest.approx(wanted, rel=1e-15)
            happens = {(period, event) for period, _, event in happenings(made.calendar)}
            assert happens == {(p, e) for p, _, e in when if e in {key[0] for key in kept}}


def test_an_event_that_happens_twice_in_a_year_is_two_events_of_climada() -> None:
    table, calendar = loss_set({(7, 1, 1): 1.5, (7, 2, 1): 2.0}, [(3, 1, 7), (3, 2, 7), (4, 1, 7)])
    rows = exported("climada", table, calendar)
    assert rows.tolist() == [(3, 7, 3.5), (3, 7, 3.5), (4, 7, 3.5)]


@settings(max_examples=examples(60))
@given(LOSSES, WHEN, st.integers(1, 9))
def test_an_event_loss_table_has_the_moments_of_the_samples(
    losses: Losses, when: set[tuple[int, int, int]], piece: int
) -> None:
    table, calendar = loss_set(losses, list(when))
    drawn: defaultdict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(SAMPLES))
    for (event, summary, sample), loss in losses.items():
        if sample:
            drawn[event, summary][sample - 1] = loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "PIECE", piece)
        pieces = list(export_rows("elt", table, calendar, SAMPLES))
    rows = np.concatenate([np.zeros(0, EXPORTS["elt"].dtype(8)), *pieces])
    assert [(row["EventId"], row["SummaryId"]) for row in rows] == sorted(drawn)
    for row in rows:
        of = drawn[row["EventId"], row["SummaryId"]]
        deviation = row["sd_independent"] + row["sd_correlated"]
        assert row["mean"] == pytest.approx(of.mean())
        assert deviation == pytest.approx(of.std(ddof=1), abs=1e-9 * of.mean())
        assert row["exposed_value"] >= max(
            map(max, (x for k, x in drawn.items() if k[1] == row["SummaryId"]))
        )
        assert row["rate"] * PERIODS == pytest.approx(sum(e == row["EventId"] for *_, e in when))
    if len(rows) and (rows["rate"] > 0).any():
        # Every row has a beta distribution.
        columns = {name: rows[name] for name in rows.dtype.names or ()}
        import_table("elt", columns, Given(periods=200, samples=2))


def test_deviations_are_shared_so_that_the_whole_event_keeps_its_own() -> None:
    def shared(of_two: list[float]) -> tuple[float, float]:
        losses = {(1, 1, s): x for s, x in enumerate((1.0, 2.0, 3.0), 1)}
        losses |= {(1, 2, s): x for s, x in enumerate(of_two, 1)}
        rows = exported("elt", *loss_set(losses, [(1, 0, 1)]))
        assert rows["sd_independent"] + rows["sd_correlated"] == pytest.approx(1)
        return float(rows["sd_correlated"][0]), float(rows["sd_correlated"][1])

    assert shared([1.0, 2.0, 3.0]) == pytest.approx((1, 1))
    assert shared([3.0, 2.0, 1.0]) == (0, 0)
    # Correlation 1/2, which is the square of the common part.
    assert shared([1.0, 3.0, 2.0]) == pytest.approx((0.5**0.5, 0.5**0.5))
    alone = exported("elt", *loss_set({(1, 1, 1): 1.0, (1, 1, 2): 4.0}, [(1, 0, 1)]))
    assert alone["sd_correlated"].tolist() == [0]


@settings(max_examples=examples(60))
@given(LOSSES, WHEN, st.integers(1, 4), st.booleans())
def test_a_set_of_one_sample_is_repeated_with_its_means(
    losses: Losses, when: set[tuple[int, int, int]], samples: int, means: bool
) -> None:
    losses = {key: x for key, x in losses.items() if key[2] == 1 or (means and key[2] == 0)}
    if not losses:
        return
    table, _ = loss_set(losses, list(when))
    has_means = any(sample == 0 for *_, sample in losses)
    expected: Losses = {}
    for (event, summary, sample), loss in losses.items():
        of = [0] if sample == 0 else range(1 if has_means else 0, samples + 1)
        expected |= {(event, summary, s): loss for s in of}
    assert losses_of(repeated(table, samples)) == expected
