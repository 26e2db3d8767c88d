"""The executables against the peer's, over generated runs and combinations of their options.

THALWEG_PEER_PYTHON names the interpreter of an environment with ``oasislmf``; its executables are
beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from app.oasis.shims.installing import write_shims
from core.arrays import Rows
from core.losses.reports import REPORTS
from tests import run_oracle
from tests.oasis_curves import sorted_rows, unstable
from tests.streams import Block, Stream

PEER = os.environ.get("THALWEG_PEER_PYTHON")
SEEDS = range(int(os.environ.get("THALWEG_PEER_SEEDS", "3")))

pytestmark = [
    pytest.mark.skipif(PEER is None, reason="THALWEG_PEER_PYTHON names no peer"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shims")
    write_shims(directory)
    return directory


class Sides:
    """The same run directory twice: one for the peer's tools, one for ours."""

    def __init__(self, root: Path, shims: Path, source: Path) -> None:
        self._tools = {"peer": Path(str(PEER)).parent, "ours": shims}
        self.folders = {side: root / side for side in self._tools}
        for folder in self.folders.values():
            shutil.copytree(source, folder)

    def run(self, *words: str, stdin: str | None = None) -> int:
        """Run a command line on both sides; its exit code, which must be the same."""
        codes = set()
        for side, folder in self.folders.items():
            given = None if stdin is None else (folder / stdin).open("rb")
            done = subprocess.run(
                [self._tools[side] / words[0], *words[1:]],
                cwd=folder,
                stdin=given,
                capture_output=True,
                check=False,
            )
            if given is not None:
                given.close()
            codes.add(done.returncode)
            if not done.returncode:
                assert done.stderr == b""
        (code,) = codes
        return code

    def octets(self, name: str) -> tuple[bytes, bytes]:
        """A file of the peer and ours."""
        peer, ours = (folder / name for folder in self.folders.values())
        return peer.read_bytes(), ours.read_bytes()

    def rows(self, name: str, report: str) -> tuple[Rows, Rows]:
        """The same, of packed records."""
        peer, ours = self.octets(name)
        dtype = REPORTS[report].dtype(4)
        return np.frombuffer(peer, dtype), np.frombuffer(ours, dtype)

    def same_names(self) -> None:
        """Both sides left files of the same names, logs and the peer's work aside."""
        names = []
        for folder in self.folders.values():
            found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
            names.append({path for path in found if path.parts[0] not in {"log", "work"}})
        assert names[0] == names[1]


def random_losses(rng: np.random.Generator, samples: int) -> tuple[tuple[int, float], ...]:
    present = np.flatnonzero(rng.random(samples) < rng.choice([0, 0.3, 1])) + 1
    # Distinct losses: the peer orders equal ones as an unstable sort happens to.
    losses = {int(s): float(np.float32(rng.random() * 1e4)) for s in present}
    mean = float(np.float32(rng.random() * 1e4)) if rng.random() < 0.9 else 0.0
    return ((-5, max(losses.values(), default=0.0)), (-4, 2.0), (-1, mean), *losses.items())


def write_run(folder: Path, seed: int, *, weighted: bool) -> None:
    """Streams of summaries of two processes, and the inputs of every tool."""
    rng = np.random.default_rng(seed)
    samples, periods = int(rng.choice([1, 4, 10])), 12
    (folder / "input").mkdir(parents=True)
    (folder / "work/k").mkdir(parents=True)
    for part in (1, 2):
        blocks = tuple(
            Block(event, summary, random_losses(rng, samples), float(rng.choice([100, 0])))
            for event in range(part, 30, 2)
            for summary in sorted(rng.choice([1, 2, 3, 6], 2, replace=False).tolist())
        )
        (folder / f"work/k/P{part}.bin").write_bytes(Stream("summary", samples, 4, blocks).encode())
    # A period has one event at the most, so that sums in float32 and in float64 are the same.
    events = rng.permutation(np.arange(1, 30))[: periods - 2]
    records = np.zeros((len(events), 3), "<i4")
    records[:, 0], records[:, 1] = events, rng.permutation(periods)[: len(events)] + 1
    records[:, 2] = rng.integers(700_000, 740_000, len(events))
    header = np.array([1, periods], "<i4").tobytes()
    (folder / "input/occurrence.bin").write_bytes(header + records.tobytes())
    np.array([0.0, 0.2, 0.5, 0.99, 1.0], "<f4").tofile(folder / "input/quantile.bin")
    np.array([12, 7, 5, 2], "<i4").tofile(folder / "input/returnperiods.bin")
    (folder / "input/event_rates.csv").write_text(
        "EventIds,Event_rates\n" + "".join(f"{e},{0.01 * e:.3f}\n" for e in range(1, 20))
    )
    if weighted:
        rows = np.zeros(periods, [("period_no", "<i4"), ("weighting", "<f8")])
        rows["period_no"], rows["weighting"] = (
            np.arange(1, periods + 1),
            rng.dirichlet([1] * periods),
        )
        rows.tofile(folder / "input/periods.bin")


@pytest.fixture(params=SEEDS)
def sides(request: pytest.FixtureRequest, tmp_path: Path, shims: Path) -> Sides:
    write_run(tmp_path / "source", request.param, weighted=bool(request.param % 2))
    return Sides(tmp_path, shims, tmp_path / "source")


@pytest.mark.parametrize("form", ["csv", "bin"])
@pytest.mark.parametrize("header", [[], ["-H"]])
def test_tables_by_event_and_period(sides: Sides, form: str, header: list[str]) -> None:
    for tool, reports in (("eltpy", ("selt", "melt", "qelt")), ("pltpy", ("splt", "mplt", "qplt"))):
        outputs = [w for r in reports for w in (f"-{r[0]}", f"{r}.{form}")]
        assert sides.run(tool, "-E", form, *header, *outputs, stdin="work/k/P1.bin") == 0
        for report in reports:
            peer, ours = sides.octets(f"{report}.{form}")
            assert ours == peer
    sides.same_names()


def test_concatenated_tables(sides: Sides) -> None:
    for part in (1, 2):
        for tool, kind in (("eltpy", "elt"), ("pltpy", "plt")):
            words = [w for letter in "smq" for w in (f"-{letter}", f"{letter}{kind}_{part}")]
            stdin = f"work/k/P{part}.bin"
            assert sides.run(tool, "-E", "bin", *words, stdin=stdin) == 0
    for letter, kind in ((letter, kind) for kind in ("elt", "plt") for letter in "smq"):
        flag = letter if kind == "elt" else letter.upper()
        for unsorted in ([], ["-u"]):
            for suffix in ("csv", "bin"):
                out = f"{letter}{kind}{len(unsorted)}.{suffix}"
                parts = [f"{letter}{kind}_{part}" for part in (1, 2)]
                words = ["-f", "bin", *unsorted, "-i", *parts, "-o", out]
                # The peer writes packed records to a name of that suffix only from such names.
                if suffix == "bin":
                    for folder in sides.folders.values():
                        for name in parts:
                            shutil.copy(folder / name, folder / f"{name}.bin")
                    words = [*unsorted, "-i", *(f"{name}.bin" for name in parts), "-o", out]
                assert sides.run("katpy", f"-{flag}", *words) == 0
                peer, ours = sides.octets(out)
                assert ours == peer


@pytest.mark.parametrize("words", [["-a"], ["-c"], ["-a", "-c", "-l0.8"], ["-M", "-a"]])
def test_annual_losses(sides: Sides, words: Sequence[str]) -> None:
    named = [
        w for word in words for w in ((word, f"{word[1]}.bin") if word in {"-a", "-c"} else (word,))
    ]
    assert sides.run("aalpy", "-Kk", "-E", "bin", *named) == 0
    sides.same_names()
    for flag, report in (("-a", "aal_mean" if "-M" in words else "aal"), ("-c", "alct")):
        if flag in words:
            assert_close(*sides.rows(f"{flag[1]}.bin", report))


@pytest.mark.parametrize(
    "curves", ["F", "fS", "sm", "Ww", "FfSsMmWw", "w", "MW"], ids=lambda c: f"curves_{c}"
)
@pytest.mark.parametrize("returns", [[], ["-r"]])
def test_curves(sides: Sides, curves: str, returns: list[str]) -> None:
    words = [*returns, *(f"-{letter}" for letter in curves)]
    assert sides.run("lecpy", "-Kk", "-E", "bin", *words, "-O", "e.bin", "-o", "p.bin") == 0
    sides.same_names()
    weighted = (sides.folders["peer"] / "input/periods.bin").exists()
    for name, report in (("e", "ept"), ("p", "psept")):
        if (sides.folders["peer"] / f"{name}.bin").exists():
            peer, ours = sides.rows(f"{name}.bin", report)
            if weighted and returns:
                assert_reference(peer, sides.folders["peer"], report, curves, peer=True)
                assert_reference(ours, sides.folders["ours"], report, curves, peer=False)
            else:
                assert_close(peer, ours)


@pytest.mark.parametrize(
    "words",
    [
        ["eltpy", "-s", "s.bin"],
        ["eltpy", "-i", "absent", "-s", "s.csv"],
        ["aalpy", "-Kabsent", "-a", "a.csv"],
        ["aalpy", "-Kk", "-a", "a.parquet"],
        ["lecpy", "-Kk", "-F", "-E", "bin", "-O", "e.csv"],
        ["katpy", "-s", "-o", "s.csv"],
        ["katpy", "-i", "work/k/P1.bin", "-o", "s.csv"],
        ["katpy", "-s", "-i", "absent", "-o", "s.csv"],
        ["katpy", "-x"],
        ["summarypy", "-t", "gul", "-1"],
        ["summarypy", "-t", "xl"],
        ["join-summary-info", "-s", "a.csv", "-d", "b.csv", "-o", "c.parquet"],
        ["join-summary-info", "-s", "a.csv"],
    ],
    ids=" ".join,
)
def test_faults_and_wrong_usage_have_the_peers_exit_codes(
    words: list[str], tmp_path: Path, shims: Path
) -> None:
    write_run(tmp_path / "source", 0, weighted=False)
    assert Sides(tmp_path, shims, tmp_path / "source").run(*words, stdin="work/k/P1.bin") != 0


def assert_reference(rows: Rows, folder: Path, report: str, letters: str, *, peer: bool) -> None:
    """Every point is that of the slow reference, as either side orders zeros and counts years.

    Losses are distinct, but at return periods there are zeros, which are years too.
    """
    events, periods = np.fromfile(folder / "input/occurrence.bin", "<i4")[2:].reshape(-1, 3).T[:2]
    weights = np.fromfile(folder / "input/periods.bin", [("period", "<i4"), ("weight", "<f8")])
    run = run_oracle.Run(
        int(np.fromfile(folder / "work/k/P1.bin", "<i4")[1]),
        len(weights),
        weights["weight"],
        np.fromfile(folder / "input/returnperiods.bin", "<i4").tolist(),
    )
    if peer:
        run.single, run.order, run.shares_unused = True, unstable, True
    for part in (1, 2):
        occurrences = zip(events.tolist(), periods.tolist(), strict=True)
        run.add((folder / f"work/k/P{part}.bin").read_bytes(), 4, occurrences)
    ept, psept = run_oracle.exceedance(run, letters)
    if peer:
        # The peer computes EPCalc 3 with weights only beside PSEPT.
        asked = {kind for letter, kind in (("w", 1), ("W", 3)) if letter in letters}
        ept = [row for row in ept if row[1] != 3 or row[2] in asked]
    expected = sorted_rows(np.array(ept if report == "ept" else psept, np.float64).reshape(-1, 5))
    actual = sorted_rows(np.array(rows.tolist(), np.float64).reshape(-1, 5))
    np.testing.assert_array_equal(actual[:, :4], expected[:, :4])
    np.testing.assert_allclose(actual[:, 4], expected[:, 4], 2e-6, 1e-3)


def assert_close(peer: Rows, ours: Rows) -> None:
    """Equal row by row, but for the noise that a cancellation leaves."""
    assert len(ours) == len(peer)
    scale = float(
        max(
            (
                np.nanmax(np.abs(peer[n]), initial=0)
                for n in ("MeanLoss",)
                if n in (peer.dtype.names or ())
            ),
            default=1,
        )
    )
    for name in peer.dtype.names or ():
        atol = (
            1e-6 * scale**2
            if "Var" in name
            else 1e-3 * scale
            if "Error" in name or "CI" in name
            else 1e-3
        )
        np.testing.assert_allclose(ours[name], peer[name], 2e-5, atol, err_msg=name, equal_nan=True)
