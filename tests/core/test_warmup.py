"""The warm-up compiles everything: work of any kind then finds its kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.warmup import warm_up

pytestmark = pytest.mark.once

WORK = """
import numpy as np
from app.losses.tables import FORMATS, table_encoder
from core import _jit
from core.errors import CoreError
from core.losses.analysis import Analysis
from core.losses.policy import Policy
from core.losses.reader import LossReader
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_stream
from core.losses.format import Kind

assert _jit.is_build_published()
for width in (4, 8):
    for kind in (Kind.SUMMARY, Kind.GUL):
        spec = SampleSpec(events=4, summaries=3, samples=30, kind=kind, float_width=width)
        data = b"".join(generate_stream(spec))
        names = list(REPORTS) if kind is Kind.SUMMARY else ["events"]
        options = {"quantiles": np.array([0.5], np.float32)} if len(names) > 1 else {}
        for nan in ("error", "drop"):
            policy = Policy(float_width=width, nan=nan, sample_order="any")
            def sink(name, rows):
                for form in FORMATS:
                    table_encoder(form, REPORTS[name], width).encode(rows)
            for pieces in ([data], [data[:99], data[99:]], [data[:-1]], [data, b"junk" * 9]):
                analysis = Analysis(names, sink, policy=policy, **options)
                try:
                    for piece in pieces:
                        analysis.receive(bytearray(piece))
                        analysis.receive(b"")
                    state = analysis.getstate()
                    Analysis(names, sink, policy=policy, **options).setstate(state)
                    analysis.close()
                except CoreError:
                    pass
                reader = LossReader(policy)
                reader.receive(data)
                reader.drain()
missed = {name: k.stats.cache_misses for name, k in _jit.KERNELS.items() if k.stats.cache_misses}
assert not missed, missed
print(len(_jit.KERNELS), "kernels")
"""


@pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled in this mode"
)
def test_nothing_is_compiled_after_a_warm_up() -> None:
    warm_up()
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "kernels" in done.stdout


def test_it_says_what_took_how_long() -> None:
    seconds = warm_up()
    assert len(seconds) == 10
    assert all(value >= 0 for value in seconds.values())
