"""Damages streams and auxiliary files at random, for as long as it is told to.

``python -m tests.fuzz.fuzz_losses --seconds 600``. Whatever the bytes, the outcome is
rows or one documented error, in bounded time, and it is the same however the bytes
are cut into pieces and whether rows or events are read. An input that breaks this is
saved and named; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from core.errors import CoreError
from core.losses.inputs import parse_event_rates, parse_occurrence, parse_quantiles
from core.losses.policy import Policy
from core.losses.reader import LossReader
from core.losses.samples import SampleSpec, generate_inputs
from tests.streams import ALL_REPORTS, Outcome, feed, random_cuts, random_stream, read

PATIENCE = 20
"""Seconds one case may take; the slowest honest one takes far less than one."""

SPICE = [0, 1, -1, -5, -6, 2**31 - 1, -(2**31), 0x7F800000, 0x7FC00000, -8388608, 255]
"""Words that mean something somewhere: ends, ids, sidx, infinities."""


def damage(rng: np.random.Generator, data: bytes) -> bytes:
    """A few random changes, most of them aligned to words, as real damage would not be."""
    octets = bytearray(data)
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(0, max(len(octets), 1)))
        word = at & ~3
        length = int(rng.integers(1, 40))
        match rng.integers(0, 8):
            case 0:
                octets[at : at + 1] = bytes([int(rng.integers(0, 256))])
            case 1 | 2:
                spice = int(rng.choice(SPICE)) & 0xFFFFFFFF
                octets[word : word + 4] = spice.to_bytes(4, "little")
            case 3:
                del octets[at : at + length]
            case 4:
                octets[at:at] = rng.bytes(length)
            case 5:
                octets[word:word] = octets[word : word + 4 * length]
            case 6:
                del octets[at:]
            case _:
                octets += rng.bytes(length)
    return bytes(octets)


def random_policy(rng: np.random.Generator, width: int) -> Policy:
    """Any policy, mostly of the right width, with a small limit on samples."""
    return Policy(
        float_width=width if rng.random() < 0.9 else 12 - width,
        nan=rng.choice(["error", "error", "zero", "drop"]),
        negative=rng.choice(["error", "keep"]),
        sample_order=rng.choice(["ascending", "ascending", "any"]),
        event_order=rng.choice(["any", "any", "ascending"]),
        max_samples=100_000,
    )


def try_stream(rng: np.random.Generator) -> tuple[str, bytes]:
    """One damaged stream; returns the outcome's code and the bytes."""
    width = int(rng.choice([4, 8]))
    kind = str(rng.choice(["summary", "summary", "gul", "loss", "coverage"]))
    samples = int(rng.choice([1, 3, 20, 64, 65, 150]))
    highest = int(rng.choice([5, 5000, 2**31 - 1]))
    stream = random_stream(rng, kind=kind, width=width, samples=samples, highest=highest)
    data = damage(rng, stream.encode())
    policy = random_policy(rng, width)
    reports = ALL_REPORTS if kind == "summary" else ("events",)
    whole = feed([data], reports, policy=policy)
    pieces = random_cuts(rng, data, int(rng.integers(0, 30)))
    cut = feed(pieces, reports, policy=policy)
    is_wide = _is_wide(whole)
    alike = _begin_alike(whole, cut) if is_wide and _is_wide(cut) else whole == cut
    assert alike, f"cut differently: {whole.error} and {cut.error}"
    reading = read(pieces, LossReader(policy))
    if whole.error is None or not (is_wide or whole.error[1] == "report"):
        assert reading.error == whole.error, f"read differently: {reading.error}, {whole.error}"
    return (whole.error[1] if whole.error else "accepted"), data


def _is_wide(outcome: Outcome) -> bool:
    return outcome.error is not None and outcome.error[2].endswith("bytes holds")


def _begin_alike(one: Outcome, other: Outcome) -> bool:
    """Whether rows are the same as far as both have them.

    A number of a row that is too large is found once a piece has been parsed. It may be any of
    those in the piece, and rows of the blocks before it are handed on only from earlier pieces.
    """
    both = [(one.rows.get(r, b""), other.rows.get(r, b"")) for r in one.rows | other.rows]
    return all(a.startswith(b) or b.startswith(a) for a, b in both)


INPUTS = generate_inputs(SampleSpec(events=8, summaries=2, samples=4))


def try_input(rng: np.random.Generator) -> tuple[str, bytes]:
    """One damaged auxiliary file, read as any of them."""
    data = damage(rng, INPUTS[str(rng.choice(list(INPUTS)))])
    parse: Any = [parse_quantiles, parse_event_rates, parse_occurrence][rng.integers(0, 3)]
    try:
        parse(data)
    except CoreError as e:
        return f"{parse.__name__}: {e.code}", data
    return f"{parse.__name__}: accepted", data


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"a case took more than {PATIENCE} seconds")


def main() -> int:
    """Fuzz; exit code 1 if something undocumented happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _out_of_time)
    outcomes: Counter[str] = Counter()
    violations = 0
    start = time.perf_counter()
    case = 0
    while time.perf_counter() - start < args.seconds:
        rng = np.random.default_rng([args.seed, case])
        signal.alarm(PATIENCE)
        try:
            outcome, _ = (try_input if case % 8 == 0 else try_stream)(rng)
            outcomes[outcome] += 1
        except Exception:  # noqa: BLE001 - any is a finding
            violations += 1
            name = Path(tempfile.gettempdir()) / f"fuzz-{args.seed}-{case}.txt"
            name.write_text(traceback.format_exc())
            print(f"violation: seed {args.seed}, case {case}, see {name}")
        signal.alarm(0)
        case += 1
    seconds = time.perf_counter() - start
    print(f"seed {args.seed}: {case} cases in {seconds:.0f} s, {case / seconds:.0f}/s")
    for outcome, count in outcomes.most_common():
        print(f"{count:>9}  {outcome}")
    print(f"{violations} violations")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
