"""Three summary sets of an item stream: ``python -m tests.bench.summaries``.

In process against a bare pass of a part of the stream, the report ``events``; and with
``THALWEG_PEER_PYTHON``, which names an interpreter with ``oasislmf``, whole commands against
``summarypy``, indices included: wall and CPU seconds, of a stream of 2 GB, so that start-up does
not decide.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
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

ITEMS = 1000
BYTES_PER_EVENT = 226_000
"""Of 1,000 items with 100 samples, half of both with a loss."""
TINY = SampleSpec(events=1, summaries=3, samples=3, kind=Kind.GUL)
PIECE = 1 << 20
TARGET = 5.0


def write_inputs(folder: Path) -> None:
    """Sets of 250 locations, of 10 lines of business, and of all items; and buildings."""
    items = np.arange(1, ITEMS + 1)
    locations, ones = (items - 1) // 4 + 1, np.ones_like(items)
    sets = [(locations, 1), (items % 10 + 1, 2), (ones, 3)]
    rows = [np.stack([items, summaries, number * ones], axis=1) for summaries, number in sets]
    (folder / "gulsummaryxref.bin").write_bytes(np.concatenate(rows).astype("<i4").tobytes())
    lines = [f"{loc},{item},1" for loc, item in zip(locations, items, strict=True)]
    text = "\n".join(["loc_id,item_id,building_id", *lines, ""])
    (folder / "gul_summary_map.csv").write_text(text)


def in_process(stream: Path, inputs: Path, rounds: int) -> None:
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
    result = medians(contests, rounds)
    speed = len(data) / 1e6 / result["summaries"]
    line(
        f"3 summary sets in process, {speed:.0f} MB/s, / events",
        result["events"] / result["summaries"],
    )


def against_peer(folder: Path, peer: str, rounds: int) -> None:
    """Whole commands, run in turn."""

    def ours(name: str) -> list[str]:
        options = ["--summary-xref", "input/gulsummaryxref.bin", "--out", "ours", "--force"]
        options.append("--no-progress")
        return [*SERVER, "summarise", name, *options, "--summary-map", "input/gul_summary_map.csv"]

    def theirs(name: str) -> list[str]:
        code = "from oasislmf.pytools.summary.cli import main; main()"
        sets = [word for k in (1, 2, 3) for word in (f"-{k}", f"peer{k}.bin")]
        return [peer, "-c", code, "-m", "-t", "gul", "-p", "input", "-i", name, *sets]

    for args in (ours("tiny.bin"), theirs("tiny.bin")):
        command(args, folder)()
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "summarypy": []}
    for _ in range(rounds):
        for name, args in (("ours", ours("gul.bin")), ("summarypy", theirs("gul.bin"))):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = command(args, folder)()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times[name].append((seconds, cpu))
    middle = {
        name: [statistics.median(column) for column in zip(*measured, strict=True)]
        for name, measured in times.items()
    }
    for name, (seconds, cpu) in middle.items():
        print(f"  {name}: {seconds:.2f} s, CPU {cpu:.2f} s")
    size = (folder / "gul.bin").stat().st_size / 1e9
    for text, i in (
        (f"3 summary sets against summarypy, {size:.2f} GB", 0),
        ("  in CPU seconds", 1),
    ):
        line(text, middle["summarypy"][i] / middle["ours"][i], TARGET)


def main() -> None:
    """Measure both on a file system in memory where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    memory = Path("/dev/shm")  # noqa: S108 - a scratch directory is made in it
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    long, short = (max(2, int(x * 1e9 / BYTES_PER_EVENT)) for x in (args.gigabytes, 0.3))
    try:
        (folder / "input").mkdir()
        write_inputs(folder / "input")
        for name, spec in (
            ("gul.bin", _spec(long)),
            ("part.bin", _spec(short)),
            ("tiny.bin", TINY),
        ):
            with (folder / name).open("wb") as file:
                file.writelines(generate_stream(spec))
        in_process(folder / "part.bin", folder / "input", args.rounds)
        peer = os.environ.get("THALWEG_PEER_PYTHON")
        if peer:
            against_peer(folder, peer, args.rounds)
    finally:
        shutil.rmtree(folder)


def _spec(events: int) -> SampleSpec:
    return SampleSpec(events=events, summaries=ITEMS, samples=100, kind=Kind.GUL)


if __name__ == "__main__":
    main()
