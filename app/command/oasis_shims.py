"""The ``oasis shims`` command: executables with the names of the peer's tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.oasis.shims.installing import write_shims

from .reading import compile_kernels


def shims(args: argparse.Namespace) -> int:
    """Compile the kernels, write the executables, and say how to use them."""
    compile_kernels()
    for path in write_shims(Path(args.directory)):
        print(path)  # noqa: T201 - the command's output
    print(f'export PATH="{Path(args.directory).resolve()}:$PATH"')  # noqa: T201 - as above
    return 0
