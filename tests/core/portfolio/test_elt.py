"""Event loss tables: moments of what is simulated, by formulas that share no code with it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from core.arrays import Floats
from core.budget import installed
from core.errors import BudgetExceededError, InputError
from core.portfolio._kernels.beta import beta_losses
from core.portfolio.elt import _count_samples
from core.portfolio.importing import import_table
from core.portfolio.tables import Given, Imported
from tests.scale import PURE_PYTHON

HEADER = "EventId,rate,mean,sd_independent,sd_correlated,exposed_value"
LINE = "7,0.5,10,2,3,100"
MANY = 200 if PURE_PYTHON else 20_000
SIX = 6.0
"""Standard errors within which an estimate has to be; beyond are two in a thousand million."""


def simulate(*lines: str, header: str = HEADER, **given: Any) -> Imported:  # noqa: ANN401 - of all types
    data = "\n".join([header, *lines]).encode()
    return import_table("elt", data, Given(**{"periods": 100, **given}), "the-file")


def matrix(made: Imported) -> Floats:
    """Losses by row and sample, the mean first."""
    table = made.table
    losses = np.zeros((len(table.counts), made.samples + 1))
    for row, (at, count) in enumerate(zip(table.samples_at, table.counts, strict=True)):
        losses[row, table.samples[at : at + count]] = table.losses[at : at + count]
    return losses


def beta_moments(mean: float, sd: float, exposed: float) -> list[float]:
    """Raw moments 1 to 8 of the beta distribution on the exposed value, by their recursion."""
    m, s = mean / exposed, sd / exposed
    n = m * (1 - m) / s**2 - 1
    a, moments = m * n, [1.0]
    for k in range(8):
        moments.append(moments[-1] * (a + k) / (n + k))
    return [moment * exposed ** (k + 1) for k, moment in enumerate(moments[1:])]


@pytest.mark.parametrize(
    ("mean", "independent", "correlated", "exposed"),
    [(10, 2, 3, 100), (10, 25, 0, 100), (90, 0, 20, 100), (3, 8, 0, 1e6), (50, 49, 0.5, 100)],
)
def test_samples_have_the_moments_of_their_beta_distribution(
    mean: float, independent: float, correlated: float, exposed: float
) -> None:
    line = f"7,1,{mean},{independent},{correlated},{exposed}"
    losses = matrix(simulate(line, samples=MANY))[0]
    assert losses[0] == mean
    assert losses[1:].max() <= exposed
    expected = beta_moments(mean, independent + correlated, exposed)
    for k in range(1, 5):
        error = math.sqrt((expected[2 * k - 1] - expected[k - 1] ** 2) / MANY)
        assert abs((losses[1:] ** k).mean() - expected[k - 1]) < SIX * error


def test_quantiles_of_the_beta_distribution_are_those_of_a_sum_of_chances() -> None:
    """For whole a and b, I(x; a, b) is the chance of at least a successes in a + b - 1."""
    for a, b in ((1, 1), (2, 5), (7, 3), (40, 60), (1, 200)):
        scores = np.linspace(-3.5, 3.5, 29)
        out = np.empty(len(scores))
        ones = np.ones(len(scores))
        beta_losses(ones * (a / (a + b)), ones * (a + b), ones, scores, out)
        n = a + b - 1
        for score, x in zip(scores, out.tolist(), strict=True):
            chances = (math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
            assert math.fsum(chances) == pytest.approx(math.erfc(-score / 2**0.5) / 2, rel=1e-10)


def test_large_parameters_continue_what_smaller_ones_have() -> None:
    scores = np.linspace(-4, 4, 9)
    ends = [np.empty(9), np.empty(9)]
    for out, n in zip(ends, (19_999.0, 20_001.0), strict=True):
        beta_losses(np.full(9, 0.5), np.full(9, n), np.ones(9), scores, out)
    spread = 0.5 / math.sqrt(20_001)
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=4 * spread * 5e-5)


def test_rows_depend_on_each_other_as_far_as_they_are_correlated() -> None:
    header = f"{HEADER},region"
    lines = ("10,0,3,100,a", "10,0,3,100,b", "10,3,0,100,c", "10,3,0,100,d", "10,1,2,100,e")
    made = simulate(*(f"7,1,{line}" for line in lines), header=header, samples=MANY)
    losses = matrix(made)[:, 1:]
    assert np.array_equal(losses[0], losses[1])
    correlations: Floats = np.asarray(np.corrcoef(losses))
    error = 1 / math.sqrt(MANY)
    for one, two in ((0, 2), (2, 3), (2, 4)):
        assert abs(correlations[one, two]) < SIX * error
    # The margins are nearly normal, so that their correlation is nearly that of the scores.
    assert abs(correlations[0, 4] - 2 / 3) < SIX * error + 0.01


def test_events_and_summaries_draw_losses_of_their_own() -> None:
    alone = simulate("7,1,10,2,3,100", samples=50, seed=5)
    both = simulate("6,1,10,2,3,100", "7,1,10,2,3,100", samples=50, seed=5)
    assert np.array_equal(matrix(alone)[0], matrix(both)[1])
    assert not np.intersect1d(matrix(both)[0, 1:], matrix(both)[1, 1:]).size
    other = simulate("7,1,10,2,3,100", samples=50, seed=6)
    assert not np.intersect1d(matrix(alone)[0, 1:], matrix(other)[0, 1:]).size


def _of_labels(*tables: Imported) -> dict[tuple[int | str, ...], list[float]]:
    """Losses by event and labels."""
    found: dict[tuple[int | str, ...], list[float]] = {}
    for made in tables:
        events = np.repeat(made.table.event_ids, np.diff(made.table.event_starts)).tolist()
        for row, (event, summary) in enumerate(
            zip(events, made.table.summary_ids.tolist(), strict=True)
        ):
            assert made.dimensions is not None
            columns = {n.lower(): c[summary - 1] for n, c in made.dimensions.columns.items()}
            key: tuple[int | str, ...] = (
                int(event),
                *(str(columns[name]) for name in sorted(columns)),
            )
            found[key] = matrix(made)[row].tolist()
    return found


def test_a_table_cut_by_a_label_has_the_losses_of_the_whole() -> None:
    rates = {event: f"{event},1,{event + 3},2,3,100" for event in (1, 2)}
    motor = [f"{row},motor,N" for row in rates.values()]
    house = [f"{row},house,S" for row in rates.values()]
    whole = simulate(*house, *motor, header=f"{HEADER},Lob,region", samples=5)
    one = simulate(*reversed(motor), header=f"{HEADER},LOB,Region", samples=5)
    swapped = [",".join([*row.split(",")[:-2], "S", "house"]) for row in house]
    two = simulate(*swapped, header=f"{HEADER},Region,Lob", samples=5)
    assert _of_labels(whole) == _of_labels(one, two)
    assert len(_of_labels(whole)) == 4
    calendars = [[v.tolist() for v in made.calendar.occurrences] for made in (one, two)]
    assert calendars[0] == calendars[1]


def test_rows_of_two_tables_are_independent_though_both_are_summary_1() -> None:
    tables = [simulate(f"7,1,{mean},3,0,100", samples=MANY) for mean in (10, 11)]
    ranks = [matrix(made)[0, 1:].argsort().argsort() for made in tables]
    correlation: Floats = np.asarray(np.corrcoef(ranks))
    assert abs(correlation[0, 1]) < SIX / math.sqrt(MANY)


@pytest.mark.once
def test_rates_that_may_be_return_periods_are_told() -> None:
    note, *_ = simulate("7,200,10,2,3,100", "8,0.5,10,2,3,100", samples=1).notes
    assert "1 of 2 events" in note
    assert "200.5 happen in a period" in note
    assert not any("events have a rate" in note for note in simulate(LINE).notes)


def test_a_certain_loss_is_its_mean() -> None:
    losses = matrix(simulate("7,1,10,0,0,100", "8,1,5,0,0,5", "9,1,0,0,0,0", samples=3))
    assert losses.tolist() == [[10.0] * 4, [5.0] * 4]


def test_an_aal_that_is_off_is_told_with_what_it_is_off_by() -> None:
    lines = ("7,0.01,10,8,8,100", "8,0.002,50,30,30,300", "9,0.05,1,1,1,30")
    made = simulate(*lines, periods=5000, samples=10)
    losses, events = matrix(made), made.calendar.occurrences.event_ids
    of_events = dict(zip(made.table.event_ids.tolist(), losses, strict=True))
    means = sum(of_events[event][0] for event in events.tolist()) / 5000
    drawn = sum(of_events[event][1:].mean() for event in events.tolist()) / 5000
    table = 0.1 + 0.1 + 0.05
    (note,) = made.notes
    assert note.startswith(f"The AAL is {table:.6g} by rates and means, {means:.6g} with")
    assert f"{drawn:.6g} ({drawn / table - 1:+.1%}) with their 10 samples" in note
    assert note.endswith("more periods and samples come nearer")
    (note,) = simulate("7,1,5,0,0,9", periods=500, samples=1).notes
    assert note.endswith("more periods come nearer")
    assert simulate("7,1,5,0,0,9", periods=500, samples=1, seed=1).notes == []


def test_fewer_rows_have_more_samples() -> None:
    assert simulate("7,1,10,0,0,100").samples == 1000
    usual = [_count_samples(Given(), rows) for rows in (100, 101, 10_000, 10_001)]
    assert usual == [1000, 100, 100, 10]


def test_nearly_all_or_nothing_leaves_out_samples_without_loss() -> None:
    made = simulate("7,1,30,45.8,0,100", samples=MANY)
    losses = matrix(made)[0, 1:]
    assert np.count_nonzero(losses) == made.table.counts[0] - 1 < MANY
    assert abs(losses.mean() - 30) < SIX * 45.8 / math.sqrt(MANY)


@pytest.mark.once
@pytest.mark.parametrize(("rates", "frequency", "dispersion"), [
    ((0.3, 0.1), "poisson", None),
    ((30.0, 70.0), "poisson", None),
    ((0.3, 0.1), "negative-binomial", 1.5),
    ((3.0, 7.0), "negative-binomial", 12.0),
])  # fmt: skip
def test_occurrences_have_the_frequency_asked_for(
    rates: tuple[float, float], frequency: str, dispersion: float | None
) -> None:
    count = 20_000
    lines = [f"{event},{rate},10,2,3,100" for event, rate in zip((3, 9), rates, strict=True)]
    made = simulate(*lines, periods=count, frequency=frequency, dispersion=dispersion, samples=1)
    rows = made.calendar.occurrences
    numbers = np.bincount(rows.periods, minlength=count + 1)[1:]
    mean, factor = sum(rates), dispersion or 1.0
    variance = mean * factor
    assert abs(numbers.mean() - mean) < SIX * math.sqrt(variance / count)
    # Fourth central moment: Poisson, or a negative binomial of size k and chance p = 1 / factor.
    kurtosis = 1 / mean
    if dispersion is not None:
        size, p = mean / (factor - 1), 1 / factor
        kurtosis = 6 / size + p**2 / (size * (1 - p))
    error = variance * math.sqrt((kurtosis + 2) / count)
    assert abs(numbers.var() - variance) < SIX * error
    share = rates[0] / mean
    total = int(numbers.sum())
    found = int((rows.event_ids == 3).sum())
    assert abs(found - share * total) < SIX * math.sqrt(total * share * (1 - share))
    assert not made.calendar.dated
    assert not rows.dates.any()


@pytest.mark.once
def test_counts_of_a_poisson_process_have_its_chances() -> None:
    count = 50_000
    made = simulate("7,1.5,10,2,3,100", periods=count, samples=1)
    numbers = np.bincount(made.calendar.occurrences.periods, minlength=count + 1)[1:]
    for n, seen in Counter(numbers.tolist()).items():
        chance = math.exp(-1.5) * 1.5**n / math.factorial(n)
        assert abs(seen - count * chance) < SIX * math.sqrt(count * chance) + 1


@pytest.mark.once
def test_losses_do_not_move_occurrences() -> None:
    ours = simulate("7,0.5,10,2,3,100", "8,0.2,1,0,0,5").calendar.occurrences
    other = simulate("7,0.5,99,0,0,100", "8,0.2,1,1,0,50").calendar.occurrences
    assert [values.tolist() for values in ours] == [values.tolist() for values in other]
    assert ours.periods.tolist() == sorted(ours.periods)


@pytest.mark.once
def test_events_that_never_happen_are_counted() -> None:
    made = simulate(LINE, "8,0,10,2,3,100", "9,1e-12,10,2,3,100")
    assert made.table.event_ids.tolist() == [7]
    assert made.left_out == {"events that never happen": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("8,0.5,10,20,10,100", "line 3: no beta distribution has the mean 10 and .* 30 on 100"),
        ("8,0.5,10,30,0,100", r"below 30, and above"),
        ("8,0.5,0,1,0,100", "line 3: no beta distribution has the mean 0"),
        ("8,0.5,100,1,0,100", "line 3: no beta distribution has the mean 100"),
        ("8,0.5,1e308,1e308,1e308,1.5e308", "line 3: no beta distribution"),
        ("8,0.5,10,1e-300,0,100", "line 3: no beta distribution"),
        ("8,0.5,101,2,3,100", "line 3: mean 101.0 is above exposed_value"),
        ("8,-0.5,10,2,3,100", "line 3: rate -0.5 is negative"),
        ("8,inf,10,2,3,100", "line 3: rate inf is not finite"),
        ("8,0.5,nan,2,3,100", "line 3: mean nan is not finite"),
        ("8,0.5,10,-2,3,100", "line 3: sd_independent -2.0 is negative"),
        ("8,0.5,10,2,-3,100", "line 3: sd_correlated -3.0 is negative"),
        ("8,0.5,10,2,3,-100", "line 3: exposed_value -100.0 is negative"),
        ("7,0.5,10,2,3,100", "line 3: the loss of EventId 7 is already in line 2"),
        ("-8,0.5,10,2,3,100", "line 3: EventId -8 is not in 0 to"),
        ("8,1e9,10,2,3,100", "events are expected in 100 periods"),
        ("8,1e300,10,2,3,100", "events are expected in 100 periods"),
    ],
)
def test_what_has_no_distribution_is_refused(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        simulate(LINE, line)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"periods": None}, "how many periods there are"),
        ({"samples": 0}, "the number of samples, 0, is not in 1 to 100000"),
        ({"samples": 10**9}, "the number of samples, 1000000000, is not in"),
        ({"frequency": "negative-binomial"}, "the dispersion of a negative binomial .* is None"),
        ({"frequency": "negative-binomial", "dispersion": 1.0}, "It is variance over mean, above"),
        ({"frequency": "negative-binomial", "dispersion": math.inf}, "frequency is inf"),
        ({"frequency": "negative-binomial", "dispersion": math.nan}, "frequency is nan"),
        ({"frequency": "negative-binomial", "dispersion": 1e9}, "a period may have"),
        ({"weights": np.ones(3) / 3}, "weights of 3 periods, and 100 periods"),
    ],
)
def test_what_is_given_is_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(LINE, **given)


def test_two_rates_of_an_event_are_refused() -> None:
    header = f"{HEADER},region"
    with pytest.raises(InputError, match=r"line 3: event 7 has the rate 0.6, and 0.5 before"):
        simulate(f"{LINE},a", "7,0.6,10,2,3,100,b", header=header)
    with pytest.raises(InputError, match="0 events are expected"):
        simulate("7,0,10,2,3,100")
    with pytest.raises(InputError, match="no event with a loss happens"):
        simulate("7,1,0,0,0,100")


class _Poor:
    """A budget of 100 MB."""

    held = 0

    def check(self, stage: str) -> None: ...
    def spend(self, stage: str, items: int, seconds: float = 0.0) -> None: ...
    def release(self, nbytes: int) -> None: ...
    def renew(self) -> None: ...
    def hold(self, stage: str, nbytes: int) -> None:
        if nbytes > 100 << 20:
            raise BudgetExceededError(stage)


@pytest.mark.parametrize(("periods", "samples"), [(2_000_000_000, 1), (100, 100_000)])
def test_what_small_tables_ask_for_is_charged_before_it_is_taken(
    periods: int, samples: int
) -> None:
    lines = [f"{event},0.02,10,2,3,100" for event in range(50)]
    with installed(_Poor()), pytest.raises(BudgetExceededError):
        simulate(*lines, periods=periods, samples=samples)
