"""What drawing leaves behind."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

from app.losses.pictures.canvas import paint
from app.losses.pictures.options import PictureOptions
from core.errors import ReportError
from tests.client.running import ROOT

MIB = 1 << 20
DRAWING = """
from pathlib import Path

from app.losses.pictures.drawing import draw
from app.losses.pictures.options import PictureOptions
from core.losses.analysis import aggregate
from core.losses.inputs import parse_occurrence
from core.losses.samples import SampleSpec, generate_inputs, generate_stream


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10


spec = SampleSpec(events=50, summaries=12, samples=20)
occurrence = parse_occurrence(generate_inputs(spec)["occurrence.bin"])
stream = b"".join(generate_stream(spec))
tables = aggregate(stream, ["ept", "aal", "alct"], occurrence=occurrence)
draw("ept", tables, PictureOptions(form="svg"))
print(resident())
for _ in range(2):
    for report in ("ept", "aal"):
        for form in ("svg", "png"):
            draw(report, tables, PictureOptions(form=form))
print(resident())
"""


def test_pictures_leave_no_memory_behind() -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-c", DRAWING]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    first, last = map(int, run.stdout.split())
    # Figures that wait for the garbage collector take twice as much.
    assert last - first < 12 * MIB


def test_a_picture_that_fails_leaves_the_collector_running() -> None:
    pytest.importorskip("matplotlib")

    class Broken:
        title = subtitle = "broken"
        inches = (2.0, 1.0)

        def fill(self, _figure: object, _palette: object) -> list[Any]:
            raise ReportError("it cannot be drawn")

    assert gc.isenabled()
    with pytest.raises(ReportError):
        paint(Broken(), PictureOptions(form="svg"))
    assert gc.isenabled()
