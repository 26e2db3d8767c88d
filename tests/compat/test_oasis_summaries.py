"""Streams of summaries against the peer's, on its fixture and a run of a small model.

The peer adds losses in float32, in the order of items; ours are exact sums, rounded once. So
each of its files must equal a plain sum in its way byte for byte, ours a plain exact sum, and
the two differ in the last digits of some losses alone. One file of the fixture also has the
peer's wrong count of risks: both of its summaries have the same ten, which it counts in one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.command.main import main
from core.losses.format import SIDX_CHANCE
from core.losses.inputs import parse_summary_map, parse_summary_xref
from core.losses.policy import Policy
from core.losses.reader import LossReader
from tests.summary_oracle import Pairs, Sets, Sums, of_events, summarised

SHARED = Path(__file__).parents[2] / ".." / "shared" / "conformance"
FIXTURE = SHARED / "oasis" / "summary"
RUN = SHARED / "oasis-run"

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the peer's conformance data are not here")

INPUTS = {
    "gul": ("gulsummaryxref", "gul_summary_map.csv"),
    "il": ("fmsummaryxref", "fm_summary_map.csv"),
    "ri": ("RI_1/fmsummaryxref", None),
    "ri_IP1": ("RI_1/fmsummaryxref", None),
}
COUNTED_ONCE = ("multiple_summary_set-il", 2)
"""Where the peer counts each risk in one of its summaries alone."""
ULPS = 4
"""Units in the last place that the peer's sums differ by."""


class Case:
    """An item stream, its inputs, and the peer's streams of summaries by set."""

    def __init__(self, stream: Path, inputs: Path, perspective: str, last: bool = False) -> None:
        name, map_name = INPUTS[perspective]
        if last:
            name = name.replace("RI_1", "RI_2")
        self.stream = stream
        self.xref = next(path for s in ("csv", "bin") if (path := inputs / f"{name}.{s}").exists())
        self.map = None if map_name is None else inputs / map_name
        self.expected: dict[int, Path] = {}
        self.zeros = False
        """Whether the peer was run with ``-z``."""

    def sets(self) -> Sets:
        xref = parse_summary_xref(self.xref.read_bytes())
        rows = zip(xref.ids.tolist(), xref.summary_ids.tolist(), xref.set_ids.tolist(), strict=True)
        risks = None
        if self.map is not None:
            found = parse_summary_map(self.map.read_bytes())
            risks = dict(zip(found.ids.tolist(), found.risks().tolist(), strict=True))
        return Sets(tuple(rows), risks)

    def plain(
        self, blocks: list[Pairs], samples: int, set_id: int, sums: Sums
    ) -> tuple[bytes, bytes]:
        sets = self.sets()
        return summarised(blocks, samples, 4, sets, set_id, zeros=self.zeros, sums=sums)


def _fixture(folder: str, perspective: str) -> Case:
    case = Case(FIXTURE / f"{perspective}.bin", FIXTURE / folder, perspective)
    case.zeros = perspective == "ri"
    paths = sorted((FIXTURE / folder).glob(f"{perspective}_S*_summary.bin"))
    case.expected = {int(path.name.split("_")[-2][1:]): path for path in paths}
    return case


def _run(perspective: str, part: int) -> Case:
    streams = RUN / "streams"
    case = Case(
        streams / f"{perspective}_P{part}.bin",
        RUN / "run" / "input",
        perspective,
        last=perspective == "ri",
    )
    case.expected = {
        k: streams / "work" / f"{perspective}_S{k}_summary" / f"P{part}.bin" for k in (1, 2)
    }
    return case


CASES: dict[str, Callable[[], Case]] = {
    **{
        f"{folder}-{perspective}": partial(_fixture, folder, perspective)
        for folder in ("single_summary_set", "multiple_summary_set")
        for perspective in ("gul", "il", "ri")
    },
    **{
        f"{perspective}-P{part}": partial(_run, perspective, part)
        for perspective in INPUTS
        for part in (1, 2)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_streams_of_summaries_are_the_peers_but_for_its_float32_sums(
    name: str, tmp_path: Path
) -> None:
    case = CASES[name]()
    command = ["summarise", str(case.stream), "--summary-xref", str(case.xref), "--no-progress"]
    if case.map is not None:
        command += ["--summary-map", str(case.map)]
    if case.zeros:
        command.append("--zeros")
    assert main([*command, "--out", str(tmp_path)]) == 0
    reader = LossReader(Policy())
    reader.receive(case.stream.read_bytes())
    reader.close()
    blocks = of_events(reader.drain())
    assert reader.header is not None
    samples = reader.header.len_sample
    assert case.expected
    for set_id, path in case.expected.items():
        ours = (tmp_path / f"S{set_id}_summary.bin").read_bytes()
        index = (tmp_path / f"S{set_id}_summary.idx").read_bytes()
        peers = path.read_bytes()
        assert (ours, index) == case.plain(blocks, samples, set_id, "exact")
        stream, peers_index = case.plain(blocks, samples, set_id, "peer")
        words = [np.frombuffer(octets, "<i4").copy() for octets in (ours, stream, peers)]
        if (name, set_id) == COUNTED_ONCE:
            risks = np.flatnonzero(words[0] == SIDX_CHANCE) + 1
            assert words[2][risks].view(np.float32).tolist() == [1, 10, 1, 10]
            words[2][risks] = words[0][risks]
        assert np.array_equal(words[1], words[2])
        assert peers_index == path.with_suffix(".idx").read_bytes()
        assert np.abs(words[0].astype(np.int64) - words[2]).max() <= ULPS
