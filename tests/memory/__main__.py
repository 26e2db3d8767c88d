"""The table of memory: ``python -m tests.memory [--trace NAME] [NAME …]``.

Each request is made to a server of its own, and is right if the memory that its processes grew by
is at most what the ledger was charged and 16 MiB, and, unless it is hostile, if the charge is at
most twice the growth and 16 MiB. ``--trace`` says which calls hold most while it is answered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.memory.desk import Case, Desk
from tests.memory.measured import MeasuredService
from tests.memory.table import CASES, Row, measure

MIB = 1 << 20


def main() -> int:
    """Print the rows, the worst first; the exit code is 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all cases without")
    parser.add_argument("--trace", metavar="NAME", help="say what holds memory in this case")
    args = parser.parse_args()
    if args.trace is not None:
        for case in CASES:
            if args.trace in case.name:
                trace(case)
        return 0
    chosen = [c for c in CASES if not args.names or any(n in c.name for n in args.names)]
    rows, unprepared = [], 0
    for case in chosen:
        try:
            rows.append(measure(case))
        except AssertionError as e:
            unprepared += 1
            print(f"{case.name}: NOT PREPARED: {e}", file=sys.stderr, flush=True)
        else:
            print(line(rows[-1]), file=sys.stderr, flush=True)
    for row in sorted(rows, key=lambda row: row.excess, reverse=True):
        print(line(row))
    wrong = unprepared + sum(row.problem is not None for row in rows)
    sampled = sum(row.by_samples for row in rows)
    print(f"{len(rows)} requests, {wrong} wrong, {sampled} right by samples alone")
    return int(wrong > 0)


def line(row: Row) -> str:
    """A row as text: charged and grown in MiB."""
    case, (charged, grown, seconds, _) = row.case, row.measured
    sizes = f"{charged / MIB:8.1f} {grown / MIB:8.1f} {seconds:5.2f}s {row.status:3}"
    remark = row.problem or ("by samples" if row.by_samples else "")
    return f"{sizes} {'H' if case.hostile else ' '} {case.name}  {remark}"


def trace(case: Case) -> None:
    """Make the request of a case and print, as it goes, which calls hold most."""
    import threading

    with tempfile.TemporaryDirectory() as directory:
        roots = Path(directory) / "roots"
        roots.mkdir()
        service = MeasuredService(Path(directory) / "s", dataset_roots=roots, **case.settings)
        try:
            desk = Desk(service, roots)
            prepared = case.prepare(desk)
            service.question(b"t")
            act = prepared if callable(prepared) else lambda: desk.do(prepared)
            thread = threading.Thread(target=act)
            thread.start()
            most: tuple[int, list[str]] = (0, [])
            while thread.is_alive():
                time.sleep(0.15)
                held, lines = service.question(b"s")
                most = max(most, (held, lines))
            thread.join()
        finally:
            service.kill()
    print(f"{case.name}: {most[0] / MIB:.1f} MiB", *most[1], sep="\n")


if __name__ == "__main__":
    sys.exit(main())
