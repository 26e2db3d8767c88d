"""Entry point of a worker: ``python -m app.decoding.worker DESCRIPTOR OPTIONS``.

The order matters. Libraries load files, so they come before the sandbox; hostile bytes come
after it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

import orjson

from .. import wire
from . import sandbox
from .serving import Server, load_libraries

_LOWER = 5
"""By how much a worker is nicer than the service."""


def main(arguments: Sequence[str]) -> int:
    """Serve the connection of this descriptor until the service closes it."""
    channel = socket.socket(fileno=int(arguments[0]))
    options = orjson.loads(arguments[1])
    sandbox.die_with(options["parent"])
    # Decoding is large work: beside it, the service answers small reads.
    os.nice(_LOWER)
    # What libraries print about hostile files is of no use, and without bound.
    os.dup2(0, 2)
    try:
        formats, missing = load_libraries()
        limits = sandbox.Limits(options["memory"], options["descriptors"], options["sandbox"])
        protections = sandbox.close(limits, formats.values())
    except Exception as e:  # noqa: BLE001 - for the log of the service
        wire.send(channel, {"failed": f"{type(e).__name__}: {e}"[:500]})
        return 1
    wire.send(channel, {"protections": protections, "libraries": missing})
    try:
        Server(channel, formats).run()
    except wire.GoneError:
        return 0


if __name__ == "__main__":
    # Without the clean-up of libraries, which hostile files may have left in any state.
    os._exit(main(sys.argv[1:]))
