"""What is compared: each family computes the same tables with both programs."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from app.command.main import main
from core.losses.reports import REPORTS

from .indices import true_index
from .peer import Peer
from .portfolios import TOOL_FOLDERS, Portfolio
from .tables import Difference, compare, read_table

ROWS = ("selt", "melt", "qelt")
PERIODS = ("splt", "mplt", "qplt")
CURVE_FLAGS = {
    "F": "agg_full_uncertainty",
    "W": "agg_wheatsheaf",
    "S": "agg_sample_mean",
    "M": "agg_wheatsheaf_mean",
    "f": "occ_full_uncertainty",
    "w": "occ_wheatsheaf",
    "s": "occ_sample_mean",
    "m": "occ_wheatsheaf_mean",
}


class PeerError(Exception):
    """The peer raised where ours has rows."""


class Trial:
    """One portfolio, computed with both programs.

    Args:
        portfolio: the portfolio.
        peer: the peer.
    """

    def __init__(self, portfolio: Portfolio, peer: Peer) -> None:
        self.portfolio = portfolio
        self.peer = peer
        self.mine = portfolio.folder / "ours"
        self.theirs = portfolio.folder / "theirs"
        self.work = portfolio.folder / "work" / "s"
        self.theirs.mkdir()
        self.work.mkdir(parents=True)
        self.wrong_indices = 0
        """Partitions whose index by the peer is wrong."""

    # -- running -----------------------------------------------------------------------

    def _ours(self, *args: str) -> None:
        out = io.StringIO()
        with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
            code = main(["--log-level", "error", *args])
        if code:
            raise RuntimeError(out.getvalue())

    def _call(self, tool: str, **options: object) -> None:
        raised = self.peer(tool, **options)
        if raised is not None:
            raise PeerError(raised)

    def prepare(self) -> None:
        """Make the streams of summaries that the peer's tools read, and all our reports."""
        p = self.portfolio
        if p.options.perspective == "summary":
            for i, stream in enumerate(p.streams, 1):
                shutil.copy(stream, self.work / f"P{i}.bin")
                if p.options.indexed:
                    (self.work / f"P{i}.idx").write_bytes(true_index(stream.read_bytes()))
        else:
            self._summarise_all()
        self._aggregate()

    def _xref_options(self) -> list[str]:
        p = self.portfolio
        options = ["--summary-xref", str(p.xref)]
        return options if p.map is None else [*options, "--summary-map", str(p.map)]

    def _summarise_all(self) -> None:
        """Streams of all sets: ours for each partition, and the peer's, in order of set ids."""
        p = self.portfolio
        zeros = ["--zeros"] if p.options.zeros else []
        for i, stream in enumerate(p.streams, 1):
            out = self.mine / f"P{i}"
            args = ["summarise", str(stream), *self._xref_options(), *zeros, "--no-progress"]
            self._ours(*args, "--out", str(out))
            self.summarypy(i, list(p.options.sets), "all")
            chosen = self.theirs / "all" / f"P{i}_{p.options.chosen_set}"
            shutil.copy(chosen.with_suffix(".bin"), self.work / f"P{i}.bin")
            index = true_index((self.work / f"P{i}.bin").read_bytes())
            self.wrong_indices += index != chosen.with_suffix(".idx").read_bytes()
            if p.options.indexed:
                (self.work / f"P{i}.idx").write_bytes(index)

    def summarypy(self, partition: int, sets: list[int], name: str) -> None:
        """Run the peer's ``summarypy`` for these sets, in this order."""
        p = self.portfolio
        folder = self.theirs / name
        folder.mkdir(exist_ok=True)
        outputs = [w for k in sets for w in (f"-{k}", str(folder / f"P{partition}_{k}.bin"))]
        self._call(
            "summary",
            files_in=str(p.streams[partition - 1]),
            static_path=str(p.input),
            run_type=TOOL_FOLDERS[p.options.perspective],
            low_memory=True,
            output_zeros=p.options.zeros,
            summary_sets_output=outputs,
        )

    def _aggregate(self) -> None:
        """All reports in one pass."""
        p = self.portfolio
        reports = [*ROWS, *PERIODS, "aal", "aal_mean", "alct"]
        # Curves of PSEPT are W and w; a report without a curve is refused.
        reports += ["ept"] * bool(set(p.options.curves) - set("Ww"))
        reports += ["psept"] * bool(set(p.options.curves) & set("Ww"))
        args = ["aggregate", *map(str, self._inputs()), "--reports", ",".join(reports)]
        args += ["--format", "bin", "--no-progress", "--out", str(self.mine)]
        args += ["--occurrence", str(p.input / "occurrence.bin"), "--curves", p.options.curves]
        args += ["--quantiles", str(p.input / "quantile.bin")]
        for option, file in (
            ("--periods", p.input / "periods.bin"),
            ("--event-rates", p.input / "event_rates.csv"),
        ):
            if file.exists():
                args += [option, str(file)]
        if p.options.returns and {"ept", "psept"} & set(reports):
            args += ["--return-periods", str(p.input / "returnperiods.bin")]
        if self._from_items:
            args += [*self._xref_options(), "--sets", str(p.options.chosen_set)]
        self._ours(*args)

    @property
    def _from_items(self) -> bool:
        """Whether reports are computed from items in one pass; zeros are in summaries alone."""
        return self.portfolio.options.perspective != "summary" and not self.portfolio.options.zeros

    def _inputs(self) -> list[Path]:
        return self.portfolio.streams if self._from_items else self.summary_streams()

    def summary_streams(self) -> list[Path]:
        """Our streams of the summaries that reports are of."""
        p = self.portfolio
        if p.options.perspective == "summary":
            return p.streams
        name = f"S{p.options.chosen_set}_summary.bin"
        return [self.mine / f"P{i}" / name for i in range(1, len(p.streams) + 1)]

    def summaries(self) -> set[int]:
        """Ids of all summaries with a block, whether it occurs or not."""
        found = [pairs_of(path.read_bytes())["SummaryId"] for path in self.summary_streams()]
        return set(np.concatenate(found).tolist())

    # -- tables ------------------------------------------------------------------------

    def my_table(self, report: str) -> Path:
        names = [f"{report}.bin", f"S{self.portfolio.options.chosen_set}_{report}.bin"]
        return next((p for n in names if (p := self.mine / n).exists()), self.mine / names[0])

    def _differences(self, *reports: str) -> Iterator[Difference]:
        for report in reports:
            ours = read_table(self.my_table(report), report)
            yield from compare(report, ours, read_table(self.theirs / f"{report}.bin", report))

    def _rows_of_tool(
        self, tool: str, reports: tuple[str, ...], files: list[str], to: Path
    ) -> None:
        outputs = {f"{r}_output_file": str(to / f"{r}.bin") for r in reports}
        run_dir = str(self.portfolio.folder)
        self._call(tool, run_dir=run_dir, files_in=files, output_format="bin", **outputs)

    def rows(self) -> Iterator[Difference]:
        """SELT, MELT, QELT."""
        files = [str(path) for path in sorted(self.work.glob("*.bin"))]
        self._rows_of_tool("elt", ROWS, files, self.theirs)
        yield from self._differences(*ROWS)

    def periods(self) -> Iterator[Difference]:
        """SPLT, MPLT, QPLT."""
        files = [str(path) for path in sorted(self.work.glob("*.bin"))]
        self._rows_of_tool("plt", PERIODS, files, self.theirs)
        yield from self._differences(*PERIODS)

    def _annual(self, **options: object) -> None:
        run_dir = str(self.portfolio.folder)
        self._call("aal", run_dir=run_dir, subfolder="s", output_format="bin", **options)

    def annual(self) -> Iterator[Difference]:
        """AAL, with and without standard deviation."""
        self._annual(aal_output_file=str(self.theirs / "aal.bin"))
        self._annual(aal_output_file=str(self.theirs / "aal_mean.bin"), meanonly=True)
        yield from self._differences("aal", "aal_mean")

    def convergence(self) -> Iterator[Difference]:
        """ALCT."""
        self._annual(alct_output_file=str(self.theirs / "alct.bin"))
        yield from self._differences("alct")

    def _curves(self) -> None:
        p = self.portfolio
        self._call(
            "lec",
            run_dir=str(p.folder),
            subfolder="s",
            ept_output_file=str(self.theirs / "ept.bin"),
            psept_output_file=str(self.theirs / "psept.bin"),
            use_return_period=bool(p.options.returns),
            output_format="bin",
            **{flag: letter in p.options.curves for letter, flag in CURVE_FLAGS.items()},
        )

    def ept(self) -> Iterator[Difference]:
        """EPT; the curves of PSEPT are computed by the same call."""
        self._curves()
        yield from self._differences("ept")

    def psept(self) -> Iterator[Difference]:
        """PSEPT, which :meth:`ept` has computed."""
        yield from self._differences("psept")

    def summarise(self) -> Iterator[Difference]:
        """Streams of summaries, as SELT of each partition and set, and their indices."""
        p = self.portfolio
        if p.options.perspective == "summary":
            return
        for i in range(1, len(p.streams) + 1):
            self.summarypy(i, p.subset, "subset")
            for name, sets in (("all", list(p.options.sets)), ("subset", p.subset)):
                for number in sets:
                    theirs = self.theirs / name / f"P{i}_{number}.bin"
                    mine = self.mine / f"P{i}" / f"S{number}_summary.bin"
                    yield from _compare_streams(mine, theirs, f"{name} P{i} set {number}")

    def kat(self) -> Iterator[Difference]:
        """Tables of partitions merged by event; the peer's own tables, put in order."""
        for report, tool in (("melt", "elt"), ("selt", "elt"), ("mplt", "plt"), ("splt", "plt")):
            parts = []
            for path in sorted(self.work.glob("*.bin")):
                folder = self.theirs / f"kat_{report}_{path.stem}"
                folder.mkdir()
                self._rows_of_tool(tool, (report,), [str(path)], folder)
                rows = read_table(folder / f"{report}.bin", report)
                part = folder / "part.bin"
                rows[np.argsort(rows["EventId"], kind="stable")].tofile(part)
                parts.append(str(part))
            theirs, mine = self.theirs / f"kat_{report}.bin", self.mine / f"kat_{report}.bin"
            flag = {f"concatenate_{report}": True}
            self._call("kat", out_file=str(theirs), files_in=parts, **flag)
            self._ours("merge", *parts, "--report", report, "--out", str(mine))
            if theirs.read_bytes() != mine.read_bytes():
                ours, peers = read_table(mine, report), read_table(theirs, report)
                yield Difference(report, "bytes", ours, peers)


def _compare_streams(mine: Path, theirs: Path, name: str) -> Iterator[Difference]:
    ours, peers = (pairs_of(path.read_bytes()) for path in (mine, theirs))
    for difference in compare("selt", ours, peers):
        yield Difference(f"summarise {name}", difference.column, difference.ours, difference.peers)


def pairs_of(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Pairs of a summary stream as rows of SELT, whatever their sidx, with the exposure of all."""
    words = np.frombuffer(data, "<i4")
    losses = words.view("<f4")
    rows = []
    at = 3
    while at < len(words):
        event, summary, exposure = int(words[at]), int(words[at + 1]), float(losses[at + 2])
        at += 3
        ends = np.flatnonzero(words[at::2] == 0)
        count = int(ends[0])
        block = np.zeros(count, REPORTS["selt"].dtype(4))
        block["EventId"], block["SummaryId"], block["ImpactedExposure"] = event, summary, exposure
        block["SampleId"] = words[at : at + 2 * count : 2]
        block["Loss"] = losses[at + 1 : at + 1 + 2 * count : 2]
        rows.append(block)
        at += 2 * count + 2
    return np.concatenate([np.zeros(0, REPORTS["selt"].dtype(4)), *rows])


Family = Callable[[Trial], Iterator[Difference]]
FAMILIES: dict[str, Family] = {
    "summarise": Trial.summarise,
    "rows": Trial.rows,
    "periods": Trial.periods,
    "aal": Trial.annual,
    "alct": Trial.convergence,
    "ept": Trial.ept,
    "psept": Trial.psept,
    "kat": Trial.kat,
}
