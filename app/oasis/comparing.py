"""Compare the outputs of two runs, table by table.

Rows are paired by their keys: the integers of a table, its quantile and its return period. Numbers
may differ by a relative tolerance and by one unit of the last digit that csv prints, as sums are
exact here and rounded to float32 by Oasis. Standard deviations also get the float32 rounding of
their mean, from which they are computed.

Curves that differ by the order of tied losses alone are told apart: see ``tied_curves``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.arrays import Floats, Indices
from core.errors import InputError
from core.losses.inputs import parse_periods
from core.losses.reports import REPORTS

from .outputs import OUTPUTS
from .tied_curves import PRINTED, Curve, TiedCurves

TOLERANCE: Final = 1e-5
"""Relative difference that is none: sums of float32 in any order stay within it."""
_FORMS: Final = (".csv", ".parquet", ".bin")
_INFO: Final = "summary-info"
_QUANTILE: Final = "Quantile"
_RETURN_PERIOD: Final = "ReturnPeriod"
_FLOAT32: Final = 2.0**-23
_PER_SAMPLE_MEAN: Final = 3
_CANCELLED: Final = 1e-9
"""A variance this small beside the square of the deviation is what a cancellation left of it."""

Columns = Mapping[str, npt.NDArray[Any]]


class Verdict(IntEnum):
    """How a table compares, from best to worst."""

    EQUAL = 0
    CLOSE = 1
    TIES = 2
    DIFFERENT = 3


@dataclass(frozen=True, slots=True)
class TableComparison:
    """How one table of two runs compares."""

    name: str
    """Name of its file, without the format."""
    verdict: Verdict
    detail: str = ""
    rows: Sequence[str] = ()
    """The first rows that differ."""


def compare_runs(
    a: Path, b: Path, *, tolerance: float = TOLERANCE, limit: int = 5
) -> Iterator[TableComparison]:
    """Compare all tables of two runs, by name.

    Args:
        a: run directory, folder of outputs or of ``aggregate``'s reports, or one table.
        b: the same of the other run.
        tolerance: relative, of each number.
        limit: rows to show of each table.

    Raises:
        InputError: there are no tables, or a path does not exist.
    """
    sides = [_tables(path) for path in (a, b)]
    if a.is_file() and b.is_file():
        sides = [{a.stem: path} for path in (a, b)]
    if not any(sides):
        raise InputError(
            "neither has outputs",
            hint="Name run directories, their output, or folders of aggregate in csv, parquet or"
            " bin",
        )
    weighted = _has_weights(a) or _has_weights(b)
    for name in sorted({*sides[0], *sides[1]}):
        paths = [side.get(name) for side in sides]
        if paths[0] is None or paths[1] is None:
            yield TableComparison(
                name, Verdict.DIFFERENT, f"only in {'b' if paths[0] is None else 'a'}"
            )
        elif paths[0].read_bytes() == paths[1].read_bytes():
            yield TableComparison(name, Verdict.EQUAL)
        elif name.endswith(_INFO):
            yield _compare_info(name, paths[0], paths[1], limit)
        else:
            pair = _TablePair(name, sides, tolerance, limit)
            yield pair.compare(weighted=weighted)


def _tables(path: Path) -> dict[str, Path]:
    """Tables of a run by name, such as ``gul_S1_selt``; of ``aggregate``, ``selt``, ``S1_selt``."""
    if not path.exists():
        raise InputError("it does not exist", source=str(path))
    folder = path / "output" if (path / "output").is_dir() else path
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else [path]:
        named = file.match("*_S[0-9]*_*") or _own_report(file.stem) in REPORTS
        if file.suffix in _FORMS and (named or file == path):
            if file.stem in found:
                raise InputError(f"{file.stem} is there in two formats", source=str(folder))
            found[file.stem] = file
    return found


def _has_weights(path: Path) -> bool:
    """Whether the periods of a run have different weights, as far as its files tell."""
    for folder in (path, *path.absolute().parents[:2]):
        file = folder / "input" / "periods.bin"
        if file.is_file():
            return len(np.unique(parse_periods(file.read_bytes()).weights)) > 1
    return False


def _own_report(name: str) -> str:
    """Report of a table as ``aggregate`` names it, without its summary set."""
    return re.sub(r"^S\d+_", "", name)


def _report_of(name: str) -> str:
    """Report of a table.

    Raises:
        InputError: it is of none.
    """
    if (own := _own_report(name)) in REPORTS:
        return own
    last = name.rpartition("_")[2]
    report = OUTPUTS[last].report if last in OUTPUTS else last
    if report not in REPORTS:
        raise InputError(
            f"{name} is not the name of an output", hint=f"Names end in {', '.join(OUTPUTS)}"
        )
    return report


def _read(path: Path, report: str) -> Columns:
    """Columns of a table, also those that were joined to it.

    Raises:
        InputError: it is unusable, or lacks a column of its report.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import; of this command alone
    import pyarrow.csv  # noqa: PLC0415 - as above
    import pyarrow.parquet  # noqa: PLC0415 - as above

    columns = REPORTS[report].columns
    wanted = [column.name for column in columns]
    try:
        if path.suffix == ".bin":
            rows = np.fromfile(path, REPORTS[report].dtype(4))
            return {name: rows[name] for name in wanted}
        if path.suffix == ".csv":
            types = {c.name: pa.int64() if c.decimals is None else pa.float64() for c in columns}
            options = pa.csv.ConvertOptions(column_types=types, null_values=[])
            table = pa.csv.read_csv(path, convert_options=options)
        else:
            table = pa.parquet.read_table(path)
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"cannot be read: {e}", source=str(path)) from e
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise InputError(f"it has no column {missing[0]}", source=str(path))
    return {name: table.column(name).to_numpy() for name in table.column_names}


class _Side:
    """One table of a pair, with its rows in a canonical order."""

    def __init__(self, columns: Columns, keys: Sequence[str], values: Sequence[str]) -> None:
        self.keys = np.column_stack([_key(columns[name]) for name in keys])
        self.values = {name: np.asarray(columns[name]) for name in values}
        numbers = [v for v in self.values.values() if v.dtype.kind == "f"]
        self.order = np.lexsort([*numbers[::-1], *self.keys.T[::-1]])
        self.keys = self.keys[self.order]
        self.values = {name: v[self.order] for name, v in self.values.items()}

    def __len__(self) -> int:
        return len(self.keys)

    def repetitions(self) -> Indices:
        """How many rows of the same key are before each."""
        changes = (np.diff(self.keys, axis=0) != 0).any(axis=1)
        rows = np.arange(len(self))
        starts = np.concatenate([np.ones(min(1, len(self)), bool), changes])
        return rows - np.maximum.accumulate(np.where(starts, rows, 0))

    def curve(self, key: Sequence[float]) -> Curve:
        """The points of a curve, from the lowest return period; none if it is not there."""
        low, high = 0, len(self)
        for column, value in enumerate(key):
            part = self.keys[low:high, column]
            low, high = (low + int(np.searchsorted(part, value, s)) for s in ("left", "right"))
        return Curve(self.keys[low:high, 3], self.values["Loss"][low:high].astype(np.float64))


def _key(column: npt.NDArray[Any]) -> Floats:
    """A column as a key: fractions at print precision, so that formats do not matter."""
    return np.asarray(column, np.float64).round(6)


class _TablePair:
    """Two tables of one name that are not the same bytes."""

    def __init__(
        self, name: str, tables: Sequence[Mapping[str, Path]], tolerance: float, limit: int
    ) -> None:
        self.name = name
        self._tables = tables
        self._tolerance = tolerance
        report = REPORTS[_report_of(name)]
        columns = [_read(side[name], report.name) for side in tables]
        self._decimals = {c.name: c.decimals for c in report.columns if c.decimals is not None}
        self._is_curve = _RETURN_PERIOD in self._decimals
        self._keys = [
            c.name
            for c in report.columns
            if c.decimals is None or c.name in {_QUANTILE, _RETURN_PERIOD}
        ]
        self._joined = sorted({*columns[0], *columns[1]} - {c.name for c in report.columns})
        values = [c.name for c in report.columns if c.name not in self._keys]
        shared = [name for name in self._joined if all(name in side for side in columns)]
        self._lacking = [name for name in self._joined if name not in shared]
        self._a, self._b = (_Side(side, self._keys, [*values, *shared]) for side in columns)
        self._limit = limit

    def compare(self, *, weighted: bool) -> TableComparison:
        """Compare the two tables.

        Args:
            weighted: periods have different weights, so that ties have no order.
        """
        if self._lacking:
            detail = f"column {self._lacking[0]} is in one of the tables only"
            return TableComparison(self.name, Verdict.DIFFERENT, detail)
        if self._is_curve and self._is_close_by_rank():
            return TableComparison(self.name, Verdict.CLOSE)
        paired = self._pair()
        differing = self._differing(*paired)
        only = [
            np.setdiff1d(np.arange(len(s)), p) for s, p in zip(self.sides(), paired, strict=True)
        ]
        if not (differing.any() or len(only[0]) or len(only[1])):
            return self._agreeing(*paired)
        verdict = Verdict.DIFFERENT
        if self._is_curve:
            touched = [
                self._a.keys[paired[0][differing]],
                self._a.keys[only[0]],
                self._b.keys[only[1]],
            ]
            if self._differs_by_ties(np.concatenate(touched)[:, :3], weighted=weighted):
                verdict = Verdict.TIES
        found = self._describe(verdict, paired, differing, only)
        if verdict is Verdict.TIES or weighted or not self._is_curve:
            return found
        text = "; no input/periods.bin has weights, without which ties make no difference"
        return replace(found, detail=found.detail + text)

    def sides(self) -> tuple[_Side, _Side]:
        """Both tables."""
        return self._a, self._b

    @cached_property
    def _samples(self) -> _TablePair | None:
        """The PSEPT of an EPT, if both runs have it."""
        name = self.name.removesuffix("ept") + "psept"
        if "EPCalc" not in self._keys or not all(name in side for side in self._tables):
            return None
        return _TablePair(name, self._tables, self._tolerance, 0)

    def _pair(self) -> tuple[Indices, Indices]:
        """Rows of either table that have a partner, in pairs; equal keys pair in order."""
        counted = [np.column_stack([side.keys, side.repetitions()]) for side in self.sides()]
        both = np.concatenate(counted)
        order = np.lexsort(both.T[::-1])
        equal = (np.diff(both[order], axis=0) == 0).all(axis=1)
        first, second = order[:-1][equal], order[1:][equal]
        return np.minimum(first, second), np.maximum(first, second) - len(self._a)

    def _differing(self, rows_a: Indices, rows_b: Indices) -> npt.NDArray[np.bool_]:
        """Whether the numbers of each pair of rows differ by more than the tolerance."""
        found = np.zeros(len(rows_a), bool)
        kept = ~self._cancelled(rows_a, rows_b)
        for name in self._a.values:
            differs = ~self._is_close(name, rows_a, rows_b)
            if "VarElementVuln" in self._a.values and _is_rest(name):
                differs &= kept
            found |= differs
        return found

    def _is_close(self, name: str, rows_a: Indices, rows_b: Indices) -> npt.NDArray[np.bool_]:
        a, b = self._a.values[name][rows_a], self._b.values[name][rows_b]
        if name not in self._decimals:
            equal: npt.NDArray[np.bool_] = a.astype(str) == b.astype(str)
            return equal
        noise: Any = 1.01 * 10.0 ** -self._decimals[name]
        if name == "SDLoss":
            noise = noise + _FLOAT32 * np.abs(self._a.values["MeanLoss"][rows_a])
        close: npt.NDArray[np.bool_] = np.isclose(
            a, b, rtol=self._tolerance, atol=noise, equal_nan=True
        )
        return close

    def _cancelled(self, rows_a: Indices, rows_b: Indices) -> npt.NDArray[np.bool_]:
        """Rows whose variance is what a cancellation left of it, on both sides."""
        found = np.ones(len(rows_a), bool)
        for side, rows in ((self._a, rows_a), (self._b, rows_b)):
            if "VarElementVuln" in side.values:
                scale = np.maximum(side.values["SDLoss"][rows], side.values["MeanLoss"][rows])
                found &= np.abs(side.values["VarElementVuln"][rows]) <= _CANCELLED * scale**2
        return found

    def _agreeing(self, rows_a: Indices, rows_b: Indices) -> TableComparison:
        """The comparison of tables without a difference beyond the tolerance."""
        exact = all(
            (a[rows_a].astype(str) == b[rows_b].astype(str)).all()
            for a, b in zip(self._a.values.values(), self._b.values.values(), strict=True)
        )
        moved = not np.array_equal(self._a.order[rows_a], self._b.order[rows_b])
        detail = "in another order" if moved else ""
        return TableComparison(self.name, Verdict.EQUAL if exact else Verdict.CLOSE, detail)

    def _is_close_by_rank(self) -> bool:
        """Whether curves have as many points, and each is close to that of its rank."""
        if not np.array_equal(self._a.keys[:, :3], self._b.keys[:, :3]):
            return False
        rows = np.arange(len(self._a))
        equal = np.isclose(
            self._a.keys[:, 3], self._b.keys[:, 3], rtol=self._tolerance, atol=PRINTED
        )
        return bool(equal.all()) and not self._differing(rows, rows).any()

    def _differs_by_ties(self, touched: Floats, *, weighted: bool) -> bool:
        """Whether the order of ties can explain how some curves differ.

        Args:
            touched: summary, calculation or sample, and type of each curve.
            weighted: whether periods have different weights.
        """
        periods = np.concatenate([self._a.keys[:, 3], self._b.keys[:, 3]])
        at_returns = bool((periods == np.floor(periods)).all())
        if at_returns and not weighted:
            return False
        for summary, calculation, kind in np.unique(touched, axis=0):
            if at_returns and calculation == _PER_SAMPLE_MEAN and self._samples is not None:
                if self._is_mean_of(self._samples, summary, kind):
                    continue
                return False
            points = [side.curve((summary, calculation, kind)) for side in self.sides()]
            losses = points
            if kind % 2 == 0:  # a TVaR: of the OEP or AEP before it
                losses = [side.curve((summary, calculation, kind - 1)) for side in self.sides()]
            pair = TiedCurves(points[0], points[1], losses[0], losses[1], self._tolerance)
            if not (pair.tied_at_returns() if at_returns else pair.tied_at_points()):
                return False
        return True

    def _is_mean_of(self, samples: _TablePair, summary: float, kind: float) -> bool:
        """Whether a curve is, in both runs, the mean of its samples' curves in PSEPT."""
        for side, of_samples in zip(self.sides(), samples.sides(), strict=True):
            mean = side.curve((summary, _PER_SAMPLE_MEAN, kind))
            chosen = (of_samples.keys[:, 0] == summary) & (of_samples.keys[:, 2] == kind)
            periods, at = np.unique(of_samples.keys[chosen, 3], return_inverse=True)
            losses = of_samples.values["Loss"][chosen].astype(np.float64)
            expected = np.bincount(at, losses) / np.bincount(at)
            if not np.array_equal(periods, mean.periods) or not np.allclose(
                mean.losses, expected, self._tolerance, PRINTED
            ):
                return False
        return True

    def _describe(
        self,
        verdict: Verdict,
        paired: tuple[Indices, Indices],
        differing: npt.NDArray[np.bool_],
        only: Sequence[Indices],
    ) -> TableComparison:
        rows_a, rows_b = (rows[differing] for rows in paired)
        counts = {"differ": len(rows_a)}
        first = slice(self._limit)
        pairs = zip(rows_a[first], rows_b[first], strict=True)
        shown = [self._pair_text(i, j) for i, j in pairs]
        for letter, side, rows in zip("ab", self.sides(), only, strict=True):
            counts[f"only in {letter}"] = len(rows)
            shown += [self._row_text(side, i) + f"  only in {letter}" for i in rows[first]]
        detail = ", ".join(f"{count} rows {kind}" for kind, count in counts.items() if count)
        return TableComparison(self.name, verdict, detail, shown[first])

    def _key_text(self, side: _Side, row: int) -> str:
        return " ".join(
            f"{name}={value:.10g}" for name, value in zip(self._keys, side.keys[row], strict=True)
        )

    def _row_text(self, side: _Side, row: int) -> str:
        name, values = next(iter(side.values.items()))
        return f"{self._key_text(side, row)}: {name} {values[row]}"

    def _pair_text(self, a: int, b: int) -> str:
        rows = np.array([a]), np.array([b])
        names = [name for name in self._a.values if not self._is_close(name, *rows)[0]]
        texts = [f"{n} {self._a.values[n][a]} / {self._b.values[n][b]}" for n in names]
        return f"{self._key_text(self._a, a)}: {', '.join(texts)}"


def _is_rest(name: str) -> bool:
    """Whether a column of ALCT follows from the variance that may be the rest of a cancellation."""
    return any(part in name for part in ("Vuln", "CI", "StandardError", "RelativeError"))


def _compare_info(name: str, a: Path, b: Path, limit: int) -> TableComparison:
    """Compare summary info, which is text: line by line where it is csv."""
    if a.suffix != ".csv" or b.suffix != ".csv":
        return TableComparison(name, Verdict.DIFFERENT, "its bytes differ")
    lines = [path.read_text("utf-8", "replace").splitlines() for path in (a, b)]
    longest = max(map(len, lines))
    padded = [side + [""] * (longest - len(side)) for side in lines]
    differing = [i for i, (x, y) in enumerate(zip(*padded, strict=True), 1) if x != y]
    if not differing:
        return TableComparison(name, Verdict.EQUAL, "but for line endings")
    shown = [f"line {i}: {padded[0][i - 1]} / {padded[1][i - 1]}" for i in differing[:limit]]
    return TableComparison(name, Verdict.DIFFERENT, f"{len(differing)} lines differ", shown)
