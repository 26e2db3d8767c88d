"""Three summary sets of an item stream: ``python -m tests.bench.summaries``.

In process against a bare pass of the same stream, the report ``events``; and with
``THALWEG_PEER_PYTHON``, which names an interpreter with ``oasislmf``, whole commands against
``summarypy``, indices included, with and without start-up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from core.arrays import Octets
from core.losses.analysis import Analysis
from core.losses.format import Kind
from core.losses.inputs import parse_summary_map, parse_summary_xref
from core.losses.samples import SampleSpec, generate_stream
from core.losses.summaries import Summariser, SummarySets

from .__main__ import SERVER, command, line, medians, timed

ROUNDS = 5
SPEC = SampleSpec(events=1400, summaries=1000, samples=100, kind=Kind.GUL)
TINY = SampleSpec(events=1, summaries=3, samples=3, kind=Kind.GUL)
PIECE = 1 << 20
TARGET = 5.0


def write_inputs(folder: Path) -> None:
    """Sets of 250 locations, of 10 lines of business, and of all items; and buildings."""
    items = np.arange(1, SPEC.summaries + 1)
    locations, ones = (items - 1) // 4 + 1, np.ones_like(items)
    sets = [(locations, 1), (items % 10 + 1, 2), (ones, 3)]
    rows = [np.stack([items, summaries, number * ones], axis=1) for summaries, number in sets]
    (folder / "gulsummaryxref.bin").write_bytes(np.concatenate(rows).astype("<i4").tobytes())
    lines = [f"{loc},{item},1" for loc, item in zip(locations, items, strict=True)]
    text = "\n".join(["loc_id,item_id,building_id", *lines, ""])
    (folder / "gul_summary_map.csv").write_text(text)


def in_process(stream: Path, inputs: Path) -> None:
    """Read a stream in pieces, into nothing but totals and into summaries."""
    data = stream.read_bytes()
    xref = parse_summary_xref((inputs / "gulsummaryxref.bin").read_bytes())
    risks = parse_summary_map((inputs / "gul_summary_map.csv").read_bytes())
    sets = SummarySets(xref, None, risks)

    def ignore(_set_id: int, _octets: Octets) -> None:
        """Streams are not what is measured."""

    def read(reader: Analysis | Summariser) -> None:
        for at in range(0, len(data), PIECE):
            reader.receive(data[at : at + PIECE])
        reader.close()

    contests = {
        "events": timed(lambda: read(Analysis(["events"], lambda _name, _rows: None))),
        "summaries": timed(lambda: read(Summariser(sets, ignore))),
    }
    for run in contests.values():
        run()
    result = medians(contests, ROUNDS)
    speed = len(data) / 1e6 / result["summaries"]
    line(
        f"3 summary sets in process, {speed:.0f} MB/s, / events",
        result["events"] / result["summaries"],
    )


def against_peer(folder: Path, peer: str) -> None:
    """Whole commands, and start-up taken off."""

    def ours(name: str) -> list[str]:
        options = ["--summary-xref", "input/gulsummaryxref.bin", "--out", "ours", "--no-progress"]
        return [*SERVER, "summarise", name, *options, "--summary-map", "input/gul_summary_map.csv"]

    def theirs(name: str) -> list[str]:
        code = "from oasislmf.pytools.summary.cli import main; main()"
        sets = [word for k in (1, 2, 3) for word in (f"-{k}", f"peer{k}.bin")]
        return [peer, "-c", code, "-m", "-t", "gul", "-p", "input", "-i", name, *sets]

    contests = {
        "ours": command(ours("gul.bin"), folder),
        "ours start": command(ours("tiny.bin"), folder),
        "peer": command(theirs("gul.bin"), folder),
        "peer start": command(theirs("tiny.bin"), folder),
    }
    for run in contests.values():
        run()
    t = medians(contests, ROUNDS)
    net, theirs_net = t["ours"] - t["ours start"], t["peer"] - t["peer start"]
    text = f"3 summary sets, {net:.2f} s; summarypy {theirs_net:.2f} s; net of start-up"
    line(text, theirs_net / net, TARGET)
    line("  the same with start-up", t["peer"] / t["ours"])


def main() -> None:
    """Measure both on a file system in memory where there is one."""
    memory = Path("/dev/shm")  # noqa: S108 - a scratch directory is made in it
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        (folder / "input").mkdir()
        write_inputs(folder / "input")
        for name, spec in (("gul.bin", SPEC), ("tiny.bin", TINY)):
            with (folder / name).open("wb") as file:
                file.writelines(generate_stream(spec))
        in_process(folder / "gul.bin", folder / "input")
        peer = os.environ.get("THALWEG_PEER_PYTHON")
        if peer:
            against_peer(folder, peer)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
