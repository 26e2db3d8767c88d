from __future__ import annotations

import gc
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from app.losses.pictures.drawing import PICTURES, PictureCollector, draw, paint
from app.losses.pictures.exceedance import ExceedanceSheet
from app.losses.pictures.options import PALETTES, PictureOptions
from core.errors import OptionError, ReportError
from tests.app.losses.pictures.tables import ept, tables
from tests.client.running import ROOT
from tests.descriptors import nothing_left_open

TABLES = tables([1, 2])


@pytest.mark.parametrize("report", PICTURES)
def test_equal_rows_give_equal_bytes_without_date_or_version(report: str) -> None:
    options = PictureOptions(summary_set=1)
    first = draw(report, TABLES, options)
    assert draw(report, TABLES, options) == first
    assert ET.fromstring(first).tag.endswith("}svg")  # noqa: S314 - ours
    assert mpl.__version__.encode() not in first
    assert not re.search(rb"<dc:date>|<dc:creator>", first)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_png_has_the_colours_of_its_theme(theme: str) -> None:
    options = PictureOptions(form="png", theme=theme)  # type: ignore[arg-type]
    data = draw("ept", TABLES, options)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"Software" not in data
    svg = draw("ept", TABLES, PictureOptions(theme=theme)).decode()  # type: ignore[arg-type]
    palette = PALETTES[theme]  # type: ignore[index]
    for colour in (palette.background, palette.text, palette.grid, palette.first, palette.second):
        assert colour in svg


def luminance(colour: str) -> float:
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("palette", PALETTES.values(), ids=PALETTES)
def test_text_and_lines_stand_out_from_the_background(palette: object) -> None:
    """By the contrast ratios of WCAG 2.2: 4.5 for text, 3 for lines."""
    background = luminance(palette.background)  # type: ignore[attr-defined]
    for name, ratio in (("text", 4.5), ("muted", 4.5), ("first", 3), ("second", 3)):
        light, dark = sorted([luminance(getattr(palette, name)), background], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= ratio, name


def test_threads_get_the_bytes_that_each_would_get_alone() -> None:
    """Settings are those of the process: two themes at once would be drawn with one of them."""
    options = [PictureOptions(theme=theme) for theme in ("light", "dark")]
    alone = [draw("ept", TABLES, each) for each in options]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda each: draw("ept", TABLES, each), options)) == alone


def test_no_file_stays_open() -> None:
    draw("ept", TABLES, PictureOptions())
    with nothing_left_open(), ThreadPoolExecutor(1) as thread:
        thread.submit(draw, "ept", TABLES, PictureOptions()).result()


def test_settings_of_the_process_neither_matter_nor_change() -> None:
    expected = draw("ept", TABLES, PictureOptions())
    with mpl.rc_context({"lines.linewidth": 9.0, "svg.hashsalt": "other", "axes.grid": False}):
        assert draw("ept", TABLES, PictureOptions()) == expected
        assert mpl.rcParams["svg.hashsalt"] == "other"


def test_rows_may_come_in_any_pieces() -> None:
    few = tables([1])
    whole = draw("aal", few, PictureOptions())
    collector = PictureCollector("aal", PictureOptions())
    for name in ("alct", "aal"):
        for k in range(len(few[name])):
            collector.take(name, few[name][k : k + 1])
    assert collector.draw() == whole


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = ExceedanceSheet(ept([1]), [1], PictureOptions())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OptionError, match=r"Install the extra plot"):
        paint(sheet, PictureOptions())


def test_reports_without_a_picture_are_refused() -> None:
    with pytest.raises(ReportError, match="no picture of MELT"):
        draw("melt", {}, PictureOptions())


@pytest.mark.parametrize(
    "options",
    [{"form": "gif"}, {"theme": "blue"}, {"perspective": "cat"}, {"currency": "$1"}],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=name):
        PictureOptions(**options)  # type: ignore[arg-type]


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

    class Broken(ExceedanceSheet):
        def fill(self, _figure: object, _palette: object) -> list[Any]:
            raise ReportError("it cannot be drawn")

    assert gc.isenabled()
    with pytest.raises(ReportError):
        paint(Broken(ept([1]), [1], PictureOptions()), PictureOptions(form="svg"))
    assert gc.isenabled()
