"""Outputs of two runs, file by file.

Numbers of csv are compared to print precision, as sums of items are exact here and in float32
there. Curves under period weights have tied losses, whose points the peer puts in the order of an
unstable sort. For them both sides are compared with the saved run of the same model: the peer's
file has to be the saved one, to print precision, and ours that of the saved streams.
``tests/compat`` shows, row by row, that those two differ by the order of ties alone.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.command.main import main
from tests.oasis_runs import RUN, copy_run, numbers, read_table, streams

CURVES = ("_ept.csv", "_psept.csv")
CANCELLED = ("StandardError", "RelativeError", "LossCI", "Vuln", "UpperCI", "LowerCI")
"""Columns of alct that are the rest of a cancellation, where the variance is."""


@dataclass
class Comparison:
    """How many files are equal, and which are not."""

    equal: int = 0
    close: int = 0
    ties: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.equal} files equal, {self.close} to print precision"
        if self.ties:
            text += f", {self.ties} but for the order of ties under weights"
        return text + (f"; WRONG: {', '.join(self.wrong)}" if self.wrong else "; none differs")


def compare(
    ours: Path, theirs: Path, saved: Path | None = None, *, shuffled: bool = False
) -> Comparison:
    """Compare the outputs of a run with the peer's.

    Args:
        ours: folder of outputs.
        theirs: the same of the peer.
        saved: our outputs of the saved streams, for curves under weights.
        shuffled: events came in any order, and rows are compared in that of their keys.
    """
    found = Comparison()
    sides = [
        {str(p.relative_to(d)) for p in d.rglob("*_S*.*") if "summary-info" not in p.name}
        for d in (ours, theirs)
    ]
    found.wrong += [f"{name} (one side only)" for name in sorted(sides[0] ^ sides[1])]
    for name in sorted(sides[0] & sides[1]):
        if (ours / name).read_bytes() == (theirs / name).read_bytes():
            found.equal += 1
        elif is_close(ours / name, theirs / name, shuffled=shuffled):
            found.close += 1
        elif saved and name.endswith(CURVES) and _differs_by_ties(name, ours, theirs, saved):
            found.ties += 1
        else:
            found.wrong.append(name)
    if not sides[0]:
        found.wrong.append("no outputs")
    return found


def is_close(ours: Path, theirs: Path, *, shuffled: bool = False) -> bool:
    """Whether two csv have the same rows, to print precision."""
    (header, lines), (their_header, their_lines) = read_table(ours), read_table(theirs)
    if header != their_header or len(lines) != len(their_lines):
        return False
    if not lines:
        return True
    values, expected = numbers(lines), numbers(their_lines)
    if ours.name.endswith(CURVES):
        values, expected = _by_curve(values), _by_curve(expected)
    elif shuffled:
        values, expected = (rows[np.lexsort(rows[:, ::-1].T)] for rows in (values, expected))
    for i, name in enumerate(header):
        kept = np.ones(len(values), bool)
        if "VarElementVuln" in header and any(part in name for part in CANCELLED):
            spread = np.maximum(expected[:, header.index("SDLoss")], 1)
            kept = np.abs(expected[:, header.index("VarElementVuln")]) > 1e-9 * spread**2
        noise = np.full(len(values), 0.0101)
        if name == "SDLoss":
            # Losses that are all but equal differ by the rounding of their sums to float32.
            noise += 2.0**-23 * expected[:, header.index("MeanLoss")]
        a, b = values[kept, i], expected[kept, i]
        if not np.isclose(a, b, rtol=1e-5, atol=noise[kept], equal_nan=True).all():
            return False
    return True


def _by_curve(values: np.ndarray) -> np.ndarray:
    """Rows by summary, then curve: without an index of its streams the peer goes by curve first."""
    return values[np.lexsort(values[:, 2::-1].T)]


def _differs_by_ties(name: str, ours: Path, theirs: Path, saved: Path) -> bool:
    expected = RUN / "expected" / f"{name}.gz"
    if not is_close(theirs / name, expected):
        return False
    actual, reference = (_by_curve(numbers(read_table(p / name)[1])) for p in (ours, saved))
    same = actual.shape == reference.shape
    return same and bool(np.allclose(actual, reference, rtol=1e-5, atol=0.0101))


def saved_outputs(folder: Path) -> Path:
    """Compute the outputs of the saved streams; return their folder."""
    directory = copy_run(folder / "saved")
    log = ["--no-progress", "--log-file", str(folder / "saved.log")]
    code = main(["aggregate", "--run-dir", str(directory), *log, *streams()])
    assert code == 0
    return directory / "output"


def peer_outputs(folder: Path) -> Path:
    """Unpack the peer's saved outputs of the same model, of two processes; return their folder."""
    target = folder / "peer"
    target.mkdir(exist_ok=True)
    for path in (RUN / "expected").glob("*.csv.gz"):
        (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return target
