"""Runs the peer's reports of events and periods; started by the peer's own interpreter.

Reads one JSON object a line from standard input: ``{"run_dir", "files", "out"}``, writes
``selt.bin`` to ``qplt.bin`` to ``out``, and answers each with a line: ``ok``, or what it raised.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    from oasislmf.pytools.elt import manager as elt  # type: ignore[import-not-found]
    from oasislmf.pytools.plt import manager as plt  # type: ignore[import-not-found]

    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        out = Path(job["out"])
        try:
            elt.run(
                job["run_dir"],
                job["files"],
                selt_output_file=str(out / "selt.bin"),
                melt_output_file=str(out / "melt.bin"),
                qelt_output_file=str(out / "qelt.bin"),
                output_format="bin",
            )
            plt.run(
                job["run_dir"],
                job["files"],
                splt_output_file=str(out / "splt.bin"),
                mplt_output_file=str(out / "mplt.bin"),
                qplt_output_file=str(out / "qplt.bin"),
                output_format="bin",
            )
        except Exception as e:  # noqa: BLE001 - whatever it is, it is the answer
            print(f"{type(e).__name__}: {e}", flush=True)
        else:
            print("ok", flush=True)


if __name__ == "__main__":
    main()
