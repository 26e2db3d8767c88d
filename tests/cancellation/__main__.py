"""What servers compute for clients that have left: ``python -m tests.cancellation [KIND ...]``.

Each kind of work is left at 20 uniform moments, and the CPU time counts that any thread of the
server uses afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.cancellation.kinds import KINDS
from tests.cancellation.table import BOUND, measure, serving


def main() -> int:
    """Print a line for each kind of work; fail if one is above the bound."""
    names = sys.argv[1:] or list(KINDS)
    failed = False
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as place:
        print(f"{'work':26} {'takes':>7}  {'worst':>7}  at")
        for name in names:
            worst = measure(place, KINDS[name])
            failed |= worst.rest.seconds > BOUND
            print(
                f"{name:26} {worst.takes:6.2f}s  {1000 * worst.rest.seconds:5.0f}ms "
                f" {worst.at:.2f}s, thread {worst.rest.thread or '-'}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
