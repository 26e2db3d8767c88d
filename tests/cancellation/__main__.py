"""What servers compute for clients that have left: ``python -m tests.cancellation [KIND ...]``.

Each kind of work is left at uniform moments, and the CPU time counts that any thread of the
server uses afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cancellation.kinds import KINDS
from tests.cancellation.table import BOUND, LONGEST, measure, serving
from tests.cancellation.tiles import REDUCE


def main() -> int:
    """Print a line for each kind of work; fail if one is above the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *KINDS], metavar="KIND", help="all without"
    )
    parser.add_argument("--moments", type=int, default=20, help="at which each is left (20)")
    parser.add_argument(
        "--longest", type=float, default=LONGEST, help=f"seconds of a work ({LONGEST:.0f})"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="reductions are done by a worker, which counts, too"
    )
    args = parser.parse_args()
    if args.cluster and not args.names:
        args.names = [name for name, kind in KINDS.items() if kind.route == REDUCE]
    above, on_cluster = [], args.cluster
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(Path(directory), on_cluster=on_cluster) as place,
    ):
        print(f"{'work':34} {'takes':>8} {'median':>7} {'worst':>7}  at")
        for name in args.names or KINDS:
            try:
                found = measure(place, KINDS[name], moments=args.moments, longest=args.longest)
            except AssertionError as e:
                above.append(name)
                print(f"{name:34} cannot be measured: {e}", flush=True)
                continue
            rest, at = found.worst
            if rest.seconds > BOUND:
                above.append(name)
            print(
                f"{name:34} {found.takes:6.2f}s{' ' if found.ended else '+'} "
                f"{1000 * found.median:5.0f}ms {1000 * rest.seconds:5.0f}ms  "
                f"{at:.2f}s, thread {rest.thread or '-'}",
                flush=True,
            )
    print(f"above {1000 * BOUND:.0f} ms, or not measured: {', '.join(above) or 'none'}")
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
