"""All cases side by side, over and over: ``python -m tests.abuse.abuser PORT``.

Runs in a process of its own, on one core, until its standard input ends. Prints how often
each case ran and what it was answered.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import os
import sys
import threading

from tests.abuse.cases import CASES, Case, register
from tests.abuse.requests import Answer, Caller


class Counting(Caller):
    """A caller that counts the statuses of its answers."""

    counts: collections.Counter[str]

    def ask(self, *args: object, **how: object) -> Answer:
        answer = super().ask(*args, **how)  # type: ignore[arg-type]
        self.counts[str(answer.status)] += 1
        return answer


def repeat(case: Case, caller: Counting, stop: threading.Event) -> None:
    """Run a case again and again, whatever happens to it."""
    while not stop.is_set():
        try:
            case(caller, stop)
            caller.counts[case.__name__] += 1
        except (OSError, http.client.HTTPException) as error:
            caller.counts[f"{case.__name__}: {type(error).__name__}"] += 1
            stop.wait(0.2)


def main() -> int:
    """Abuse the service."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--key")
    parser.add_argument("--address", default="127.0.0.1", help="loopback address to call from")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    caller = Counting(args.port, args.key, args.address)
    object.__setattr__(caller, "counts", collections.Counter())
    stop = threading.Event()
    register(caller, stop)
    threads = [threading.Thread(target=repeat, args=(c, caller, stop), daemon=True) for c in CASES]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join(30.0)
    print(json.dumps(dict(caller.counts.most_common())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
