"""Calls the peer's tools; started by the peer's own interpreter, one process for many calls.

Reads one JSON object a line from standard input, ``{"calls": [[tool, options], ...]}``, calls
``run`` of each tool's module with the options, and answers with a line: a JSON list with null for
each call that returned, and else what it raised. Compiled code is loaded once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from typing import Any


def call(tool: str, options: dict[str, Any]) -> str | None:
    """Run a tool; return what it raised."""
    os.chdir(options.pop("cwd"))
    module = importlib.import_module(f"oasislmf.pytools.{tool}.manager")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module.run(**options)
    except Exception as e:  # noqa: BLE001 - whatever it is, it is the answer
        return f"{type(e).__name__}: {e}"
    return None


def main() -> None:
    """Answer until the end of standard input."""
    for line in sys.stdin:
        job = json.loads(line)
        answers = [call(tool, options) for tool, options in job["calls"]]
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
