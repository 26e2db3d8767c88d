"""Tables of others become loss sets: what is in them, in which order, and what is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arrays import Array
from core.budget import installed
from core.errors import BudgetExceededError, InputError
from core.losses.inputs import Occurrence, SummaryInfo
from core.portfolio.importing import ALL_FORMS, import_table
from core.portfolio.losses import Calendar, LossTable
from core.portfolio.tables import Given, Imported
from tests.scale import examples

SPLT = "Period,PeriodWeight,EventId,Year,Month,Day,Hour,Minute,SummaryId,SampleId,Loss"
SELT = "EventId,SummaryId,SampleId,Loss,ImpactedExposure"
OPENQUAKE = (
    "#,,,,\"generated_by='OpenQuake engine 3.25.0', investigation_time=10.0\"\n"
    "event_id,loss,loss_type,rup_id,year"
)
OCCURRENCE = Occurrence(
    10,
    np.array([7, 2, 7], np.int32),
    np.array([9, 4, 1], np.int32),
    np.array([30, 20, 10]),
    granular=True,
)


def read(form: str, text: str | Mapping[str, Array], **given: Any) -> Imported:  # noqa: ANN401 - of all types
    data = text.encode() if isinstance(text, str) else text
    return import_table(form, data, Given(**given), "the-file")


def losses_of(table: LossTable) -> dict[tuple[int, int, int], float]:
    """Losses by event, summary and sample, as the layout of a loss table says."""
    found = {}
    for e, event in enumerate(table.event_ids.tolist()):
        for block in range(table.event_starts[e], table.event_starts[e + 1]):
            for k in range(table.counts[block]):
                sample = int(table.samples[table.samples_at[block] + k])
                key = (event, int(table.summary_ids[block]), sample)
                assert key not in found
                found[key] = float(table.losses[table.losses_at[block] + k])
    return found


def happenings(calendar: Calendar) -> list[tuple[int, int, int]]:
    """Period, date and event of each occurrence."""
    rows = calendar.occurrences
    return list(
        zip(rows.periods.tolist(), rows.dates.tolist(), rows.event_ids.tolist(), strict=True)
    )


def day(*date: int) -> int:
    """Days from 1 March of year 0."""
    return (dt.date(*date) - dt.date(1, 1, 1)).days + 306


def test_a_period_table_has_the_losses_of_an_event_once_and_all_its_occurrences() -> None:
    text = f"""{SPLT}
3,0.1,7,2020,1,2,0,0,1,-1,5.5
3,0.1,7,2020,1,2,0,0,1,2,5
4,0.1,7,2021,3,1,0,0,1,2,5
4,0.1,7,2021,3,1,0,0,1,-1,5.5
4,0.1,2,2021,2,28,0,0,2,1,1.25
4,0.1,2,2021,2,28,0,0,2,2,0
4,0.1,2,2021,2,28,0,0,2,-4,6
"""
    made = read("splt", text, periods=10)
    assert losses_of(made.table) == {(2, 2, 1): 1.25, (7, 1, 0): 5.5, (7, 1, 2): 5.0}
    assert happenings(made.calendar) == [
        (3, day(2020, 1, 2), 7),
        (4, day(2021, 2, 28), 2),
        (4, day(2021, 3, 1), 7),
    ]
    assert (made.calendar.periods, len(made.calendar.weights)) == (10, 0)
    assert made.calendar.dated
    assert not made.calendar.granular
    assert made.samples == 2
    assert made.left_out == {"special samples": 1, "no loss": 1}
    assert read("splt", text, periods=10, samples=50).samples == 50


def test_hours_make_dates_minutes() -> None:
    made = read("splt", f"{SPLT}\n1,1,7,2020,1,2,13,5,1,1,2\n", periods=1)
    assert made.calendar.granular
    assert happenings(made.calendar) == [(1, day(2020, 1, 2) * 1440 + 13 * 60 + 5, 7)]


def test_a_model_without_calendar_has_no_dates() -> None:
    made = read("splt", f"{SPLT}\n1,1,7,0,3,1,0,0,1,1,2\n1,1,6,0,3,9,0,0,1,1,2\n", periods=1)
    assert not made.calendar.dated
    assert happenings(made.calendar) == [(1, 0, 6), (1, 0, 7)]


def test_an_event_table_happens_as_its_occurrence_says() -> None:
    text = f"{SELT}\n7,1,2,5,9\n7,1,-1,4,9\n2,3,1,2,9\n8,1,1,2,9\n2,3,-5,9,9\n"
    info = SummaryInfo(np.array([1, 3], np.int32), {"region": np.array(["a", "b"])})
    made = read("selt", text, occurrence=OCCURRENCE, info=info)
    assert losses_of(made.table) == {(2, 3, 1): 2.0, (7, 1, 0): 4.0, (7, 1, 2): 5.0}
    assert happenings(made.calendar) == [(1, 10, 7), (4, 20, 2), (9, 30, 7)]
    assert (made.calendar.periods, made.calendar.granular) == (10, True)
    assert made.left_out == {"special samples": 1, "no loss": 0, "events that never happen": 1}
    assert made.dimensions is info


def test_a_year_table_without_events_makes_one_of_each_period() -> None:
    made = read("ylt", "Period,Loss,region,LOB\n4,5,north,\n1,6,north,\n4,7,south,x y\n", periods=9)
    assert losses_of(made.table) == {(1, 1, 1): 6.0, (4, 1, 1): 5.0, (4, 2, 1): 7.0}
    assert happenings(made.calendar) == [(1, 0, 1), (4, 0, 4)]
    assert not made.calendar.dated
    assert made.dimensions is not None
    assert made.dimensions.summary_ids.tolist() == [1, 2]
    columns = {name: texts.tolist() for name, texts in made.dimensions.columns.items()}
    assert columns == {"region": ["north", "south"], "LOB": ["", "x y"]}


def test_names_of_columns_come_in_any_case_and_order() -> None:
    text = "loss,EVENT_ID,date,period\n2.5,7,2031-05-28,3\n"
    made = read("ylt", text, periods=3)
    assert losses_of(made.table) == {(7, 1, 1): 2.5}
    assert happenings(made.calendar) == [(3, day(2031, 5, 28), 7)]


def test_columns_make_what_their_csv_makes() -> None:
    columns: dict[str, Array] = {
        "Period": np.array([1, 2], np.int64),
        "Loss": np.array([2.5, 3.0], np.float32),
        "EventId": np.array([5, 4], np.uint16),
        "Date": np.array(["2031-05-28", "2032-01-01"], "M8[ns]"),
        "region": np.array(["a", "b"], object),
    }
    text = "Period,Loss,EventId,Date,region\n1,2.5,5,2031-05-28,a\n2,3,4,2032-01-01,b\n"
    ours, theirs = read("ylt", columns, periods=4), read("ylt", text, periods=4)
    assert losses_of(ours.table) == losses_of(theirs.table) == {(4, 2, 1): 3.0, (5, 1, 1): 2.5}
    assert happenings(ours.calendar) == happenings(theirs.calendar)


TWO_DATES = "Period,EventId,Loss,Date\n1,1,4,{}\n1,2,7,{}\n"
TIMES = ("2001-02-27 23:00", "2001-02-28 01:00")


@pytest.mark.parametrize(
    "data",
    [
        TWO_DATES.format(*TIMES),
        TWO_DATES.format("2001-02-27T23:00", "2001-02-28 01:00:00.000"),
        *(
            {
                "Period": np.array([1, 1]),
                "EventId": np.array([1, 2]),
                "Loss": np.array([4.0, 7.0]),
                "Date": np.array(TIMES, "M8[m]").astype(dtype),
            }
            for dtype in ("M8[s]", "M8[ns]", object)
        ),
        "Period,EventId,Loss,Year,Month,Day,Hour\n1,1,4,2001,2,27,23\n1,2,7,2001,2,28,1\n",
        "Period,EventId,Loss,Date,Hour\n1,1,4,2001-02-27,23\n1,2,7,2001-02-28,1\n",
        "Period,EventId,Loss,Date,Hour\n1,1,4,2001-02-27 00:00,23\n1,2,7,2001-02-28 00:00,1\n",
    ],
)
def test_dates_keep_their_time_of_day(data: str | Mapping[str, Array]) -> None:
    calendar = read("ylt", data, periods=1).calendar
    assert calendar.granular
    assert happenings(calendar) == [
        (1, day(2001, 2, 27) * 1440 + 23 * 60, 1),
        (1, day(2001, 2, 28) * 1440 + 60, 2),
    ]


def test_dates_that_are_all_at_midnight_are_days() -> None:
    text = TWO_DATES.format("2001-02-27 00:00", "2001-02-28T00:00:00")
    calendar = read("ylt", text, periods=1).calendar
    assert not calendar.granular
    assert happenings(calendar) == [(1, day(2001, 2, 27), 1), (1, day(2001, 2, 28), 2)]


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        (("2001-02-27 23:00", "2001-02-28"), "line 3: Date 2001-02-28 has no time of day, as"),
        (("2001-02-27", "2001-02-28 01:00"), "line 3: Date .* has a time of day, and others none"),
        (("2001-02-27 23:00:30", "2001-02-28 01:00"), "line 2: Date .* has seconds. Round"),
        (("2001-02-27 23:00", "2001-02-28 01:00:00.5"), "line 3: Date .* has seconds. Round"),
        (("2001-02-27 23:00Z", "2001-02-28 01:00Z"), "line 2: Date .* without a time zone"),
        (("2001-02-27 25:00", "2001-02-28 01:00"), "line 2: Date .* is not a date such as"),
    ],
)
def test_times_of_day_that_are_none_are_refused(dates: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("ylt", TWO_DATES.format(*dates), periods=1)


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        ("Date,Hour", "2001-02-27 23:00,0", "there is Hour, and Date has a time of day"),
        ("Date,Minute", "2001-02-27,5", "beside Date there is Minute. "),
        ("Date,Year,Month,Day", "2001-02-27,2001,2,27", "beside Date there is Year. "),
        ("Date,Hour", "2001-02-27,24", "line 2: Hour 24 is not in 0 to 23"),
    ],
)
def test_a_date_is_said_once(names: str, values: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("ylt", f"Period,Loss,{names}\n1,4,{values}\n", periods=1)


def test_dates_whose_hours_are_all_0_are_days() -> None:
    calendar = read("ylt", "Period,Loss,Date,Hour\n1,4,2001-02-27,0\n", periods=1).calendar
    assert not calendar.granular
    assert happenings(calendar) == [(1, day(2001, 2, 27), 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [("1_000,5", "Period '1_000' is not"), ("1,1_000", "Loss '1_000' is not a number")],
)
def test_digits_are_not_joined_by_underscores(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("ylt", f"Period,Loss,region\n{text},a\n", periods=5000)


def test_without_events_a_period_with_two_dates_is_told_of_as_a_period() -> None:
    text = "Period,Loss,Date\n1,4,2001-02-27\n1,7,2001-02-28\n"
    with pytest.raises(InputError, match=r"line 3: period 1 has .* line 2, .*EventId") as caught:
        read("ylt", text, periods=1)
    assert str(caught.value.hint).endswith("make each date an event of its own with apart=true")
    assert len(read("ylt", text, periods=1, apart=True).calendar.occurrences.periods) == 2


def test_losses_that_differ_from_occurrence_to_occurrence_need_events_apart() -> None:
    text = "Period,EventId,Loss\n1,7,2\n3,7,4\n3,2,1\n"
    with pytest.raises(InputError, match=r"line 3: event 7 has other losses .*, line 2"):
        read("ylt", text, periods=5)
    made = read("ylt", text, periods=5, apart=True)
    assert losses_of(made.table) == {(1, 1, 1): 2.0, (2, 1, 1): 1.0, (3, 1, 1): 4.0}
    assert happenings(made.calendar) == [(1, 0, 1), (3, 0, 2), (3, 0, 3)]


def test_an_occurrence_that_lacks_a_sample_is_another_loss() -> None:
    text = "Period,EventId,SampleId,Loss\n1,7,1,2\n1,7,2,3\n2,7,1,2\n"
    with pytest.raises(InputError, match="event 7 has other losses"):
        read("ylt", text, periods=5)


def test_weights_of_periods_are_those_given() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    text = f"{SPLT}\n2,0.3,7,2020,1,2,0,0,1,1,5\n"
    assert read("splt", text, periods=3, weights=weights).calendar.weights is weights
    with pytest.raises(InputError, match=r"line 2: PeriodWeight 0.3 is not the weight"):
        read("splt", text, periods=3)
    with pytest.raises(InputError, match="weights of 3 periods, and 4 periods"):
        read("splt", text, periods=4, weights=weights)
    with pytest.raises(InputError, match=r"add up to 1\.5"):
        read("splt", text, periods=3, weights=weights * 1.5)


def test_openquake_has_events_by_loss_type() -> None:
    lines = ("53,2.5E+05,structural,3221226146,10", "53,1E+05,contents,1,10", "0,4,contents,1,2")
    text = "\n".join([OPENQUAKE, *lines])
    made = read("openquake", text, periods=40)
    assert losses_of(made.table) == {(0, 2, 1): 4.0, (53, 1, 1): 250_000.0, (53, 2, 1): 100_000.0}
    assert happenings(made.calendar) == [(2, 0, 0), (10, 0, 53)]
    assert made.dimensions is not None
    assert made.dimensions.columns["loss_type"].tolist() == ["structural", "contents"]


@pytest.mark.parametrize(
    ("kinds", "named"),
    [
        (("structural", "structural+contents"), "structural"),
        (("structural", "structural_ins"), "structural"),
        (("structural_ins+contents_ins", "contents_ins"), "contents"),
        (("structural", "occupants_night"), "occupants_night"),
        (("structural", "claim"), "claim"),
    ],
)
def test_loss_types_that_hold_the_same_loss_are_not_added(
    kinds: tuple[str, str], named: str
) -> None:
    text = "event_id,loss,loss_type,year\n" + "".join(f"1,2,{kind},1\n" for kind in kinds)
    with pytest.raises(InputError, match=f"are not to be added.* so that {named}"):
        read("openquake", text, periods=1)


def test_a_sampled_year_of_climada_may_have_an_event_twice() -> None:
    text = "year,event_id,at_event\n1,4,2.5\n3,4,2.5\n1,4,2.5\n3,2,0\n"
    made = read("climada", text, periods=4)
    assert losses_of(made.table) == {(4, 1, 1): 2.5}
    assert happenings(made.calendar) == [(1, 0, 4), (1, 0, 4), (3, 0, 4)]


GOOD = {
    "splt": f"{SPLT}\n1,1,7,2020,1,2,0,0,1,1,2\n",
    "selt": f"{SELT}\n7,1,2,5,9\n",
    "ylt": "Period,EventId,SampleId,Loss\n1,7,1,2\n",
    "openquake": "event_id,loss,year\n1,2,1\n",
    "climada": "year,event_id,at_event\n1,4,2\n",
}


@pytest.mark.parametrize(
    ("form", "old", "new", "message"),
    [
        ("splt", ",Loss", ",Los", "no column is named Loss"),
        ("splt", "PeriodWeight", "PeriodWeigth", "'PeriodWeigth'. Did you mean PeriodWeight"),
        ("splt", "Year", "period", "two columns are named Period"),
        ("ylt", "SampleId", "a b", "a column is named 'a b'. Name a dimension with letters"),
        ("splt", ",2\n", ",nan\n", "line 2: Loss nan is not finite"),
        ("splt", ",2\n", ",inf\n", "line 2: Loss inf is not finite"),
        ("splt", ",2\n", ",-2\n", "line 2: Loss -2.0 is negative"),
        ("splt", ",2\n", ",x\n", "line 2: Loss 'x' is not a number"),
        ("splt", ",2\n", ',"1,000"\n', "line 2: Loss '1,000' is not a number such as 1234.5"),
        ("splt", ",2\n", ",2,3\n", "line 2: the number of columns is 12 and has to be 11"),
        ("splt", "\n1,1,", "\n2,1,", "line 2: Period 2 is not in 1 to 1"),
        ("splt", "\n1,1,", "\n1.5,1,", "line 2: Period '1.5' is not a 64-bit integer"),
        ("splt", "2020,1,2", "2020,13,2", "line 2: Month 13 is not in 1 to 12"),
        ("splt", "2020,1,2", "2021,2,29", "row 1: day 29 is beyond the end of its month"),
        ("splt", "Hour,", "SummarySetId,", "a date has Year and Month and Day and Minute only"),
        ("splt", ",1,1,2\n", ",1,0,2\n", "line 2: SampleId 0 is not in 1 to"),
        ("splt", ",1,1,2\n", ",1,-6,2\n", "line 2: SampleId -6 is not in 1 to"),
        ("splt", ",1,1,2\n", ",0,1,2\n", "line 2: SummaryId 0 is not in 1 to"),
        ("splt", "1,1,7", "1,1,-7", "line 2: EventId -7 is not in 0 to"),
        ("splt", "1,1,7", "1,1,3000000000", "line 2: EventId 3000000000 is not in 0 to"),
        ("ylt", "1,7,1,2\n", "1,7,1,0\n", "no row has a loss"),
        ("ylt", "1,7,1,2\n", "", "there is a header line but no other"),
        (
            "ylt",
            "1,7,1,2\n",
            "1,7,1,2\n1,7,1,2\n",
            "line 3: the loss of Period 1, EventId 7, SampleId 1",
        ),
        ("ylt", "SampleId,Loss\n", "Date,Loss\n", "line 2: Date '1' is not a date such as"),
        ("ylt", "SampleId,Loss", "SampleId,Loss,region", "line 2: the number of columns is 4"),
        ("ylt", "Period", "\x00", "the byte 0x00 is a control character"),
        ("ylt", "Period", '"Per\niod', "no column is named Period"),
        ("selt", "7,1,2", "8,1,2", "no event of the table happens"),
        (
            "selt",
            "ImpactedExposure\n",
            "SummarySetId\n6,1,1,5,1\n",
            "line 3: SummarySetId 9.*not 1",
        ),
        ("selt", "7,1,2,5,9\n", "7,1,2,5,9\n7,1,2,5,9\n", "line 3: .* is already in line 2"),
        ("openquake", "loss,", "los,", "no column is named loss"),
        ("climada", "at_event", "at_evnt", "no column is named at_event"),
    ],
)
def test_what_is_wrong_is_named(form: str, old: str, new: str, message: str) -> None:
    assert old in GOOD[form]
    read(form, GOOD[form], periods=1, occurrence=OCCURRENCE)
    with pytest.raises(InputError, match=message) as caught:
        read(form, GOOD[form].replace(old, new, 1), periods=1, occurrence=OCCURRENCE)
    assert caught.value.hint
    assert caught.value.source == "the-file"


def test_what_a_table_does_not_tell_has_to_be_given() -> None:
    with pytest.raises(InputError, match="how many periods there are"):
        read("ylt", GOOD["ylt"])
    with pytest.raises(InputError, match="does not tell when they happen"):
        read("selt", GOOD["selt"])
    with pytest.raises(InputError, match="the number of periods, 0, is not in"):
        read("ylt", GOOD["ylt"], periods=0)
    with pytest.raises(InputError, match="SampleId 2 is not in 1 to 1"):
        read("selt", GOOD["selt"], occurrence=OCCURRENCE, samples=1)
    info = SummaryInfo(np.array([3], np.int32), {"region": np.array(["b"])})
    with pytest.raises(InputError, match="summary 1 is not described"):
        read("selt", GOOD["selt"], occurrence=OCCURRENCE, info=info)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("Loss", np.array(["2"], object), "column Loss has values of type object, not numbers"),
        ("Period", np.array([1.0]), "column Period has values of type float64, not integers"),
        ("Period", np.array([1], np.uint64), "column Period has values of type uint64"),
        ("Loss", np.array([-1.0]), "row 1: Loss -1.0 is negative"),
        ("Loss", np.zeros(0), "there are no rows"),
    ],
)
def test_columns_of_other_types_are_refused(column: str, values: Array, message: str) -> None:
    columns = {"Period": np.array([1]), "Loss": np.array([2.0]), column: values}
    with pytest.raises(InputError, match=message):
        read("ylt", columns, periods=1)


class _Poor:
    """A budget of a few bytes."""

    held = 0

    def check(self, stage: str) -> None: ...
    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None: ...
    def release(self, nbytes: int) -> None: ...
    def renew(self) -> None: ...
    def hold(self, stage: str, nbytes: int) -> None:
        if nbytes > 1 << 20:
            raise BudgetExceededError(stage)


def test_a_billion_periods_take_no_memory_and_a_large_table_is_charged() -> None:
    with installed(_Poor()):
        made = read("ylt", GOOD["ylt"], periods=1_000_000_000)
        assert made.calendar.periods == 1_000_000_000
        with pytest.raises(BudgetExceededError):
            read("ylt", GOOD["ylt"] + "1,8,1,2\n" * 100_000, periods=1)
        with pytest.raises(BudgetExceededError):
            read("ylt", {"Period": np.ones(9999, int), "Loss": np.ones(9999)}, periods=1)


ROWS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(-1, 3).filter(bool)),
    st.floats(0, 1e9, width=32),
    min_size=1,
    max_size=20,
)
WHEN = st.dictionaries(st.integers(0, 5), st.sets(st.integers(1, 6)), max_size=6)


@settings(max_examples=examples(200))
@given(ROWS, WHEN, st.integers(0, 99))
def test_rows_in_any_order_make_the_same(
    rows: dict[tuple[int, int, int], float], when: dict[int, set[int]], seed: int
) -> None:
    lines = [
        f"{period},{event},{summary},{sample},{loss!r}"
        for (event, summary, sample), loss in rows.items()
        for period in when.get(event, ())
    ]
    np.random.default_rng(seed).shuffle(lines)
    expected = {
        (event, summary, max(sample, 0)): loss
        for (event, summary, sample), loss in rows.items()
        if loss > 0 and when.get(event)
    }
    text = "\n".join(["Period,EventId,SummaryId,SampleId,Loss", *lines])
    if not expected:
        with pytest.raises(InputError):
            read("ylt", text, periods=6)
        return
    made = read("ylt", text, periods=6)
    assert losses_of(made.table) == expected
    assert list(losses_of(made.table)) == sorted(expected)
    events = {event for event, _, _ in expected}
    assert happenings(made.calendar) == sorted((p, 0, e) for e in events for p in when[e])


def test_every_form_is_tested() -> None:
    assert set(GOOD) | {"elt"} == set(ALL_FORMS)


@settings(max_examples=examples(300))
@given(
    st.sampled_from(sorted(GOOD)),
    st.integers(0, 10**6),
    st.integers(0, 9),
    st.sampled_from(
        ["", ",", "\n", "\r", '"', "#", "nan", "-1", "1e999", "9" * 30, "\x00", "é", "T"]
    ),
    st.booleans(),
)
def test_damaged_tables_are_refused_or_read_whole(
    form: str, at: int, cut: int, put: str, weighted: bool
) -> None:
    text = GOOD[form] + GOOD[form].splitlines()[-1].replace("7", "2") + "\n"
    place = at % len(text)
    weights = np.full(10, 0.1) if weighted else None
    try:
        made = read(
            form, text[:place] + put + text[place + cut :], periods=10, occurrence=OCCURRENCE,
            weights=weights,
        )  # fmt: skip
    except InputError:
        return
    losses = losses_of(made.table)
    assert losses
    assert all(0 < loss < np.inf for loss in losses.values())
    assert all(0 <= sample <= made.samples for _, _, sample in losses)


def test_another_separator_is_named() -> None:
    with pytest.raises(InputError, match="columns are separated by"):
        import_table("ylt", b"Period;Loss\n1;2\n", Given(periods=1))
