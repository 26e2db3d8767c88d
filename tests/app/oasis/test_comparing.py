"""Tables of two runs are equal, close, equal but for ties, or different."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.command.main import main
from app.oasis.comparing import TableComparison, Verdict, compare_runs
from core.errors import InputError
from core.losses.inputs import Periods, encode_periods

SELT = "EventId,SummaryId,SampleId,Loss,ImpactedExposure\n"
EPT = "SummaryId,EPCalc,EPType,ReturnPeriod,Loss\n"
PSEPT = "SummaryId,SampleId,EPType,ReturnPeriod,Loss\n"


def _run(folder: Path, *, weights: list[float] | None = None, **tables: str) -> Path:
    """A run directory with these outputs."""
    (folder / "output").mkdir(parents=True)
    (folder / "input").mkdir()
    for name, text in tables.items():
        (folder / "output" / f"{name}.csv").write_text(text)
    if weights is not None:
        (folder / "input" / "periods.bin").write_bytes(
            encode_periods(Periods(np.array(weights)), "bin")
        )
    return folder


def _compare(
    tmp_path: Path, name: str, a: str, b: str, weights: list[float] | None = None
) -> TableComparison:
    sides = [
        _run(tmp_path / side, weights=weights, **{name: t}) for side, t in (("a", a), ("b", b))
    ]
    (found,) = compare_runs(*sides)
    assert found.name == name
    return found


@pytest.mark.parametrize(
    ("a", "b", "verdict", "detail"),
    [
        ("1,1,1,10.00,5.00\n", "1,1,1,10.00,5.00\n", Verdict.EQUAL, ""),
        ("1,1,1,10.0,5.00\n", "1,1,1,10.00,5.00\n", Verdict.EQUAL, ""),
        ("1,1,1,10.00,5.00\n", "1,1,1,10.01,5.00\n", Verdict.CLOSE, ""),
        ("1,1,1,1000000.00,5.00\n", "1,1,1,1000009.00,5.00\n", Verdict.CLOSE, ""),
        ("1,1,1,10.00,5.00\n", "1,1,1,10.03,5.00\n", Verdict.DIFFERENT, "1 rows differ"),
        (
            "1,1,1,1.00,5.00\n1,1,2,2.00,5.00\n",
            "1,1,1,1.00,5.00\n",
            Verdict.DIFFERENT,
            "1 rows only in a",
        ),
        (
            "1,1,1,1.00,5.00\n",
            "2,1,1,1.00,5.00\n",
            Verdict.DIFFERENT,
            "1 rows only in a, 1 rows only in b",
        ),
        ("1,1,1,nan,5.00\n", "1,1,1,nan,5.0\n", Verdict.EQUAL, ""),
        ("1,1,1,nan,5.00\n", "1,1,1,1.00,5.0\n", Verdict.DIFFERENT, "1 rows differ"),
        ("", "1,1,1,1.00,5.00\n", Verdict.DIFFERENT, "1 rows only in b"),
        (
            "1,1,1,1.00,5.00\n2,1,1,2.00,5.00\n",
            "2,1,1,2.00,5.00\n1,1,1,1.00,5.00\n",
            Verdict.EQUAL,
            "in another order",
        ),
        (
            "1,1,1,1.00,5.00\n1,1,1,3.00,5.00\n",
            "1,1,1,3.00,5.00\n1,1,1,1.00,5.00\n",
            Verdict.EQUAL,
            "in another order",
        ),
    ],
)
def test_rows_are_paired_by_key(
    tmp_path: Path, a: str, b: str, verdict: Verdict, detail: str
) -> None:
    found = _compare(tmp_path, "gul_S1_selt", SELT + a, SELT + b)
    assert (found.verdict, found.detail) == (verdict, detail)


def test_differing_rows_are_named_up_to_a_limit(tmp_path: Path) -> None:
    rows = [(event, 1, 1) for event in range(1, 9)]
    a, b = (
        SELT + "".join(f"{e},{s},{k},{loss}.00,5.00\n" for e, s, k in rows) for loss in (10, 20)
    )
    found = _compare(tmp_path, "gul_S1_selt", a, b)
    assert found.detail == "8 rows differ"
    assert len(found.rows) == 5
    assert found.rows[0] == "EventId=1 SummaryId=1 SampleId=1: Loss 10.0 / 20.0"


def test_a_variance_left_by_a_cancellation_is_not_compared(tmp_path: Path) -> None:
    header = (
        "SummaryId,MeanLoss,SDLoss,SampleSize,LowerCI,UpperCI,StandardError,RelativeError,"
        "VarElementHaz,StandardErrorHaz,RelativeErrorHaz,VarElementVuln,StandardErrorVuln,"
        "RelativeErrorVuln\n"
    )
    start = "1,1000000.0,1000000.0,10,"
    a = f"{header}{start}1.0,2.0,3.0,0.1,5.0,2.2,0.1,0.000001,0.001,0.1\n"
    b = f"{header}{start}0.0,0.0,nan,nan,5.0,2.2,0.1,-0.000001,nan,nan\n"
    assert _compare(tmp_path / "rest", "gul_S1_alct", a, b).verdict is Verdict.CLOSE
    c = f"{header}{start}1.0,2.0,3.0,0.1,5.1,2.2,0.1,0.000001,0.001,0.1\n"
    assert _compare(tmp_path / "hazard", "gul_S1_alct", a, c).verdict is Verdict.DIFFERENT
    d = f"{header}{start}1.0,2.0,3.0,0.1,5.0,2.2,0.1,50000.0,0.001,0.1\n"
    assert _compare(tmp_path / "large", "gul_S1_alct", a, d).verdict is Verdict.DIFFERENT


def test_formats_may_differ_and_joined_columns_count(tmp_path: Path) -> None:
    a = _run(
        tmp_path / "a",
        gul_S1_palt="SummaryId,SampleType,MeanLoss,SDLoss,LocNumber\n1,1,0.1,2.0,x\n",
    )
    b = _run(tmp_path / "b")
    columns = {"SummaryId": [1], "SampleType": [1], "MeanLoss": [0.1], "SDLoss": [2.0]}
    table = pa.table({**columns, "LocNumber": ["x"]})
    pq.write_table(table, b / "output" / "gul_S1_palt.parquet")
    assert [t.verdict for t in compare_runs(a, b)] == [Verdict.EQUAL]
    pq.write_table(pa.table({**columns, "LocNumber": ["y"]}), b / "output" / "gul_S1_palt.parquet")
    (found,) = compare_runs(a, b)
    assert (found.verdict, found.rows) == (
        Verdict.DIFFERENT,
        ["SummaryId=1 SampleType=1: LocNumber x / y"],
    )
    pq.write_table(pa.table(columns), b / "output" / "gul_S1_palt.parquet")
    assert next(compare_runs(a, b)).detail == "column LocNumber is in one of the tables only"


WEIGHTS = [0.02, 0.10, 0.05, 0.15, 0.68]
"""Losses of 100 in periods 1 and 2, of 40 in periods 3 and 4, none in period 5."""
BY_PERIOD = {50: 100, 20: 100, 10: 100, 8: 91.84, 5: 40, 4: 40, 3: 0, 2: 0}
THE_OTHER_WAY_ROUND = {10: 100, 8: 95.68, 5: 56.8, 4: 43.84, 3: 0, 2: 0}
"""The losses of oasislmf 2.5.8."""


def _psept(losses: dict[int, float], kind: int = 1) -> str:
    return "".join(f"1,1,{kind},{r}.000000,{loss:.6f}\n" for r, loss in losses.items())


def test_curves_at_return_periods_may_differ_by_ties_under_weights(tmp_path: Path) -> None:
    a, b = (PSEPT + _psept(losses) for losses in (BY_PERIOD, THE_OTHER_WAY_ROUND))
    found = _compare(tmp_path / "weights", "gul_S1_psept", a, b, WEIGHTS)
    assert (found.verdict, found.detail) == (Verdict.TIES, "3 rows differ, 2 rows only in a")
    for name, weights in (("equal", [0.2] * 5), ("none", None)):
        found = _compare(tmp_path / name, "gul_S1_psept", a, b, weights)
        assert found.verdict is Verdict.DIFFERENT
        assert "only in a; no input/periods.bin has weights" in found.detail


@pytest.mark.parametrize("wrong", [{5: 91.9}, {4: -1.0}, {20: 99.0}])
def test_losses_that_ties_cannot_explain_are_different(
    tmp_path: Path, wrong: dict[int, float]
) -> None:
    a, b = (PSEPT + _psept(losses) for losses in ({**BY_PERIOD, **wrong}, BY_PERIOD))
    found = _compare(tmp_path, "gul_S1_psept", a, b, WEIGHTS)
    assert found.verdict is Verdict.DIFFERENT


def test_a_missing_row_inside_a_curve_is_different(tmp_path: Path) -> None:
    less = {r: loss for r, loss in BY_PERIOD.items() if r != 8}
    a, b = (PSEPT + _psept(losses) for losses in (BY_PERIOD, less))
    assert _compare(tmp_path, "gul_S1_psept", a, b, WEIGHTS).verdict is Verdict.DIFFERENT


def test_a_mean_of_samples_follows_from_the_psept_of_its_run(tmp_path: Path) -> None:
    def sides(factor: float) -> list[Path]:
        runs = []
        for name, losses in (("a", BY_PERIOD), ("b", THE_OTHER_WAY_ROUND)):
            times = factor if name == "b" else 1.0
            mean = "".join(f"1,3,1,{r}.000000,{x * times:.6f}\n" for r, x in losses.items())
            folder = tmp_path / f"{factor}{name}"
            tables = {"gul_S1_ept": EPT + mean, "gul_S1_psept": PSEPT + _psept(losses)}
            runs.append(_run(folder, weights=WEIGHTS, **tables))
        return runs

    assert [t.verdict for t in compare_runs(*sides(1.0))] == [Verdict.TIES, Verdict.TIES]
    assert [t.verdict for t in compare_runs(*sides(1.1))] == [Verdict.DIFFERENT, Verdict.TIES]


def test_all_points_differ_inside_ties_alone(tmp_path: Path) -> None:
    def points(*pairs: tuple[float, float]) -> str:
        return PSEPT + "".join(f"1,1,{kind},{r:.6f},{x:.6f}\n" for kind in (1, 2) for r, x in pairs)

    by_period = points((50, 100), (8.333333, 100), (5.882353, 40))
    found = _compare(
        tmp_path / "1",
        "gul_S1_psept",
        by_period,
        points((10, 100), (8.333333, 100), (5.882353, 40)),
    )
    assert found.verdict is Verdict.TIES
    for k, wrong in enumerate(
        (
            points((50, 100), (8.333333, 100), (5.9, 40)),  # the end of a tie
            points((50, 101), (8.333333, 100), (5.882353, 40)),  # a loss
            points((50, 100), (8.333333, 100)),  # a point
        )
    ):
        found = _compare(tmp_path / f"wrong{k}", "gul_S1_psept", by_period, wrong)
        assert found.verdict is Verdict.DIFFERENT


def test_a_table_of_one_run_alone_is_different(tmp_path: Path) -> None:
    row = "1,1,1,10.00,5.00\n"
    a = _run(tmp_path / "a", gul_S1_selt=SELT + row, il_S1_selt=SELT + row)
    b = _run(tmp_path / "b", gul_S1_selt=SELT + row)
    found = [(t.name, t.verdict, t.detail) for t in compare_runs(a, b)]
    assert found == [
        ("gul_S1_selt", Verdict.EQUAL, ""),
        ("il_S1_selt", Verdict.DIFFERENT, "only in a"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("EventId,SummaryId\n1,1\n", "it has no column SampleId"),
        (SELT + "1,1,one,1.0,1.0\n", "cannot be read"),
        (SELT + "1,1\n", "cannot be read"),
    ],
)
def test_unusable_tables_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        _compare(tmp_path, "gul_S1_selt", SELT + "1,1,1,1.0,1.0\n", text)


def test_the_command_has_an_exit_code_for_each_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**BY_PERIOD, 5: 91.9}
    a, b, c = (
        str(_run(tmp_path / name, weights=WEIGHTS, gul_S1_psept=PSEPT + _psept(losses)))
        for name, losses in (("a", BY_PERIOD), ("b", THE_OTHER_WAY_ROUND), ("c", wrong))
    )
    assert main(["oasis", "compare", a, a]) == 0
    assert capsys.readouterr().out == "gul_S1_psept  equal\n"
    assert main(["oasis", "compare", a, b, "--rows", "1"]) == 3
    assert capsys.readouterr().out == (
        "gul_S1_psept  equal but for ties: 3 rows differ, 2 rows only in a\n"
        "    SummaryId=1 SampleId=1 EPType=1 ReturnPeriod=4: Loss 40.0 / 43.84\n"
    )
    assert main(["oasis", "compare", a, c]) == 1
    assert main(["oasis", "compare", a, c, "--tolerance", "2"]) == 0
    assert main(["oasis", "compare", str(tmp_path / "none"), str(tmp_path / "nor")]) == 1
    assert f"{tmp_path / 'none'}: it does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["oasis", "compare", str(tmp_path / "empty"), str(tmp_path / "empty")]) == 1
    assert "neither has outputs" in capsys.readouterr().err


def test_folders_of_reports_are_compared_as_runs_are(tmp_path: Path) -> None:
    for side, loss in (("a", "5.00"), ("b", "6.00")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "S2_aal_mean.csv").write_text("SummaryId,SampleType,MeanLoss\n")
        (tmp_path / side / "ept.csv").write_text(f"{EPT}1,1,1,10.00,{loss}\n")
        (tmp_path / side / "notes.csv").write_text(side)
    found = {t.name: t.verdict for t in compare_runs(tmp_path / "a", tmp_path / "b")}
    assert found == {"S2_aal_mean": Verdict.EQUAL, "ept": Verdict.DIFFERENT}
