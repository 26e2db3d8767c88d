"""Imported loss sets against the tools whose tables they are.

``THALWEG_CLIMADA_PYTHON`` names an interpreter with ``climada``, ``THALWEG_ODS_PYTHON`` one with
``ods-tools``; ``Rscript`` is R's, with the package ``actuar`` (apt-get install r-cran-actuar).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.arrays import Floats
from core.losses.inputs import Occurrence, encode_occurrence
from core.portfolio._kernels.beta import beta_losses
from core.portfolio.elt import count_table
from core.portfolio.exporting import export_rows
from core.portfolio.importing import import_table
from core.portfolio.tables import Given, Imported

CLIMADA = os.environ.get("THALWEG_CLIMADA_PYTHON")
ODS = os.environ.get("THALWEG_ODS_PYTHON")
RSCRIPT = shutil.which("Rscript")
HAS_ACTUAR = (
    RSCRIPT is not None
    and not subprocess.run(
        [RSCRIPT, "-e", "library(actuar)"], capture_output=True, check=False
    ).returncode
)


def ask(command: list[str], values: Any = None) -> Any:  # noqa: ANN401 - JSON
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def years(made: Imported, sample: int = 1) -> Floats:
    """Annual losses of a sample by period."""
    found = np.zeros(made.calendar.periods)
    for rows in export_rows("ylt", made.table, made.calendar, made.samples):
        ours = rows[rows["SampleId"] == sample]
        np.add.at(found, ours["Period"] - 1, ours["Loss"])
    return found


@pytest.mark.skipif(not HAS_ACTUAR, reason="there is no Rscript with actuar")
def test_beta_quantiles_and_moments_are_those_of_r() -> None:
    assert RSCRIPT is not None
    rng = np.random.default_rng(0)
    n = 2000
    a, b = 10 ** rng.uniform(-2, 5, n), 10 ** rng.uniform(-2, 5, n)
    scores = rng.normal(size=n)
    out = np.empty(n)
    means, sums = a / (a + b), a + b
    beta_losses(means, sums, np.ones(n), scores, out)
    program = """
    suppressMessages(library(actuar)); options(digits = 17)
    v <- as.matrix(read.csv(file("stdin"), header = FALSE))
    cat(paste(qbeta(pnorm(v[,3]), v[,1], v[,2]), mbeta(2, v[,1], v[,2]), sep = ","), sep = "\\n")
    """
    lines = "\n".join(
        f"{p!r},{q!r},{z!r}"
        for p, q, z in zip(a.tolist(), b.tolist(), scores.tolist(), strict=True)
    )
    done = subprocess.run(
        [RSCRIPT, "-e", program], input=lines, capture_output=True, text=True, check=True
    )
    quantiles, second = np.array([line.split(",") for line in done.stdout.split()], np.float64).T
    spread = np.sqrt(means * (1 - means) / (sums + 1))
    assert np.abs(out - quantiles).max() < 1e-5
    assert (np.abs(out - quantiles) / spread).max() < 1e-5
    # Where the beta function itself is too small for a number, actuar has no moment.
    told = sums < 300
    assert told.sum() > 100
    np.testing.assert_allclose(second[told], (spread**2 + means**2)[told], rtol=1e-9)


@pytest.mark.skipif(RSCRIPT is None, reason="there is no Rscript")
@pytest.mark.parametrize(
    ("mean", "dispersion"), [(0.3, None), (40.0, None), (0.3, 1.5), (40.0, 20.0)]
)
def test_chances_of_counts_are_those_of_r(mean: float, dispersion: float | None) -> None:
    assert RSCRIPT is not None
    form = "poisson" if dispersion is None else "negative-binomial"
    ours = count_table(Given(frequency=form, dispersion=dispersion), mean)  # type: ignore[arg-type]
    call = f"ppois(0:{len(ours) - 1}, {mean})"
    if dispersion is not None:
        call = f"pnbinom(0:{len(ours) - 1}, size={mean / (dispersion - 1)!r}, mu={mean})"
    program = f'options(digits = 17); cat(paste("[", paste({call}, collapse = ","), "]"))'
    theirs = ask([RSCRIPT, "-e", program])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


SAMPLING = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from climada.engine import Impact
from climada.util.yearsets import impact_yearset
asked = json.load(sys.stdin)
events, losses = np.array(asked["events"]), np.array(asked["losses"])
imp = Impact(event_id=events, event_name=[str(event) for event in events], at_event=losses,
             frequency=np.array(asked["rates"]), date=np.ones(len(events), int))
years = list(range(1, asked["years"] + 1))
options = {"with_replacement": asked["again"], "seed": 7}
yimp, picked = impact_yearset(imp, years, correction_fac=False, **options)
rows = [(year, int(events[k]), float(losses[k])) for year, ks in zip(years, picked) for k in ks]
print(json.dumps({"rows": rows, "at_event": yimp.at_event.tolist(), "aai_agg": yimp.aai_agg}))
"""


@pytest.mark.skipif(CLIMADA is None, reason="THALWEG_CLIMADA_PYTHON names no environment")
@pytest.mark.parametrize("again", [False, True], ids=["without", "with"])
def test_sampled_years_of_climada_have_its_annual_impacts(*, again: bool) -> None:
    rng = np.random.default_rng(3)
    losses = np.round(rng.lognormal(10, 2, 12), 2)
    asked = {"events": list(range(100, 112)), "losses": losses.tolist(), "years": 300,
             "rates": [0.2] * 12, "again": again}  # fmt: skip
    told = ask([str(CLIMADA), "-c", SAMPLING], asked)
    repeated = len(told["rows"]) > len({tuple(row) for row in told["rows"]})
    assert repeated is again
    lines = ["year,event_id,at_event", *(",".join(map(repr, row)) for row in told["rows"])]
    made = import_table("climada", "\n".join(lines).encode(), Given(periods=300))
    np.testing.assert_allclose(years(made), told["at_event"], rtol=1e-12)
    assert years(made).mean() == pytest.approx(told["aai_agg"], rel=1e-12)
    table = {"Period": np.arange(1, 301), "Loss": np.array(told["at_event"])}
    np.testing.assert_allclose(
        years(import_table("ylt", table, Given(periods=300))), told["at_event"], rtol=0
    )


COMBINING = """
import json, sys, warnings
warnings.simplefilter("ignore")
import pandas as pd
from ods_tools.combine.combine import combine, DEFAULT_CONFIG
folders, periods, out = sys.argv[1].split(":"), int(sys.argv[2]), sys.argv[3]
combine(folders, DEFAULT_CONFIG["group_event_set_fields"], periods, group_mean=True,
        group_alt=True, group_ept=True, output_dir=out)
alt, ept = pd.read_csv(out + "/0_galt.csv"), pd.read_csv(out + "/0_gept.csv")
curves = {kind: ept[ept.EPType == kind].Loss.tolist() for kind in (1, 3)}
print(json.dumps({"mean": alt.MeanLoss.tolist(), "oep": curves[1], "aep": curves[3]}))
"""
MELT = "EventId,SummaryId,SampleType,MeanLoss,SDLoss,MaxLoss"


def analysis(folder: Path, occurrence: Occurrence, losses: dict[int, float]) -> Imported:
    """An analysis with mean losses of events, for the peer; and as a loss set."""
    for name in ("input", "output"):
        (folder / name).mkdir(parents=True)
    (folder / "input" / "occurrence.bin").write_bytes(encode_occurrence(occurrence, "bin"))
    summaries = [{"id": 1, "oed_fields": ["CountryCode"], "ord_output": {"elt_moment": True}}]
    told = {"model_name_id": "m", "model_supplier_id": "s", "number_of_samples": 1,
            "gul_output": True, "gul_summaries": summaries,
            "model_settings": {"event_set": "p"}}  # fmt: skip
    (folder / "output" / "analysis_settings.json").write_text(json.dumps(told))
    (folder / "output" / "gul_S1_summary-info.csv").write_text(
        "summary_id,CountryCode,tiv\n1,GB,9\n"
    )
    rows = [f"{event},1,1,{loss},0,{loss}" for event, loss in losses.items()]
    (folder / "output" / "gul_S1_melt.csv").write_text("\n".join([MELT, *rows, ""]))
    lines = ["EventId,SummaryId,SampleId,Loss", *(f"{e},1,-1,{x}" for e, x in losses.items())]
    return import_table("selt", "\n".join(lines).encode(), Given(occurrence=occurrence))


def combined(folder: Path, names: list[str], periods: int) -> dict[str, list[float]]:
    folders = ":".join(str(folder / name) for name in names)
    told: dict[str, list[float]] = ask(
        [str(ODS), "-c", COMBINING, folders, str(periods), str(folder / "out")]
    )
    return told


def happening(pairs: list[tuple[int, int]], periods: int) -> Occurrence:
    events, numbers = np.array(pairs, np.int32).T
    return Occurrence(periods, events, numbers, np.full(len(pairs), 730_000))


@pytest.mark.skipif(ODS is None, reason="THALWEG_ODS_PYTHON names no environment")
def test_sets_of_one_catalogue_add_up_as_ods_tools_adds_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    pairs = {(int(rng.integers(1, 20)), int(period)) for period in np.repeat(np.arange(1, 51), 3)}
    occurrence = happening(sorted(pairs), 50)
    sets, sums = [], defaultdict[tuple[int, int], float](float)
    for name in ("a", "b"):
        losses = {event: float(np.round(rng.lognormal(8, 1), 1)) for event in range(1, 20)}
        sets.append(analysis(tmp_path / name, occurrence, losses))
        for rows in export_rows("splt", sets[-1].table, sets[-1].calendar, sets[-1].samples):
            for period, event, loss in rows[["Period", "EventId", "Loss"]].tolist():
                sums[period, event] += loss
    told = combined(tmp_path, ["a", "b"], 50)
    annual = years(sets[0], -1) + years(sets[1], -1)
    largest = [max(x for (p, _), x in sums.items() if p == period) for period in range(1, 51)]
    assert told["mean"] == pytest.approx([np.mean(annual)], rel=1e-6)
    assert sorted(told["aep"]) == pytest.approx(sorted(annual), rel=1e-6)
    assert sorted(told["oep"]) == pytest.approx(sorted(largest), rel=1e-6)


@pytest.mark.skipif(ODS is None, reason="THALWEG_ODS_PYTHON names no environment")
@pytest.mark.parametrize(
    ("group", "theirs"),
    [
        pytest.param(100, 10.0, id="as many periods as the model has"),
        pytest.param(150, 40 / 3, id="half as many more"),
        pytest.param(10, 100.0, id="a tenth"),
    ],
)
def test_where_periods_have_no_event_the_mean_of_ods_tools_depends_on_their_number(
    tmp_path: Path, group: int, theirs: float
) -> None:
    """It fills each stretch of periods with those that have events first: ods-tools 5.0.9."""
    occurrence = happening([(event, event) for event in range(1, 11)], 100)
    ours = analysis(tmp_path / "a", occurrence, dict.fromkeys(range(1, 11), 100.0))
    assert years(ours, -1).mean() == 10.0
    assert combined(tmp_path, ["a"], group)["mean"] == pytest.approx([theirs], rel=1e-6)


@pytest.mark.skipif(ODS is None, reason="THALWEG_ODS_PYTHON names no environment")
def test_ods_tools_has_an_event_once_that_happens_twice_in_a_period(tmp_path: Path) -> None:
    occurrence = happening([(1, period) for period in range(1, 11)] * 2, 10)
    ours = analysis(tmp_path / "a", occurrence, {1: 7.0})
    assert years(ours, -1).mean() == 14.0
    assert combined(tmp_path, ["a"], 10)["mean"] == [7.0]
