from __future__ import annotations

import gc
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from app.command.main import main
from app.losses.pictures.drawing import PICTURES, Collected, PictureCollector, paint
from app.losses.pictures.options import MOST_SUMMARIES, PALETTES, PictureOptions
from app.losses.pictures.sheets import ExceedanceSheet
from core.arrays import Rows
from core.errors import OptionError, ReportError
from core.losses.reports import REPORTS
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.losses.pictures.tables import aal, draw, ept, tables
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

from app.losses.pictures.options import PictureOptions
from core.losses.analysis import aggregate
from core.losses.inputs import parse_occurrence
from core.losses.samples import SampleSpec, generate_inputs, generate_stream
from tests.app.losses.pictures.tables import draw


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


DTYPE = REPORTS["ept"].dtype(4)


def collect(rows: Rows, options: PictureOptions, piece: int) -> Rows:
    collected = Collected(options)
    for k in range(0, len(rows), piece):
        scratch = rows[k : k + piece].copy()
        collected.take("ept", scratch)
        scratch["Loss"] = -1  # rows are valid only during the call
    return collected.rows("ept", DTYPE)


def test_short_curves_are_collected_whole() -> None:
    rows = ept(range(1, MOST_SUMMARIES + 1))
    for piece in (1, 7, len(rows)):
        assert np.array_equal(collect(rows, PictureOptions(tail_means=True), piece), rows)


def test_tvar_is_left_out_unless_asked_for() -> None:
    rows = ept([1])
    kept = collect(rows, PictureOptions(), 1000)
    assert np.array_equal(kept, rows[np.isin(rows["EPType"], (1, 3))])


def test_only_the_chosen_summaries_are_collected() -> None:
    ids = np.array([20, 30], np.int32)
    kept = collect(ept(range(1, 50)), PictureOptions(summary_ids=ids), 100)
    assert np.unique(kept["SummaryId"]).tolist() == [20, 30]


def test_more_summaries_than_a_picture_holds_are_refused() -> None:
    for name, rows in {"ept": ept(range(1, 14)), **aal(range(1, 14))}.items():
        collected = Collected(PictureOptions())
        with pytest.raises(ReportError, match=r"up to 12 summaries.*summary_ids"):
            collected.take(name, rows)


def test_a_command_with_an_option_of_its_own_for_pictures_names_that() -> None:
    with pytest.raises(ReportError, match="Choose some with plot_summaries"):
        Collected(PictureOptions(chosen_by="plot_summaries")).take("ept", ept(range(1, 14)))


def test_chosen_summaries_without_rows_are_refused() -> None:
    with pytest.raises(ReportError, match="no row of EPT"):
        collect(ept([1]), PictureOptions(summary_ids=np.array([2], np.int32)), 10)


@pytest.mark.parametrize("piece", [30_000, 1 << 30])
def test_a_long_curve_keeps_its_ends_and_its_shape(piece: int) -> None:
    count = 100_000
    rows = np.zeros(2 * count, DTYPE)
    rows["SummaryId"] = 1
    rows["EPCalc"] = 2
    rows["EPType"] = np.repeat([1, 3], count)
    rows["ReturnPeriod"] = np.tile(count / np.arange(1, count + 1), 2)
    rows["Loss"] = np.tile(np.arange(count, 0, -1), 2)
    kept = collect(rows, PictureOptions(), piece)
    assert len(kept) < 30_000
    for kind in (1, 3):
        points, curve = (table[table["EPType"] == kind] for table in (kept, rows))
        ranks = np.searchsorted(-curve["ReturnPeriod"], -points["ReturnPeriod"])
        assert np.array_equal(points, curve[ranks])
        assert np.array_equal(points[[0, -1]], curve[[0, -1]])
        # Between two points that were kept, less than the width of a line is left out.
        gaps = np.diff(np.log10(points["ReturnPeriod"].astype(float)))
        exact = np.diff(np.log10(curve["ReturnPeriod"].astype(float)))
        assert (-gaps).max() <= max((-exact).max(), 0.0011)


SPEC = SampleSpec(events=60, summaries=3, samples=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    (directory / "summary.bin").write_bytes(b"".join(generate_stream(SPEC)))
    (directory / "occurrence.bin").write_bytes(generate_inputs(SPEC)["occurrence.bin"])
    return directory


def command(run: Path, out: Path, reports: str, *options: str) -> list[str]:
    inputs = ["--occurrence", str(run / "occurrence.bin"), "--return-periods", "500,100,10"]
    if "ept" not in reports:
        inputs = inputs[:2]
    files = ["aggregate", str(run / "summary.bin"), "--out", str(out), "--format", "bin"]
    return [*files, "--reports", reports, *inputs, *options]


def test_pictures_show_the_tables_that_were_written(run: Path, tmp_path: Path) -> None:
    out, pictures = tmp_path / "out", tmp_path / "pictures"
    options = ("--plot", str(pictures), "--theme", "dark", "--plot-tvar", "--confidence", "0.9")
    assert main(command(run, out, "ept,aal,alct", *options)) == 0
    tables = {
        name: np.fromfile(out / f"{name}.bin", REPORTS[name].dtype(4))
        for name in ("ept", "aal", "alct")
    }
    expected = PictureOptions(theme="dark", tail_means=True, confidence=0.9, summary_set=1)
    for name in ("ept", "aal"):
        assert (pictures / f"{name}.svg").read_bytes() == draw(name, tables, expected)
    assert sorted(path.name for path in pictures.iterdir()) == ["aal.svg", "ept.svg"]


def test_a_picture_of_averages_needs_no_other_report_to_be_asked_for(
    run: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "averages.png"
    options = ("--plot", str(picture), "--confidence", "0.9")
    assert main(command(run, tmp_path / "out", "aal", *options)) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["aal.bin"]


def test_partial_files_alone_can_be_drawn(run: Path, tmp_path: Path) -> None:
    part, picture = tmp_path / "run.part", tmp_path / "p.svg"
    whole = command(run, tmp_path / "a", "aal", "--plot", str(tmp_path / "w.svg"))
    assert main([*whole, "--partial-out", str(part)]) == 0
    merged = command(run, tmp_path / "b", "aal", "--plot", str(picture), "--partials", str(part))
    assert main([merged[0], *merged[2:]]) == 0
    assert picture.read_bytes() == (tmp_path / "w.svg").read_bytes()


@pytest.mark.parametrize(
    ("reports", "options", "message"),
    [
        ("melt", ("--plot", "p.svg"), "none of the requested reports has a picture"),
        ("ept,aal", ("--plot", "p.svg"), "takes a single picture"),
        ("ept", ("--plot", "p.svg", "--currency", "euro"), "currency"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_pass(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reports: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    out = tmp_path / "out"
    assert main(command(run, out, reports, *options)) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_without_the_library_nothing_is_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(command(run, tmp_path / "out", "ept", "--plot", "p.svg")) == 2
    assert "Install the extra plot" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tables_are_written_even_where_their_picture_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "p.svg"
    options = ("--plot", str(picture), "--plot-summaries", "7-9")
    assert main(command(run, tmp_path / "out", "ept", *options)) == 2
    assert "no row of EPT" in capsys.readouterr().err
    assert (tmp_path / "out" / "ept.bin").stat().st_size
    assert not picture.exists()


def test_a_list_of_summaries_that_is_none_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(command(run, tmp_path, "ept", "--plot", "p.svg", "--plot-summaries", "all"))
    assert "is not a list such as 1,5,10-20" in capsys.readouterr().err
