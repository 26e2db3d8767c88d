"""Which requirements of the upload protocols a server meets.

``python -m tests.interop --url http://host/files --dialect tus`` asks any server. Every
``{n}`` in the URL becomes another number for each upload, ``--header`` adds what the server
wants besides, such as a key. Prints a line for each requirement; the exit code is 1 if one that
is a MUST is broken.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.interop.ietf import IETF
from tests.interop.suite import Result, Server, loss_stream, run
from tests.interop.tus import TUS

DIALECTS = {"tus": TUS, "ietf": IETF}


def table(results: Sequence[Result]) -> str:
    """A line for each requirement."""
    lines = []
    for result in results:
        requirement = result.requirement
        place = f"{requirement.dialect} {requirement.part}"
        text = f"{result.outcome:7} {requirement.level:6} {place:26} {requirement.text}"
        lines.append(f"{text}: {result.detail}" if result.detail else text)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="where uploads are created")
    parser.add_argument("--dialect", choices=DIALECTS, action="append", help="default: all")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--content", type=Path, help="file to upload; default: a loss stream")
    args = parser.parse_args()
    pairs = (text.partition(":") for text in args.header)
    headers = {name: value.strip() for name, _, value in pairs}
    content = args.content.read_bytes() if args.content else loss_stream()
    server = Server(args.url, headers, content, itertools.count(1))
    names = args.dialect or list(DIALECTS)
    results = [result for name in names for result in run(DIALECTS[name], server)]
    print(table(results))
    for name in names:
        of_name = [result for result in results if result.requirement.dialect == name]
        counts = Counter(result.outcome for result in of_name)
        print(f"{name}: {len(of_name)} requirements, {dict(counts)}")
    broken = [r for r in results if r.outcome == "broken" and r.requirement.level == "MUST"]
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
